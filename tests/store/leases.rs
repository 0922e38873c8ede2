//! Leases of owners that are disconnected or killed.

use std::time::Duration;

use oprc_cp_storage::{Error, EtcdOptions, Lease, Store, Transaction};
use tokio::time::{sleep, timeout};

use oprc_tests::etcd::Etcd;

/// Longer than a restart of etcd on a busy machine.
const LEASE_TTL: Duration = Duration::from_secs(15);
/// A lease that isn't renewed expires within this time.
const EXPIRY_TIMEOUT: Duration = LEASE_TTL.saturating_add(Duration::from_secs(5));

async fn open(etcd: &Etcd) -> Store {
    etcd.wait_until_ready().await;
    let options = EtcdOptions {
        lease_ttl: LEASE_TTL,
        deadline: Duration::from_secs(10),
        ..etcd.options("test")
    };
    Store::etcd(options).await.unwrap()
}

/// Retries until the lease is acquired.
async fn acquire(store: &Store, identity: &str) -> Lease {
    loop {
        match store.acquire_lease("driver", identity).await {
            Ok(lease) => return lease,
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
    let lease = first.acquire_lease("driver", "one").await.unwrap();
    first.commit(Transaction::new().put("a", "").fenced(&lease)).await.unwrap();
    // A restarted etcd keeps the lease.
    etcd.kill();
    etcd.restart();
    assert!(timeout(EXPIRY_TIMEOUT, acquire(&second, "two")).await.is_err());
    assert!(lease.is_held());
}

#[tokio::test]
async fn lease_is_lost_before_another_owner_acquires_it() {
    let etcd = Etcd::start();
    let store = open(&etcd).await;
    let lease = store.acquire_lease("driver", "one").await.unwrap();
    let late = Transaction::new().put("a", "late").fenced(&lease);
    etcd.freeze();
    // It expires by the clock, even without a response.
    tokio::time::sleep(LEASE_TTL).await;
    assert!(!lease.is_held());
    timeout(4 * LEASE_TTL, lease.lost()).await.unwrap();
    etcd.thaw();
    let second = timeout(4 * LEASE_TTL, acquire(&store, "two")).await.unwrap();
    let error = store.commit(late).await;
    assert_eq!(error, Err(Error::LeaseLost { name: "driver".to_owned() }));
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
        let error = store.acquire_lease("driver", "two").await.unwrap_err();
        let holder = "one".to_owned();
        assert_eq!(error, Error::LeaseHeld { name: "driver".to_owned(), holder });
        let lease = timeout(4 * LEASE_TTL, acquire(&store, "two")).await.unwrap();
        lease.release().await;
    });
}
