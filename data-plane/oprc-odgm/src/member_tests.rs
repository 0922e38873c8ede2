//! Two members of a deployment: each object is served by exactly one of them.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeSet;

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    http::Request,
    routing::post,
};
use futures::{StreamExt as _, TryStreamExt as _};
use oprc_cp_storage::Store;
use oprc_grpc::odgm::{GetObjectRequest, object_service_server::ObjectService as _};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::Code;
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::{
    Expected, Grid, ObjectId, WatchEvent, backup,
    class::{Access, Class},
    grpc, router,
};

/// The class of a grid of one of the members, whose method `add` adds to `count`.
async fn class(member: i32, owners: &[i32]) -> Class {
    let add = async |Json(call): Json<Value>| {
        let count = call["object"]["state"]["count"].as_i64().unwrap_or_default() + 1;
        Json(json!({"object": {"state": {"count": count}}, "result": count}))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let functions = Router::new().route("/", post(add));
    tokio::spawn(async { axum::serve(listener, functions).await.unwrap() });
    let class: Class = serde_json::from_value(json!({
        "collections": ["c"],
        "methods": {"add": {"url": url}},
        "macros": {"both": {"steps": [{"method": "add"}, {"method": "add", "target": "$args.other"}]}},
        "membership": {
            "member": member,
            "members": [
                {"id": 1, "cluster": "east", "environment": "prod", "url": "http://east:8083"},
                {"id": 2, "cluster": "west"},
            ],
            "partitions": {"c": owners},
        },
    }))
    .unwrap();
    class.validate().unwrap();
    class
}

async fn grid(member: i32) -> Grid {
    Grid::new(Store::memory(), class(member, &[1, 2, 1, 2]).await)
}

async fn send(grid: &Grid, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let routes = router(grid.clone(), Access::Internal)
        .merge(backup::router(grid.clone(), Access::Internal));
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).body(body).unwrap();
    let response = routes.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// An id of an object of a member.
fn id_of(grid: &Grid, member: i32) -> String {
    let class = grid.class();
    let membership = class.membership.as_ref().unwrap();
    let mut ids = (0..100).map(|it| format!("object-{it}"));
    ids.find(|id| membership.owner("c", id).unwrap().id == member).unwrap()
}

#[tokio::test]
async fn each_object_is_served_by_one_member() {
    let (east, west) = (grid(1).await, grid(2).await);
    let mut served = [0, 0];
    for number in 0..50 {
        let path = format!("/objects/object-{number}");
        let put = [
            send(&east, "PUT", &path, &json!({"count": 1})).await.0,
            send(&west, "PUT", &path, &json!({"count": 1})).await.0,
        ];
        assert!(put == [200, 421] || put == [421, 200], "{path}: {put:?}");
        let at = put.iter().position(|it| *it == 200).unwrap();
        served[at] += 1;
        let [owner, other] = if at == 0 { [&east, &west] } else { [&west, &east] };
        assert_eq!(send(owner, "POST", &format!("{path}/add"), &json!({})).await, (200, json!(2)));
        assert_eq!(send(other, "GET", &path, &Value::Null).await.0, 421);
    }
    assert!(served.iter().all(|it| *it > 5), "{served:?}");
}

#[tokio::test]
async fn calls_of_other_members_are_answered_with_the_member() {
    let west = grid(2).await;
    let id = id_of(&west, 1);
    let path = format!("/objects/{id}");
    let state = json!({"count": 1});
    for (method, path, body) in [
        ("GET", path.clone(), Value::Null),
        ("GET", format!("{path}?stale=true"), Value::Null),
        ("PUT", path.clone(), state.clone()),
        ("PATCH", path.clone(), state.clone()),
        ("DELETE", path.clone(), Value::Null),
        ("POST", format!("{path}/add"), json!({})),
        ("POST", format!("{path}/both"), json!({})),
        ("POST", "/objects:batchGet".to_owned(), json!({"ids": [id_of(&west, 2), id]})),
    ] {
        let (status, problem) = send(&west, method, &path, &body).await;
        assert_eq!((status, &problem["reason"]), (421, &json!("OTHER_MEMBER")), "{method} {path}");
        let place = ["member", "cluster", "environment", "url"].map(|it| problem[it].clone());
        assert_eq!(json!(place), json!([1, "east", "prod", "http://east:8083"]));
        let detail = format!(
            "the object {id:?} belongs to member 1 in cluster east, environment prod, at http://east:8083"
        );
        assert_eq!(problem["detail"], detail.as_str());
    }
    // The address is optional.
    let east = grid(1).await;
    let path = format!("/objects/{}", id_of(&east, 2));
    let problem = send(&east, "GET", &path, &Value::Null).await.1;
    assert_eq!((&problem["cluster"], problem.get("url")), (&json!("west"), None));
}

#[tokio::test]
async fn grpc_calls_of_other_members_are_answered_with_the_member() {
    let west = grid(2).await;
    let id = id_of(&west, 1);
    let request = GetObjectRequest { id, ..GetObjectRequest::default() };
    let objects = grpc::objects(west, Access::Internal);
    let status = objects.get_object(tonic::Request::new(request)).await.unwrap_err();
    let info = status.get_details_error_info().unwrap();
    assert_eq!((status.code(), info.reason.as_str()), (Code::FailedPrecondition, "OTHER_MEMBER"));
    let place = ["member", "cluster", "environment", "url"].map(|it| info.metadata[it].as_str());
    assert_eq!(place, ["1", "east", "prod", "http://east:8083"]);
}

#[tokio::test]
async fn new_objects_belong_to_the_member() {
    for member in [1, 2] {
        let grid = grid(member).await;
        for _ in 0..10 {
            let (status, object) = send(&grid, "POST", "/objects", &json!({})).await;
            assert_eq!(status, 201);
            grid.class().check_member("c", object["id"].as_str().unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn a_step_of_a_macro_fails_for_an_object_of_another_member() {
    let east = grid(1).await;
    let path = format!("/objects/{}", id_of(&east, 1));
    assert_eq!(send(&east, "PUT", &path, &json!({"count": 0})).await.0, 200);
    let args = json!({"other": id_of(&east, 2)});
    let (status, problem) = send(&east, "POST", &format!("{path}/both"), &args).await;
    let cause = (&problem["reason"], &problem["cause"]);
    assert_eq!((status, cause), (409, (&json!("STEP_FAILED"), &json!("OTHER_MEMBER"))));
    assert_eq!(problem.get("member"), None, "the object of the macro is here");
    // The step before it is stored.
    assert_eq!(send(&east, "GET", &path, &Value::Null).await.1["state"], json!({"count": 1}));
}

#[tokio::test]
async fn one_member_has_the_only_object_of_a_singleton() {
    let mut statuses = Vec::new();
    for member in [1, 2] {
        let grid = grid(member).await;
        let singleton = json!({"stateType": "SINGLETON"});
        let class: Class = serde_json::from_value(singleton).unwrap();
        let own = Class { state_type: class.state_type, ..self::class(member, &[2]).await };
        grid.set_class(own);
        statuses.push(send(&grid, "GET", "/objects/singleton", &Value::Null).await.0);
    }
    assert_eq!(statuses, [421, 200]);
}

/// A grid that has had all objects, and keeps only those of member 1.
async fn divided() -> (Grid, BTreeSet<String>) {
    let class = class(1, &[1, 2, 1, 2]).await;
    let alone = Class { membership: None, ..class.clone() };
    let grid = Grid::new(Store::memory(), alone);
    for number in 0..40 {
        let id = ObjectId::parse(&format!("object-{number:02}")).unwrap();
        grid.put(None, &id, serde_json::Map::new(), Expected::Absent).await.unwrap();
    }
    let ids = (0..40).map(|it| format!("object-{it:02}"));
    let own = ids.filter(|id| class.has_object("c", id)).collect();
    grid.set_class(class);
    (grid, own)
}

#[tokio::test]
async fn lists_have_only_objects_of_the_member() {
    let (grid, own) = divided().await;
    assert!((5..35).contains(&own.len()), "{own:?}");
    for limit in [1, 3, 16, 1000] {
        let (mut found, mut after) = (BTreeSet::new(), None);
        loop {
            let page = grid.list(None, "", after.as_deref(), limit).await.unwrap();
            assert!(page.objects.len() <= limit);
            found.extend(page.objects.into_iter().map(|it| it.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, own, "{limit}");
    }
    let streamed: Vec<_> = grid.list_stream(None, "").unwrap().try_concat().await.unwrap();
    assert_eq!(streamed.into_iter().map(|it| it.id).collect::<BTreeSet<_>>(), own);
}

#[tokio::test]
async fn watches_have_only_objects_of_the_member() {
    let (grid, own) = divided().await;
    let mut watch = std::pin::pin!(grid.watch_stream(None, "").unwrap());
    let mut found = BTreeSet::new();
    'synced: loop {
        for event in watch.next().await.unwrap().unwrap() {
            match event {
                WatchEvent::Created(object) => assert!(found.insert(object.id)),
                WatchEvent::Synced => break 'synced,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(found, own);
    // Another member's object, stored while the grid had no members.
    let before = grid.class();
    let alone = Class { membership: None, ..(*before).clone() };
    grid.set_class(alone);
    let elsewhere = ObjectId::parse(&id_in(&before, false)).unwrap();
    grid.put(None, &elsewhere, serde_json::Map::new(), Expected::Anything).await.unwrap();
    grid.set_class((*before).clone());
    let here = ObjectId::parse(&id_in(&before, true)).unwrap();
    grid.put(None, &here, serde_json::Map::new(), Expected::Anything).await.unwrap();
    let events = watch.next().await.unwrap().unwrap();
    let [WatchEvent::Created(object)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(object.id, here.as_str());
}

/// The id of a new object that the member has, or hasn't.
fn id_in(class: &Class, is_own: bool) -> String {
    (0..100).map(|it| format!("new-{it}")).find(|id| class.has_object("c", id) == is_own).unwrap()
}

#[tokio::test]
async fn backups_have_only_objects_of_the_member() {
    let (grid, own) = divided().await;
    let request = Request::post("/backup").body(Body::empty()).unwrap();
    let response = backup::router(grid, Access::Internal).oneshot(request).await.unwrap();
    let backup = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8(backup.to_vec()).unwrap();
    let found = text.lines().filter_map(|it| Some(it.split_once("\"o/c/")?.1.split_once('"')?.0));
    assert_eq!(found.map(str::to_owned).collect::<BTreeSet<_>>(), own);
    let restore = async |member: i32, query: &str| {
        let grid = self::grid(member).await;
        let request =
            Request::post(format!("/restore{query}")).body(Body::from(text.clone())).unwrap();
        let response = backup::router(grid, Access::Internal).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(restore(1, "").await.0, 200);
    let (status, problem) = restore(2, "").await;
    assert!(status == 400 && problem.contains("belongs to member 1"), "{status} {problem}");
    let skipped = json!({"records": 0, "skipped": own.len(), "restoredBefore": false}).to_string();
    assert_eq!(restore(2, "?others=skip").await, (200, skipped));
    assert_eq!(restore(2, "?others=x").await.0, 400);
}

#[tokio::test]
async fn a_document_with_unknown_members_is_rejected() {
    let class = class(1, &[1, 2]).await;
    let with = |change: &dyn Fn(&mut crate::class::Membership)| {
        let mut class = class.clone();
        change(class.membership.as_mut().unwrap());
        class.validate().unwrap_err()
    };
    assert!(with(&|it| it.member = 3).contains("member 3 is not in members"));
    let unknown = with(&|it| it.partitions.get_mut("c").unwrap().push(7));
    assert!(unknown.contains("unknown member 7"), "{unknown}");
    assert!(with(&|it| it.partitions.get_mut("c").unwrap().clear()).contains("no partitions"));
    // A collection that the document doesn't have is not served.
    let missing = Class { collections: vec!["d".to_owned()], ..class };
    assert_eq!(missing.check_member("d", "a").unwrap_err().reason(), "UNAVAILABLE");
}

proptest! {
    #[test]
    fn exactly_one_member_has_an_object(
        id in "[^/]{1,50}",
        owners in proptest::collection::vec(1..6i32, 1..300),
    ) {
        let members: Vec<_> = (1..6).map(|id| json!({"id": id, "cluster": "c"})).collect();
        let serving = (1..6).filter(|member| {
            let membership = json!({"member": member, "members": members, "partitions": {"c": owners}});
            let class = json!({"collections": ["c"], "membership": membership});
            let class: Class = serde_json::from_value(class).unwrap();
            class.has_object("c", &id)
        });
        prop_assert_eq!(serving.count(), 1);
    }
}
