use futures::StreamExt as _;
use oprc_cp_storage::Store;
use serde_json::json;

use super::*;
use crate::{Expected, ObjectId, class::Class};

fn grid() -> Grid {
    let class = json!({"name": "c", "collections": ["C", "D"]});
    Grid::new(Store::memory(), serde_json::from_value::<Class>(class).unwrap())
}

async fn put(grid: &Grid, id: &str, number: usize) -> Object {
    let state = serde_json::from_value(json!({"number": number})).unwrap();
    grid.put(None, &ObjectId::parse(id).unwrap(), state, Expected::Anything).await.unwrap()
}

#[tokio::test]
async fn all_objects_are_streamed() {
    let grid = grid();
    for number in 0..2500 {
        put(&grid, &format!("{number:04}"), number).await;
    }
    let pages: Vec<_> = grid.list_stream(None, "").unwrap().collect().await;
    let objects: Vec<_> = pages.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(objects.len(), 2500);
    assert!(objects.windows(2).all(|it| it[0].id < it[1].id));
    let of_prefix: Vec<_> = grid.list_stream(None, "12").unwrap().collect().await;
    assert_eq!(of_prefix.into_iter().flat_map(Result::unwrap).count(), 100);
    assert!(grid.list_stream(Some("none"), "").is_err());
}

#[tokio::test]
async fn a_watch_sends_each_change_once_in_order() {
    let grid = grid();
    for number in 0..40 {
        put(&grid, &format!("a{number:02}"), number).await;
    }
    put(&grid, "b", 0).await;
    let mut watch = Box::pin(grid.watch_stream(None, "a").unwrap());
    let mut seen = watch.next().await.unwrap().unwrap();
    assert_eq!(seen.len(), 16);
    // One object that was read and two that weren't change meanwhile.
    let changed = put(&grid, "a00", 100).await;
    put(&grid, "a39", 101).await;
    put(&grid, "a99", 102).await;
    while seen.last() != Some(&WatchEvent::Synced) {
        seen.extend(watch.next().await.unwrap().unwrap());
    }
    assert_eq!(seen.len(), 42, "41 objects, and the end");
    let next = watch.next().await.unwrap().unwrap();
    assert_eq!(next, [WatchEvent::Updated(changed)], "others were read after their changes");
    grid.delete(None, &ObjectId::parse("a01").unwrap(), Expected::Exists).await.unwrap();
    put(&grid, "b", 1).await;
    let created = put(&grid, "a01", 1).await;
    let deleted = watch.next().await.unwrap().unwrap();
    assert!(matches!(&deleted[..], [WatchEvent::Deleted(it)] if it.id == "a01"), "{deleted:?}");
    assert_eq!(watch.next().await.unwrap().unwrap(), [WatchEvent::Created(created)]);
}

#[test]
fn events_have_types() {
    let object = Object { id: "a".to_owned(), version: 1, state: serde_json::Map::new() };
    let created = serde_json::to_value(WatchEvent::Created(object)).unwrap();
    assert_eq!(
        created,
        json!({"type": "CREATED", "object": {"id": "a", "version": 1, "state": {}}})
    );
    assert_eq!(serde_json::to_value(WatchEvent::Synced).unwrap(), json!({"type": "SYNCED"}));
}
