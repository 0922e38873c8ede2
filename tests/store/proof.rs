//! Long suites: a sample with every test run, all rounds with `make prove`.

use std::time::Duration;

use oprc_cp_storage::{EtcdOptions, Store};
use oprc_tests::{etcd::Etcd, proof};

use crate::killed::{Acknowledged, round_on_etcd, round_on_redb};

#[tokio::test]
async fn acknowledged_writes_survive_a_killed_redb_writer() {
    let proof = proof::begin("redb store killed during writes", 20, 200);
    let folder = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut total) = (Acknowledged::new(), 0);
    for round in 0..proof.rounds {
        // One file is used in most rounds; every fourth round has a new one, and is short.
        if round % 4 == 0 {
            let mut new_acknowledged = Acknowledged::new();
            let new = folder.path().join(format!("new-{round}.redb"));
            round_on_redb(&new, true, &mut new_acknowledged).await;
            total += new_acknowledged.values().sum::<u64>();
        } else {
            let path = folder.path().join("store.redb");
            round_on_redb(&path, round % 4 == 1, &mut acknowledged).await;
        }
    }
    total += acknowledged.values().sum::<u64>();
    assert!(total > u64::try_from(proof.rounds).unwrap(), "too few writes");
    proof.held(&format!("{total} transactions of four writers, all stored, no partial writes"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_killed_etcd() {
    let proof = proof::begin("etcd store killed during writes", 3, 30);
    let etcd = Etcd::start();
    // Writers fail fast while etcd is down; checks wait for its restart.
    let reading = etcd.store("test").await;
    let fail_fast = EtcdOptions { deadline: Duration::from_secs(2), ..etcd.options("test") };
    let stores = (Store::etcd(fail_fast).await.unwrap(), reading);
    let mut acknowledged = Acknowledged::new();
    for _ in 0..proof.rounds {
        round_on_etcd(&etcd, &stores, &mut acknowledged).await;
    }
    let total: u64 = acknowledged.values().sum();
    assert!(total > 0, "nothing was written");
    proof.held(&format!("{total} transactions of four writers, all stored, no partial writes"));
}
