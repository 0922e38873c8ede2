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
    let huge = json!({"count": 0, "note": "x".repeat(MAX_BODY)});
    let cases: [Case<'_>; 20] = [
        ("GET", "/objects/b", &[], &none, 404, "NOT_FOUND"),
        ("GET", &long, &[], &none, 400, "INVALID_ID"),
        ("GET", "/objects/a%2Fb", &[], &none, 400, "INVALID_ID"),
        ("GET", "/objects/a?key=count", &[], &none, 400, "INVALID_REQUEST"),
        ("GET", "/objects?limit=x", &[], &none, 400, "INVALID_REQUEST"),
        ("GET", "/collections/None/objects/a", &[], &none, 404, "UNKNOWN_COLLECTION"),
        ("PUT", "/objects/a", &[], &wrong, 422, "INVALID_STATE"),
        ("PUT", "/objects/a", &[], &json!([1]), 400, "INVALID_REQUEST"),
        ("PUT", "/objects/a", &[], &large, 413, "TOO_LARGE"),
        ("PUT", "/objects/a", &[], &huge, 413, "TOO_LARGE"),
        ("POST", "/objects/a/add", &[], &huge, 413, "TOO_LARGE"),
        ("PUT", "/objects/a", &[("if-match", "W/x")], &wrong, 400, "INVALID_HEADER"),
        ("PUT", "/objects/a", &[("if-match", "")], &wrong, 400, "INVALID_HEADER"),
        ("GET", "/objects/a?resolve=none", &[], &none, 400, "UNKNOWN_REFERENCE"),
        ("GET", "/objects?watch=true&limit=1", &[], &none, 400, "INVALID_REQUEST"),
        ("POST", "/objects:batchGet", &[], &json!({"ids": ["a/b"]}), 400, "INVALID_ID"),
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

#[tokio::test]
async fn if_match_has_several_tags() {
    let api = api().await;
    let (_, headers, _) = send(&api, "PUT", "/objects/a", &[], &json!({"count": 1})).await;
    let tag = tag(&headers);
    let state = json!({"count": 2});
    for others in ["\"x\", W/\"y\"", "\"00000000-1\"", &format!("W/{tag}")] {
        let (status, _, _) = send(&api, "PUT", "/objects/a", &[("if-match", others)], &state).await;
        assert_eq!(status, 412, "{others}");
    }
    let several = format!("\"x\", {tag} , W/\"y\"");
    let (status, _, _) = send(&api, "PUT", "/objects/a", &[("if-match", &several)], &state).await;
    assert_eq!(status, 200);
    let (status, _, _) = send(&api, "PUT", "/objects/a", &[("if-match", &several)], &state).await;
    assert_eq!(status, 412);
}

/// A class whose method `call` makes the request in its arguments to the grid, with its call token.
async fn calling_class() -> (Grid, String) {
    let call = async |headers: HeaderMap, Json(call): Json<Value>| {
        let args = &call["args"];
        let client = crate::http_client::HttpClient::new();
        let mut request = Request::builder()
            .method(args["method"].as_str().unwrap())
            .uri(args["url"].as_str().unwrap());
        if args["anonymous"].is_null() {
            request = request.header("x-oaas-call-token", &headers["x-oaas-call-token"]);
        }
        let body = http_body_util::Full::from(args["body"].to_string());
        let (status, body) = client.send(request.body(body).unwrap(), 1 << 20).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        Json(json!({"result": {"status": status.as_u16(), "body": body}}))
    };
    let secret = async || Json(json!({"result": "secret"}));
    let functions = Router::new().route("/call", post(call)).route("/secret", post(secret));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, functions).await.unwrap() });
    let class = serde_json::from_value(json!({
        "name": "caller",
        "collections": ["C"],
        "methods": {
            "call": {"url": format!("{url}/call"), "access": "PUBLIC"},
            "internal": {"url": format!("{url}/secret")},
            "secret": {"url": format!("{url}/secret"), "access": "PRIVATE"},
        },
    }));
    let grid = Grid::new(Store::memory(), class.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let api = router(grid.clone(), Access::Internal);
    tokio::spawn(async { axum::serve(listener, api).await.unwrap() });
    (grid, address)
}

#[tokio::test]
async fn functions_are_recognised_by_their_call_token() {
    let (grid, address) = calling_class().await;
    let inside = router(grid.clone(), Access::Internal);
    let outside = router(grid.clone(), Access::Public);
    for id in ["a", "b"] {
        send(&inside, "PUT", &format!("/objects/{id}"), &[], &json!({})).await;
    }
    let nested = async |path: &str, method: &str, more: Value| {
        let mut args = json!({"url": format!("{address}{path}"), "method": method, "body": {}});
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, _, body) = send(&outside, "POST", "/objects/a/call", &[], &args).await;
        assert_eq!(status, 200, "{body}");
        (body["status"].as_u64().unwrap(), body["body"]["reason"].as_str().unwrap_or("").to_owned())
    };
    assert_eq!(nested("/objects/b/secret", "POST", json!({})).await, (200, String::new()));
    let anonymous = json!({"anonymous": true});
    let (status, reason) = nested("/objects/b/secret", "POST", anonymous).await;
    assert_eq!((status, reason.as_str()), (403, "FORBIDDEN"));
    // The call of `a` has its turn, so that these would wait for themselves.
    for (path, method) in
        [("/objects/a/secret", "POST"), ("/objects/a", "PUT"), ("/objects/a", "DELETE")]
    {
        let (status, reason) = nested(path, method, json!({})).await;
        assert_eq!((status, reason.as_str()), (409, "REENTRANT"), "{method} {path}");
    }
    let (status, _) = nested("/objects/a", "GET", json!({})).await;
    assert_eq!(status, 200);

    let none = Value::Null;
    for (api, path, expected) in [
        (&inside, "/objects/b/internal", 200),
        (&inside, "/objects/b/secret", 403),
        (&outside, "/objects/b/internal", 403),
        (&outside, "/objects/b/secret", 403),
    ] {
        assert_eq!(send(api, "POST", path, &[], &none).await.0, expected, "{path}");
    }
    assert_eq!(send(&outside, "GET", "/events/parked", &[], &none).await.0, 403);
    // A token counts only inside of the cluster.
    let origin = crate::CallOrigin { expires: Some(i64::MAX), ..crate::CallOrigin::default() };
    let token = grid.tokens.header(&origin);
    let token = [("x-oaas-call-token", token.as_str())];
    assert_eq!(send(&inside, "POST", "/objects/b/secret", &token, &none).await.0, 200);
    assert_eq!(send(&outside, "POST", "/objects/b/secret", &token, &none).await.0, 403);
    let old = crate::CallOrigin { expires: Some(1), ..origin };
    let old = grid.tokens.header(&old);
    let (status, _, problem) =
        send(&inside, "GET", "/objects/b", &[("x-oaas-call-token", &old)], &none).await;
    assert_eq!((status, &problem["reason"]), (403, &json!("CALL_ENDED")));

    assert_eq!(grid.class().data_access, Access::Internal, "unless the class says otherwise");
    assert_eq!(send(&inside, "GET", "/objects/b", &[], &none).await.0, 200);
    for (method, path) in [
        ("GET", "/objects/b"),
        ("GET", "/objects"),
        ("PUT", "/objects/b"),
        ("PATCH", "/objects/b"),
        ("DELETE", "/objects/b"),
        ("POST", "/objects"),
        ("POST", "/objects:batchGet"),
    ] {
        assert_eq!(send(&outside, method, path, &[], &json!({})).await.0, 403, "{method} {path}");
    }
}

#[tokio::test]
async fn objects_are_read_in_batches_and_streams() {
    let api = api().await;
    for (id, count) in [("a", 1), ("b", 2)] {
        send(&api, "PUT", &format!("/objects/{id}"), &[], &json!({"count": count})).await;
    }
    let ids = json!({"ids": ["b", "x", "a"]});
    let (status, _, batch) = send(&api, "POST", "/objects:batchGet", &[], &ids).await;
    assert_eq!((status, &batch["missing"]), (200, &json!(["x"])));
    assert_eq!(batch["objects"][0]["state"], json!({"count": 2}));
    let many = json!({"ids": vec!["a"; 1001]});
    assert_eq!(send(&api, "POST", "/objects:batchGet", &[], &many).await.0, 413);

    let lines = |body: &[u8]| -> Vec<Value> {
        let text = std::str::from_utf8(body).unwrap();
        text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
    };
    let request = Request::get("/objects").header("accept", "application/x-ndjson");
    let response = api.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let all = lines(&response.into_body().collect().await.unwrap().to_bytes());
    assert_eq!((all.len(), &all[1]["id"]), (2, &json!("b")));

    let request = Request::get("/objects?watch=true&prefix=a").body(Body::empty()).unwrap();
    let mut watch = api.clone().oneshot(request).await.unwrap().into_body();
    let first = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let types: Vec<_> = lines(&first).iter().map(|it| it["type"].clone()).collect();
    assert_eq!(types, [json!("CREATED"), json!("SYNCED")]);
    send(&api, "DELETE", "/objects/a", &[], &Value::Null).await;
    let next = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    let next = lines(&next);
    assert_eq!((&next[0]["type"], &next[0]["object"]["id"]), (&json!("DELETED"), &json!("a")));
}

#[tokio::test]
async fn references_are_resolved() {
    let other = api().await;
    send(&other, "PUT", "/objects/x%20y", &[], &json!({"count": 7})).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, other).await.unwrap() });
    let class = serde_json::from_value(json!({
        "name": "referring",
        "collections": ["R"],
        "dataAccess": "PUBLIC",
        "references": {
            "one": {"class": "counter", "url": url, "access": "PUBLIC"},
            "many": {"class": "counter", "url": url},
            "gone": {"class": "gone", "url": "http://127.0.0.1:1"},
        },
    }));
    let grid = Grid::new(Store::memory(), class.unwrap());
    let api = router(grid.clone(), Access::Internal);
    let state = json!({"one": "x y", "many": ["x y", "none"], "gone": "z", "number": 1});
    send(&api, "PUT", "/objects/a", &[], &state).await;
    let path = "/objects/a?resolve=one,many,gone&keys=number";
    let (status, headers, body) = send(&api, "GET", path, &[], &Value::Null).await;
    assert_eq!((status, &body["state"]), (200, &json!({"number": 1})));
    assert!(headers.contains_key(ETAG));
    assert_eq!(body["resolved"]["one"]["state"], json!({"count": 7}));
    assert_eq!(body["resolved"]["many"][0]["state"], json!({"count": 7}));
    assert_eq!(
        (&body["resolved"]["many"][1], &body["resolved"]["gone"]),
        (&Value::Null, &Value::Null)
    );
    let unresolved = body["unresolved"].as_array().unwrap();
    assert_eq!(unresolved.len(), 2);
    assert!(unresolved[0]["reason"].as_str().unwrap().contains("404"), "{body}");
    let outside = router(grid, Access::Public);
    let public = send(&outside, "GET", "/objects/a?resolve=one", &[], &Value::Null).await;
    assert_eq!(public.0, 200);
    assert_eq!(send(&outside, "GET", "/objects/a?resolve=many", &[], &Value::Null).await.0, 403);
}
