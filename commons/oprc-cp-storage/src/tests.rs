//! The suite on the stores that need nothing else.

use crate::{RedbOptions, Store, suite::histories};

async fn memory(_: &str) -> (Store, ()) {
    (Store::memory(), ())
}

async fn redb(_: &str) -> (Store, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = RedbOptions::new(folder.path().join("store.redb"), "a test");
    (Store::redb(options).await.unwrap(), folder)
}

mod on_memory {
    use super::*;

    crate::behaves!(memory);

    #[test]
    fn histories() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        histories::agree_with_a_map(256, &runtime, &memory);
    }
}

mod on_redb {
    use super::*;

    crate::behaves!(redb);

    #[test]
    fn histories() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        histories::agree_with_a_map(24, &runtime, &redb);
    }
}
