//! One process drives.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::{Error, Store, Transaction};

/// A second one is told who has it.
pub async fn is_for_one(store: &Store) {
    let first = store.own("driver", "pm-1 on host a").await.unwrap();
    assert!(first.is_held());
    assert_eq!(first.name(), "driver");
    let refused = store.own("driver", "pm-2").await.unwrap_err();
    let by = "pm-1 on host a".to_owned();
    assert_eq!(refused, Error::Owned { name: "driver".to_owned(), by });
    // Not even one that says that it is the same.
    assert!(store.own("driver", "pm-1 on host a").await.is_err());
    let another = store.own("another", "pm-2").await.unwrap();
    first.release().await;
    let second = store.own("driver", "pm-2").await.unwrap();
    assert!(second.is_held() && another.is_held());
    // Who owns isn't among the entries.
    assert_eq!(store.list("").await.unwrap().entries, []);
    second.release().await;
    another.release().await;
}

/// Of a former owner none is made, even if nobody came after it.
pub async fn guards_transactions(store: &Store) {
    let first = store.own("driver", "one").await.unwrap();
    let put = |value: &'static str| Transaction::new().put("a", value);
    let late = put("late").fenced(&first);
    store.commit(put("1").fenced(&first)).await.unwrap();
    first.release().await;
    let not_owner = Err(Error::NotOwner { name: "driver".to_owned() });
    assert_eq!(store.commit(late.clone()).await, not_owner);
    let second = store.own("driver", "two").await.unwrap();
    store.commit(put("2").fenced(&second)).await.unwrap();
    assert_eq!(store.commit(late).await, not_owner);
    assert_eq!(store.get("a").await.unwrap().unwrap().value, "2");
    // A conflict is told of an owner, too.
    let conflict = put("3").check("b", crate::Check::Exists).fenced(&second);
    let conflict = store.commit(conflict).await;
    assert_eq!(conflict, Err(Error::Conflict { key: "b".to_owned(), version: None }));
    second.release().await;
}

/// Sooner or later.
pub async fn ends_when_it_is_dropped(store: &Store) {
    let first = store.own("driver", "one").await.unwrap();
    assert!(timeout(Duration::from_millis(10), first.lost()).await.is_err());
    drop(first);
    let own = async {
        loop {
            match store.own("driver", "two").await {
                Ok(second) => return second,
                Err(Error::Owned { .. }) => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(Duration::from_mins(1), own).await.unwrap().release().await;
}
