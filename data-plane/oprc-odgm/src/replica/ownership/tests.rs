use super::*;
use crate::config::{Persistence, ShardType};

fn ownership(store: &Store, node: &str) -> Ownership {
    let collection = Collection {
        name: "a/b".to_owned(),
        partition_count: 120,
        shard_type: ShardType::Raft,
        persistence_mode: Persistence::Persistent,
    };
    let own = OwnerRecord { node: node.to_owned(), address: format!("{node}:1") };
    Ownership::new(store.clone(), own, &[collection])
}

fn all(ownership: &Ownership) -> Vec<Takeover> {
    ownership.keys().map(|key| (key.clone(), ownership.owner(&key))).collect()
}

/// Gives the partition of an object to a node.
async fn take_one(ownership: &Ownership, object: &str) {
    let key = ownership.key_of(object).unwrap();
    let owner = ownership.refresh(&key).await.unwrap();
    assert_eq!(ownership.take(vec![(key, owner)]).await.unwrap(), 1);
}

fn put(fence: (String, Check), object: &str) -> Transaction {
    Transaction::new().check(fence.0, fence.1).put(object, "value")
}

#[tokio::test]
async fn a_former_owner_cannot_commit() {
    let (store, object) = (Store::memory(), "o/a%2Fb/x");
    let (first, second) = (ownership(&store, "g-0"), ownership(&store, "g-1"));
    take_one(&first, object).await;
    let late = put(first.fence(object).unwrap(), object);
    take_one(&second, object).await;
    let key = first.key_of(object).unwrap();
    let refused = store.commit(late.clone()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { key: found, .. } if found == key));
    store.commit(put(second.fence(object).unwrap(), object)).await.unwrap();
    first.refresh(&key).await.unwrap();
    assert_eq!(first.fence(object).unwrap_err(), Error::NotOwner(key));
    // Not even if it is the owner again.
    take_one(&first, object).await;
    assert!(matches!(store.commit(late).await, Err(StoreError::Conflict { .. })));
    store.commit(put(first.fence(object).unwrap(), object)).await.unwrap();
}

#[tokio::test]
async fn partitions_with_another_owner_are_skipped() {
    let store = Store::memory();
    let (first, second) = (ownership(&store, "g-0"), ownership(&store, "g-1"));
    let some = all(&first).split_off(100);
    assert_eq!(first.take(some).await.unwrap(), 20);
    // It doesn't know about the first.
    assert_eq!(second.take(all(&second)).await.unwrap(), 100);
    let counts = second.counts();
    assert_eq!((counts["g-0"], counts["g-1"]), (20, 100));
    assert_eq!(*second.gains().borrow(), 100);
}

#[test]
fn partitions_move_only_to_or_from_the_changed_node() {
    let nodes: Vec<_> = (0..5).map(|it| format!("g-{it}")).collect();
    let mut counts = HashMap::<&String, u32>::new();
    for partition in 0..1000 {
        let key = partition_key("c", partition);
        let before = home(&key, &nodes).unwrap();
        *counts.entry(before).or_default() += 1;
        let fewer = home(&key, &nodes[..4]).unwrap();
        assert!(fewer == before || *before == "g-4");
    }
    assert!(counts.values().all(|count| (130..270).contains(count)), "{counts:?}");
    assert_eq!(home("p/c/0", &[]), None);
}
