//! Leases of owners that are disconnected or killed.

use std::time::Duration;

use oprc_cp_storage::{Error, EtcdOptions, Lease, Store, Transaction};
use tokio::time::{sleep, timeout};

use oprc_tests::etcd::Etcd;

/// Longer than a restart of etcd on a busy machine.
const LEASE: Duration = Duration::from_secs(15);
/// A lease that isn't renewed has expired by then.
const OVER: Duration = LEASE.saturating_add(Duration::from_secs(5));

async fn open(etcd: &Etcd) -> Store {
    etcd.up().await;
    let options =
        EtcdOptions { lease_ttl: LEASE, deadline: Duration::from_secs(10), ..etcd.options("test") };
    Store::etcd(options).await.unwrap()
}

/// Retries until the lease is acquired.
async fn acquire(store: &Store, identity: &str) -> Lease {
    loop {
        match store.acquire_lease("driver", identity).await {
            Ok(owned) => return owned,
            Err(Error::LeaseHeld { .. } | Error::Unavailable { .. }) => {
                sleep(Duration::from_millis(250)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn lease_is_renewed_while_it_is_held() {
    let etcd = Etcd::start();
    let (first, second) = (open(&etcd).await, open(&etcd).await);
    let owned = first.acquire_lease("driver", "one").await.unwrap();
    first.commit(Transaction::new().put("a", "").fenced(&owned)).await.unwrap();
    // A restarted etcd keeps the lease.
    etcd.kill();
    etcd.restart();
    assert!(timeout(OVER, acquire(&second, "two")).await.is_err());
    assert!(owned.is_held());
}

#[tokio::test]
async fn lease_is_lost_before_another_owner_acquires_it() {
    let etcd = Etcd::start();
    let store = open(&etcd).await;
    let owned = store.acquire_lease("driver", "one").await.unwrap();
    let late = Transaction::new().put("a", "late").fenced(&owned);
    etcd.freeze();
    sleep(LEASE).await;
    // Expired by the clock, even without a response.
    assert!(!owned.is_held());
    timeout(4 * LEASE, owned.lost()).await.unwrap();
    etcd.thaw();
    let second = timeout(4 * LEASE, acquire(&store, "two")).await.unwrap();
    let refused = store.commit(late).await;
    assert_eq!(refused, Err(Error::LeaseLost { name: "driver".to_owned() }));
    store.commit(Transaction::new().put("a", "").fenced(&second)).await.unwrap();
}

#[test]
fn lease_expires_with_its_process() {
    let etcd = Etcd::start();
    // A dropped runtime stops the renewal, as the end of a process does.
    let first = tokio::runtime::Runtime::new().unwrap();
    let _owned =
        first.block_on(async { open(&etcd).await.acquire_lease("driver", "one").await.unwrap() });
    first.shutdown_background();
    let second = tokio::runtime::Runtime::new().unwrap();
    second.block_on(async {
        let store = open(&etcd).await;
        let refused = store.acquire_lease("driver", "two").await.unwrap_err();
        let holder = "one".to_owned();
        assert_eq!(refused, Error::LeaseHeld { name: "driver".to_owned(), holder });
        let owned = timeout(4 * LEASE, acquire(&store, "two")).await.unwrap();
        owned.release().await;
    });
}
