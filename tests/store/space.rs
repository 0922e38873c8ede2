//! An etcd whose quota is used up, and how its space is freed.

use std::time::Duration;

use oprc_cp_storage::{Error, EtcdAdmin, Store, Transaction};
use oprc_tests::etcd::Etcd;

/// Small enough to be used up in a moment.
const QUOTA_BYTES: usize = 8 << 20;
const VALUE_BYTES: usize = 500_000;

pub(crate) fn admin(etcd: &Etcd) -> EtcdAdmin {
    EtcdAdmin::new(&etcd.endpoint(), Duration::from_mins(1)).unwrap()
}

/// Writes other values to one key until etcd refuses it.
async fn fill(store: &Store) -> Error {
    for _ in 0..4 * QUOTA_BYTES / VALUE_BYTES {
        let transaction = Transaction::new().put("a", vec![b'x'; VALUE_BYTES]);
        if let Err(error) = store.commit(transaction).await {
            return error;
        }
    }
    panic!("etcd ignores its quota");
}

#[tokio::test]
async fn writes_are_accepted_after_compaction_defragmentation_and_clearing_the_alarm() {
    let quota = format!("--quota-backend-bytes={QUOTA_BYTES}");
    let etcd = Etcd::start().with_flags("http", vec!["--unsafe-no-fsync".to_owned(), quota]);
    let (store, admin) = (etcd.store("test").await, admin(&etcd));
    let refused = fill(&store).await;
    assert!(refused.to_string().contains("database space exceeded"), "{refused}");
    let status = admin.status().await.unwrap();
    assert!(status.errors.iter().any(|it| it.contains("NOSPACE")), "{status:?}");

    let newest = store.get("a").await.unwrap().unwrap();
    admin.compact(newest.version.0).await.unwrap();
    // etcd may have compacted its history itself.
    admin.compact(newest.version.0).await.unwrap();
    admin.defragment().await.unwrap();
    let freed = admin.status().await.unwrap();
    assert!(freed.bytes < status.bytes / 2, "{freed:?}");
    let write = Transaction::new().put("b", "1");
    store.commit(write.clone()).await.unwrap_err();
    admin.clear_out_of_space().await.unwrap();
    store.commit(write).await.unwrap();
    assert!(admin.status().await.unwrap().errors.is_empty());
}
