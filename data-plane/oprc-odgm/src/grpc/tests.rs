use oprc_cp_storage::Store;
use oprc_grpc::odgm::{Precondition, object_service_client::ObjectServiceClient};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

use super::*;

/// A client of a grid whose method `add` adds to `count`.
async fn client(access: Access) -> ObjectServiceClient<Channel> {
    let add = async |axum::Json(call): axum::Json<Value>| {
        let count = call["object"]["state"]["count"].as_i64().unwrap_or_default()
            + call["args"]["by"].as_i64().unwrap_or(1);
        axum::Json(json!({"object": {"state": {"count": count}}, "result": count}))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let functions = axum::Router::new().route("/", axum::routing::post(add));
    tokio::spawn(async { axum::serve(listener, functions).await.unwrap() });
    let class = serde_json::from_value(json!({
        "name": "counter", "collections": ["Counter"], "dataAccess": "PUBLIC",
        "keySpecs": [{"name": "count", "type": "INTEGER"}],
        "methods": {"add": {"url": url, "access": "PUBLIC"}, "internal": {"url": url}},
    }));
    let grid = Grid::new(Store::memory(), class.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = tonic::service::Routes::new(object_service(grid, access)).into_axum_router();
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    let endpoint = Endpoint::from_shared(address).unwrap();
    ObjectServiceClient::new(endpoint.connect().await.unwrap())
}

fn put(id: &str, state: &str) -> PutObjectRequest {
    PutObjectRequest { id: id.to_owned(), state: state.to_owned(), ..PutObjectRequest::default() }
}

fn invoke(method: &str, key: &str) -> InvokeRequest {
    InvokeRequest {
        id: "a".to_owned(),
        method: method.to_owned(),
        args: r#"{"by": 5}"#.to_owned(),
        idempotency_key: key.to_owned(),
        ..InvokeRequest::default()
    }
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|it| it.reason).unwrap_or_default()
}

#[tokio::test]
async fn objects_are_written_called_listed_and_watched() {
    let mut client = client(Access::Internal).await;
    let first = client.put_object(put("a", r#"{"count": 1}"#)).await.unwrap().into_inner();
    let called = client.invoke(invoke("add", "k")).await.unwrap().into_inner();
    assert_eq!((called.result.as_str(), called.repeated), ("6", false));
    let again = client.invoke(invoke("add", "k")).await.unwrap().into_inner();
    assert_eq!((again.result.as_str(), again.repeated), ("6", true));
    let stale = Precondition { etags: vec![first.etag], ..Precondition::default() };
    let request = PutObjectRequest { precondition: Some(stale), ..put("a", r#"{"count": 9}"#) };
    let status = client.put_object(request).await.unwrap_err();
    assert_eq!((status.code(), reason(&status)), (Code::Aborted, "CHANGED".to_owned()));
    let fresh = Precondition { etags: vec![called.etag], ..Precondition::default() };
    let patch = PatchObjectRequest {
        id: "a".to_owned(),
        changes: r#"{"count": 7}"#.to_owned(),
        precondition: Some(fresh),
        ..PatchObjectRequest::default()
    };
    assert_eq!(client.patch_object(patch).await.unwrap().into_inner().state, r#"{"count":7}"#);
    client.put_object(put("b", r#"{"count": 0}"#)).await.unwrap();
    let get = GetObjectRequest { id: "a".to_owned(), ..GetObjectRequest::default() };
    let found = client.get_object(get).await.unwrap().into_inner().object.unwrap();
    let listed = client.list_objects(ListObjectsRequest::default()).await.unwrap();
    let listed: Vec<_> = listed.into_inner().map(Result::unwrap).collect().await;
    assert_eq!((listed.len(), &listed[0]), (2, &found));
    let watch = client.watch_objects(WatchObjectsRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    for expected in [Type::Created, Type::Created, Type::Synced] {
        assert_eq!(watch.next().await.unwrap().unwrap().r#type(), expected);
    }
    let delete = DeleteObjectRequest { id: "b".to_owned(), ..DeleteObjectRequest::default() };
    client.delete_object(delete).await.unwrap();
    let deleted = watch.next().await.unwrap().unwrap();
    assert_eq!((deleted.r#type(), deleted.object.unwrap().id.as_str()), (Type::Deleted, "b"));
}

#[tokio::test]
async fn failures_have_codes_and_reasons() {
    let mut client = client(Access::Public).await;
    let missing = client.invoke(invoke("add", "")).await.unwrap_err();
    assert_eq!((missing.code(), reason(&missing)), (Code::NotFound, "NOT_FOUND".to_owned()));
    let forbidden = client.invoke(invoke("internal", "")).await.unwrap_err();
    let expected = (Code::PermissionDenied, "FORBIDDEN".to_owned());
    assert_eq!((forbidden.code(), reason(&forbidden)), expected);
    for (state, expected) in [("{", ""), ("[]", ""), (r#"{"count": "1"}"#, "INVALID_STATE")] {
        let status = client.put_object(put("a", state)).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, expected));
    }
    let both = Precondition { absent: true, exists: true, ..Precondition::default() };
    let request = PutObjectRequest { precondition: Some(both), ..put("a", r#"{"count": 1}"#) };
    assert_eq!(client.put_object(request).await.unwrap_err().code(), Code::InvalidArgument);
    let invalid = client.put_object(put("", "{}")).await.unwrap_err();
    assert_eq!(reason(&invalid), "INVALID_ID");
}
