//! Transactions.

use std::str::from_utf8;

use futures::future::join_all;

use crate::{Check, Entry, Error, Revision, Store, Transaction};

/// The first failed check, with the current version.
pub async fn report_the_failed_check_and_change_nothing(store: &Store) {
    let old = store.commit(Transaction::new().put("a", "1").put("b", "1")).await.unwrap();
    let new = store.commit(Transaction::new().put("a", "2")).await.unwrap();
    let before = store.list("").await.unwrap();
    let failing = [
        ("a", Check::Absent, Some(new)),
        ("a", Check::Version(old), Some(new)),
        ("a", Check::Version(Revision(new.0 + 1)), Some(new)),
        ("a", Check::Version(Revision(u64::MAX)), Some(new)),
        ("c", Check::Exists, None),
        ("c", Check::Version(old), None),
        ("c", Check::Version(Revision(0)), None),
    ];
    for (key, check, version) in failing {
        let transaction = Transaction::new()
            .check("b", Check::Version(old))
            .check(key, check)
            // Also fails, but is not the first.
            .check("b", Check::Absent)
            .put("a", "3")
            .put("d", "3")
            .delete("b");
        let conflict = Error::Conflict { key: key.to_owned(), version };
        assert_eq!(store.commit(transaction).await, Err(conflict), "{check:?}");
        assert_eq!(store.list("").await.unwrap().entries, before.entries);
    }
    let holding = Transaction::new()
        .check("a", Check::Version(new))
        .check("a", Check::Exists)
        .check("c", Check::Absent)
        .put("c", "3")
        .delete("a");
    store.commit(holding).await.unwrap();
    assert_eq!(store.get("a").await.unwrap(), None);
    assert_eq!(store.get("c").await.unwrap().unwrap().value, "3");
}

/// Writers move money between accounts while a reader sums up all of them.
pub async fn are_atomic_for_readers(store: &Store) {
    const ACCOUNTS: usize = 5;
    const AMOUNT: i64 = 100;
    let mut opening = Transaction::new();
    for account in 0..ACCOUNTS {
        opening = opening.put(format!("account/{account}"), AMOUNT.to_string());
    }
    store.commit(opening).await.unwrap();
    let (ended, watched) = tokio::sync::watch::channel(());
    let read = async {
        let mut sums = 0;
        while watched.has_changed().is_ok() {
            let page = store.list("account/").await.unwrap();
            let sum: i64 = page.entries.iter().map(number).sum();
            assert_eq!(sum, AMOUNT * i64::try_from(ACCOUNTS).unwrap());
            sums += 1;
            // The memory back end never yields.
            tokio::task::yield_now().await;
        }
        assert!(sums > 0);
    };
    let move_some = |mover: usize| async move {
        for round in 0..20 {
            let from = format!("account/{}", (mover + round) % ACCOUNTS);
            let to = format!("account/{}", (mover + round * 3 + 1) % ACCOUNTS);
            if from == to {
                continue;
            }
            loop {
                tokio::task::yield_now().await;
                let (a, b) = (get(store, &from).await, get(store, &to).await);
                let transaction = Transaction::new()
                    .check(&from, Check::Version(a.version))
                    .check(&to, Check::Version(b.version))
                    .put(&from, (number(&a) - 7).to_string())
                    .put(&to, (number(&b) + 7).to_string());
                match store.commit(transaction).await {
                    Ok(_) => break,
                    Err(Error::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let moves = async {
        join_all((0..4).map(move_some)).await;
        drop(ended);
    };
    futures::join!(read, moves);
}

/// Many tasks increment one number by compare-and-set.
pub async fn lose_no_concurrent_updates(store: &Store) {
    const TASKS: u32 = 16;
    const EACH: u32 = 10;
    let tasks = (0..TASKS).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while done < EACH {
                let before = store.get("number").await.unwrap();
                let (check, number) = match &before {
                    None => (Check::Absent, 0),
                    Some(entry) => (Check::Version(entry.version), number(entry)),
                };
                let next = (number + 1).to_string();
                let transaction = Transaction::new().check("number", check).put("number", next);
                match store.commit(transaction).await {
                    Ok(_) => done += 1,
                    Err(Error::Conflict { key, version }) => {
                        assert_eq!(key, "number");
                        assert_ne!(version, before.map(|entry| entry.version));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    assert_eq!(number(&get(store, "number").await), i64::from(TASKS * EACH));
}

pub async fn keep_the_revision_if_nothing_changes(store: &Store) {
    let put = store.commit(Transaction::new().put("a", "")).await.unwrap();
    let before = store.list("").await.unwrap();
    assert!(before.revision >= put);
    for nothing in [
        Transaction::new(),
        Transaction::new().check("a", Check::Version(put)),
        Transaction::new().delete("b"),
    ] {
        store.commit(nothing).await.unwrap();
    }
    assert_eq!(store.list("").await.unwrap().entries, before.entries);
    let conflict = store.commit(Transaction::new().check("b", Check::Exists)).await;
    assert_eq!(conflict, Err(Error::Conflict { key: "b".to_owned(), version: None }));
}

async fn get(store: &Store, key: &str) -> Entry {
    store.get(key).await.unwrap().unwrap()
}

fn number(entry: &Entry) -> i64 {
    from_utf8(&entry.value).unwrap().parse().unwrap()
}
