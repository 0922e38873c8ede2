//! Leases.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{Error, Store, Transaction};

pub async fn have_one_holder(store: &Store) {
    let first = store.acquire_lease("driver", "pm-1 on host a").await.unwrap();
    assert!(first.is_held());
    assert_eq!(first.name(), "driver");
    let rejected = store.acquire_lease("driver", "pm-2").await.unwrap_err();
    let holder = "pm-1 on host a".to_owned();
    assert_eq!(rejected, Error::LeaseHeld { name: "driver".to_owned(), holder });
    // Not even for the same identity.
    assert!(store.acquire_lease("driver", "pm-1 on host a").await.is_err());
    let another = store.acquire_lease("another", "pm-2").await.unwrap();
    first.release().await;
    let second = store.acquire_lease("driver", "pm-2").await.unwrap();
    assert!(second.is_held() && another.is_held());
    // Leases are not among the entries.
    assert_eq!(store.list("").await.unwrap().entries, []);
    second.release().await;
    another.release().await;
}

/// A former holder can't write, even if nobody else has acquired the lease.
pub async fn fence_transactions(store: &Store) {
    let first = store.acquire_lease("driver", "one").await.unwrap();
    let put = |value: &'static str| Transaction::new().put("a", value);
    let late = put("late").fenced(&first);
    store.commit(put("1").fenced(&first)).await.unwrap();
    first.release().await;
    let lost = Err(Error::LeaseLost { name: "driver".to_owned() });
    assert_eq!(store.commit(late.clone()).await, lost);
    let second = store.acquire_lease("driver", "two").await.unwrap();
    store.commit(put("2").fenced(&second)).await.unwrap();
    assert_eq!(store.commit(late).await, lost);
    assert_eq!(store.get("a").await.unwrap().unwrap().value, "2");
    // The holder sees conflicts.
    let conflict = put("3").check("b", crate::Check::Exists).fenced(&second);
    let conflict = store.commit(conflict).await;
    assert_eq!(conflict, Err(Error::Conflict { key: "b".to_owned(), version: None }));
    second.release().await;
}

pub async fn are_released_on_drop(store: &Store) {
    let first = store.acquire_lease("driver", "one").await.unwrap();
    assert!(timeout(Duration::from_millis(10), first.lost()).await.is_err());
    drop(first);
    let acquire = async {
        loop {
            match store.acquire_lease("driver", "two").await {
                Ok(second) => return second,
                Err(Error::LeaseHeld { .. }) => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(Duration::from_mins(1), acquire).await.unwrap().release().await;
}
