use proptest::prelude::*;

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

#[tokio::test]
async fn a_former_owner_cannot_commit() {
    let store = Store::memory();
    let (first, second) = (ownership(&store, "g-0"), ownership(&store, "g-1"));
    assert_eq!(first.take(all(&first)).await.unwrap(), 120);
    let object = "o/a%2Fb/x";
    let late = first.fenced(Transaction::new().put(object, "late"), object).unwrap();
    let key = second.key_of(object).unwrap();
    let owner = second.refresh(&key).await.unwrap();
    assert_eq!(second.take(vec![(key.clone(), owner)]).await.unwrap(), 1);
    let refused = store.commit(late).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { key: found, .. } if found == key));
    let new = second.fenced(Transaction::new().put(object, "new"), object).unwrap();
    store.commit(new).await.unwrap();
    first.refresh(&key).await.unwrap();
    let refused = first.fenced(Transaction::new(), object).unwrap_err();
    assert_eq!(refused, Error::NotOwner(key));
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

proptest! {
    #[test]
    fn a_partition_is_one_of_the_collections(id in "[^/]{1,50}", count in 1u32..4096) {
        prop_assert!(partition(&id, count) < count);
    }
}
