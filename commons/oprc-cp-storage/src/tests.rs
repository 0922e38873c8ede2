//! The conformance suite on the stores that need no other process.

use crate::{RedbOptions, Store, conformance::histories};

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

    crate::conformance_tests!(memory);

    #[test]
    fn histories() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        histories::agree_with_a_map(256, &runtime, &memory);
    }
}

mod on_redb {
    use super::*;

    crate::conformance_tests!(redb);

    #[test]
    fn histories() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        histories::agree_with_a_map(24, &runtime, &redb);
    }
}
