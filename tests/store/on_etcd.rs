//! The conformance suite on an etcd.

use std::sync::Arc;

use oprc_cp_storage::{Store, conformance::histories};

use oprc_tests::etcd::Etcd;

async fn open(test: &str) -> (Store, Arc<Etcd>) {
    let etcd = Etcd::shared();
    (etcd.store(test).await, etcd)
}

oprc_cp_storage::conformance_tests!(open);

#[test]
fn histories() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    histories::agree_with_a_map(24, &runtime, &open);
}
