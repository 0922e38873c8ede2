use axum::{
    Json,
    body::Body,
    http::{
        HeaderMap, Request, StatusCode,
        header::{ETAG, LOCATION},
    },
};
use http_body_util::BodyExt as _;
use oprc_cp_storage::Store;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use super::{calls::REPEATED, *};

/// The API of a grid whose method `add` adds to `count`.
async fn api() -> Router {
    let add = async |Json(call): Json<Value>| {
        let count = call["object"]["state"]["count"].as_i64().unwrap_or_default();
        let by = call["args"]["by"].as_i64().unwrap_or(1);
        Json(json!({"object": {"state": {"count": count + by}}, "result": {"count": count + by}}))
    };
    let refuse = async || (StatusCode::CONFLICT, "sold out");
    let functions = Router::new().route("/add", post(add)).route("/refuse", post(refuse));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, functions).await.unwrap() });
    let class = serde_json::from_value(json!({
        "name": "counter",
        "collections": ["Counter", "Archive"],
        "keySpecs": [
            {"name": "count", "type": "INTEGER"}, {"name": "note", "type": "STRING", "optional": true},
        ],
        "methods": {
            "add": {"url": format!("{url}/add")},
            "refuse": {"url": format!("{url}/refuse")},
            "secret": {"url": format!("{url}/add"), "access": "PRIVATE"},
        },
    }));
    router(Grid::new(Store::memory(), class.unwrap()), Access::Internal)
}

/// Status, headers and body of the response.
async fn send(
    api: &Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> (u16, HeaderMap, Value) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = api.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (parts.status.as_u16(), parts.headers, body)
}

fn tag(headers: &HeaderMap) -> String {
    headers[ETAG].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn objects_have_etags() {
    let api = api().await;
    let none = &Value::Null;
    let state = json!({"count": 1, "note": "a"});
    let only_new = [("if-none-match", "*")];
    let (status, headers, body) = send(&api, "PUT", "/objects/a", &only_new, &state).await;
    assert_eq!((status, &body["id"], &body["state"]), (200, &json!("a"), &state));
    let first = tag(&headers);
    assert_eq!(send(&api, "PUT", "/objects/a", &only_new, &state).await.0, 412);
    let (status, headers, _) =
        send(&api, "PATCH", "/objects/a", &[("if-match", &first)], &json!({"count": 2})).await;
    assert_eq!(status, 200);
    assert_ne!(tag(&headers), first);
    let (status, _, body) = send(&api, "GET", "/objects/a?keys=count", &[], none).await;
    assert_eq!((status, &body["state"]), (200, &json!({"count": 2})));
    let (status, _, problem) =
        send(&api, "DELETE", "/objects/a", &[("if-match", &first)], none).await;
    assert_eq!((status, &problem["reason"]), (412, &json!("CHANGED")));
    assert_eq!(send(&api, "DELETE", "/objects/a", &[("if-match", "*")], none).await.0, 204);
    assert_eq!(send(&api, "GET", "/objects/a", &[], none).await.0, 404);

    let (status, headers, body) =
        send(&api, "POST", "/collections/Archive/objects", &[], &state).await;
    assert_eq!(status, 201);
    let location = headers[LOCATION].to_str().unwrap();
    let (status, _, found) = send(&api, "GET", location, &[], none).await;
    assert_eq!((status, &found), (200, &body));
    let (_, _, page) = send(&api, "GET", "/objects", &[], none).await;
    assert_eq!(page, json!({"objects": []}));
    let (_, _, page) = send(&api, "GET", "/collections/Archive/objects?limit=1", &[], none).await;
    assert_eq!(page["objects"], json!([body]));
}

#[tokio::test]
async fn methods_are_called_once_for_an_idempotency_key() {
    let api = api().await;
    send(&api, "PUT", "/objects/a", &[], &json!({"count": 0})).await;
    let once = [("idempotency-key", "k")];
    let (status, headers, body) =
        send(&api, "POST", "/objects/a/add", &once, &json!({"by": 5})).await;
    assert_eq!((status, body), (200, json!({"count": 5})));
    assert!(headers.get(ETAG).is_some() && headers.get(REPEATED).is_none());
    let (status, headers, body) =
        send(&api, "POST", "/objects/a/add", &once, &json!({"by": 5})).await;
    assert_eq!((status, body), (200, json!({"count": 5})));
    assert_eq!(headers[REPEATED], "true");
    let (status, _, problem) = send(&api, "POST", "/objects/a/add", &once, &json!({"by": 6})).await;
    assert_eq!((status, &problem["reason"]), (422, &json!("IDEMPOTENCY_KEY_REUSED")));
    let (_, _, body) = send(&api, "POST", "/objects/a/add", &[], &Value::Null).await;
    assert_eq!(body, json!({"count": 6}));
}

/// Method, path, headers and body of a request, status and reason of the response.
type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a Value, u16, &'a str);

#[tokio::test]
async fn failures_are_problem_documents() {
    let api = api().await;
    send(&api, "PUT", "/objects/a", &[], &json!({"count": 0})).await;
    let (none, long) = (Value::Null, format!("/objects/{}", "x".repeat(201)));
    let large = json!({"count": 0, "note": "x".repeat(300 << 10)});
    let wrong = json!({"count": "1"});
    let cases: [Case<'_>; 14] = [
        ("GET", "/objects/b", &[], &none, 404, "NOT_FOUND"),
        ("GET", &long, &[], &none, 400, "INVALID_ID"),
        ("GET", "/objects/a%2Fb", &[], &none, 400, "INVALID_ID"),
        ("GET", "/objects/a?key=count", &[], &none, 400, "INVALID_REQUEST"),
        ("GET", "/objects?limit=x", &[], &none, 400, "INVALID_REQUEST"),
        ("GET", "/collections/None/objects/a", &[], &none, 404, "UNKNOWN_COLLECTION"),
        ("PUT", "/objects/a", &[], &wrong, 422, "INVALID_STATE"),
        ("PUT", "/objects/a", &[], &json!([1]), 400, "INVALID_REQUEST"),
        ("PUT", "/objects/a", &[], &large, 413, "TOO_LARGE"),
        ("PUT", "/objects/a", &[("if-match", "W/x")], &wrong, 400, "INVALID_HEADER"),
        ("POST", "/objects/a/none", &[], &none, 404, "UNKNOWN_METHOD"),
        ("POST", "/objects/a/secret", &[], &none, 403, "FORBIDDEN"),
        ("POST", "/objects/a/refuse", &[], &none, 409, "REFUSED_BY_FUNCTION"),
        ("POST", "/events/parked/retry", &[], &json!({"key": "e/x/0"}), 404, "NOT_FOUND"),
    ];
    for (method, path, headers, body, status, reason) in cases {
        let (found, headers, problem) = send(&api, method, path, headers, body).await;
        assert_eq!(
            (found, &problem["reason"]),
            (status, &json!(reason)),
            "{method} {path}: {problem}"
        );
        assert_eq!(headers["content-type"], "application/problem+json");
        assert!(problem["detail"].as_str().is_some_and(|it| !it.is_empty()), "{problem}");
    }
    let (_, _, problem) = send(&api, "PUT", "/objects/a", &[], &wrong).await;
    assert_eq!(problem["problems"], json!(["count must be an integer"]));
    let (status, _, parked) = send(&api, "GET", "/events/parked", &[], &none).await;
    assert_eq!((status, parked), (200, json!([])));
}
