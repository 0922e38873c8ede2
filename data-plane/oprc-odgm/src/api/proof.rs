//! Random requests to the API: no panic, no status 500, and nothing half written.

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode},
    response::{IntoResponse as _, Response},
    routing::post,
};
use http_body_util::BodyExt as _;
use oprc_cp_storage::Store;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use crate::{
    Grid, Object, ObjectId,
    class::{Access, Class},
    router,
};

#[path = "../../../../tests/support/proof.rs"]
#[allow(dead_code, unreachable_pub)]
mod proofs;

const SEED: u64 = 20_261_118;
const SAMPLE: usize = 20_000;
const FULL: usize = 1_000_000;

fn pick<'a>(random: &mut fastrand::Rng, all: &[&'a str]) -> &'a str {
    all[random.usize(..all.len())]
}

/// A function that answers anything.
async fn answer(body: Bytes) -> Response {
    // The same for the same call, whatever the order of calls is.
    let mut seed = body.iter().fold(SEED, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
    seed ^= seed >> 29;
    let random = &mut fastrand::Rng::with_seed(seed);
    let answers = [
        r#"{"object": {"state": {"count": 1}}, "result": 1}"#,
        r#"{"object": {"state": {"count": "x"}}, "result": 1}"#,
        r#"{"object": {"id": "other", "state": {"count": 2}}}"#,
        r#"{"object": {"state": {}}}"#,
        r#"{"object": {"state": {"count": 3, "note": "n"}}, "result": {"id": "b"}}"#,
        r#"{"object": {"state": {"count": 4, "more": 1}}}"#,
        r#"{"object": null, "result": [1, 2]}"#,
        r#"{"result": 18446744073709551616}"#,
        r#"{"result": {"result": "b"}}"#,
        r#"{"objet": {}}"#,
        "[]",
        "",
        "<html>",
        "{\"result\": \"\u{0}",
        "nul",
    ];
    match random.u32(..20) {
        0 => {
            let status = StatusCode::from_u16(random.u16(200..600)).unwrap();
            (status, pick(random, &answers)).into_response()
        }
        1 => {
            let length = random.usize(..64);
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            bytes.into_response()
        }
        2 => "[".repeat(random.usize(..1000)).into_response(),
        3 if random.u32(..20) == 0 => "x".repeat(600 << 10).into_response(),
        _ => pick(random, &answers).to_owned().into_response(),
    }
}

async fn grid() -> Grid {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let functions = Router::new().route("/", post(answer));
    tokio::spawn(async { axum::serve(listener, functions).await.unwrap() });
    let method = |more: Value| {
        let mut method = json!({"url": url, "access": "PUBLIC", "timeoutMs": 2000});
        method.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        method
    };
    let class: Class = serde_json::from_value(json!({
        "name": "fuzzed",
        "collections": ["C", "D/é"],
        "keySpecs": [
            {"name": "count", "type": "INTEGER"},
            {"name": "note", "type": "STRING", "optional": true},
            {"name": "owner", "type": "STRING", "optional": true, "immutable": true},
        ],
        "methods": {
            "change": method(json!({})),
            "read": method(json!({"readOnly": true})),
            "same": method(json!({"immutable": true})),
            "free": method(json!({"stateless": true})),
            "guarded": method(json!({"condition": "object.state.count > 1 && args.by < 5"})),
            "limited": method(json!({"maxConcurrency": 1})),
            "hidden": method(json!({"access": "PRIVATE"})),
        },
        "macros": {
            "both": {"access": "PUBLIC", "steps": [
                {"name": "first", "method": "change", "argRefs": {"x": "$args.x"}},
                {"method": "read", "target": "first", "inputs": ["$", "first"]},
                {"method": "both", "target": "first.result"},
            ]},
        },
        "references": {"owner": {"class": "gone", "url": "http://127.0.0.1:1"}},
    }))
    .unwrap();
    class.validate().unwrap();
    Grid::open(Store::memory(), class).await.unwrap()
}

const IDS: [&str; 12] =
    ["a", "b", "c", "é", "%C3%A9", "a%20b", "%2F", "..", "%00", "%FF", "", "other"];
const METHODS: [&str; 9] =
    ["change", "read", "same", "free", "guarded", "limited", "hidden", "both", "none"];
const QUERIES: [&str; 12] = [
    "",
    "?keys=count",
    "?keys=",
    "?resolve=owner",
    "?resolve=x,,",
    "?limit=1",
    "?limit=-1",
    "?after=b&limit=99999999999999999999",
    "?prefix=a&after=%00",
    "?prefix=%FF",
    "?watch=maybe",
    "?x=y",
];
const BODIES: [&str; 14] = [
    "",
    "{}",
    r#"{"count": 1}"#,
    r#"{"count": 2, "owner": "o"}"#,
    r#"{"count": 3, "owner": "p", "note": null}"#,
    r#"{"count": 1.5}"#,
    r#"{"count": 5, "unknown": []}"#,
    r#"{"by": 3, "x": {"y": [1]}}"#,
    r#"{"ids": ["a", "b", "x"]}"#,
    r#"{"ids": ["a/b"]}"#,
    r#"{"key": "e/o/C/a/0000000000000000"}"#,
    "[1",
    "null",
    "\u{feff}{}",
];
const HEADERS: [(&str, &str); 14] = [
    ("if-match", "*"),
    ("if-match", "\"00000000-1\", \"x\""),
    ("if-match", "x"),
    ("if-match", ""),
    ("if-none-match", "*"),
    ("if-none-match", "\"x\""),
    ("idempotency-key", "k1"),
    ("idempotency-key", "k2"),
    ("idempotency-key", "a b"),
    ("idempotency-key", ""),
    ("x-oaas-call-token", "e30.e30"),
    ("x-oaas-call-token", ",,,"),
    ("accept", "application/x-ndjson"),
    ("traceparent", "00-x"),
];

struct Sent {
    request: Request<Body>,
    text: String,
    /// The object that it may change; none if it may change any.
    object: Option<(Option<String>, String)>,
}

fn garbage(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = random.usize(..200);
    (0..length).map(|_| random.u8(..)).collect()
}

fn request(random: &mut fastrand::Rng) -> Option<Sent> {
    // Most requests are for the same few objects, so that these exist.
    let ids: &[&str] = if random.u32(..4) > 0 { &["a", "b", "c"] } else { &IDS };
    let (id, name) = (pick(random, ids), pick(random, &METHODS));
    let collection = match random.u32(..6) {
        0 => Some("D%2F%C3%A9"),
        1 => Some("none"),
        _ => None,
    };
    let prefix = collection.map_or(String::new(), |it| format!("/collections/{it}"));
    let mut object = None;
    let path = match random.u32(..10) {
        0 => format!("{prefix}/objects"),
        1 => format!("{prefix}/objects:batchGet"),
        2 => "/events/parked".to_owned(),
        3 => format!("/events/parked/{}", pick(random, &["retry", "discard", "x"])),
        4 | 5 => {
            object = Some(id);
            format!("{prefix}/objects/{id}")
        }
        _ => {
            object = Some(id).filter(|_| name != "both");
            format!("{prefix}/objects/{id}/{name}")
        }
    };
    let methods: &[&str] = match path.rsplit('/').next() {
        Some(last) if METHODS.contains(&last) => &["POST"],
        Some("objects:batchGet" | "retry" | "discard") => &["POST"],
        _ => &["GET", "PUT", "PUT", "PUT", "PATCH", "DELETE", "HEAD"],
    };
    let any = ["GET", "PUT", "PATCH", "DELETE", "POST", "HEAD", "OPTIONS", "X"];
    let methods = if random.u32(..20) == 0 { &any } else { methods };
    let method = pick(random, methods);
    let query = if random.u32(..4) == 0 { pick(random, &QUERIES) } else { "" };
    let uri = format!("{path}{query}");
    let mut builder = Request::builder().method(method).uri(&uri);
    for _ in 0..random.usize(..6).saturating_sub(3) {
        let (name, value) = HEADERS[random.usize(..HEADERS.len())];
        builder = builder.header(name, value);
    }
    let body = match random.u32(..50) {
        0 => garbage(random),
        1 if random.u32(..20) == 0 => vec![b' '; (1 << 20) + 1],
        2 => "[".repeat(random.usize(..2000)).into_bytes(),
        3..25 => format!(r#"{{"count": {}, "by": 3}}"#, random.u8(..)).into_bytes(),
        25..40 => format!(r#"{{"count": {}}}"#, random.u8(..)).into_bytes(),
        _ => pick(random, &BODIES).as_bytes().to_vec(),
    };
    let text = format!("{method} {uri} {:?}", String::from_utf8_lossy(&body));
    let collection = collection.map(|it| it.replace("%2F", "/").replace("%C3%A9", "é"));
    let decoded = |id: &str| id.replace("%C3%A9", "é").replace("%20", " ");
    let object = object.map(|id| (collection, decoded(id)));
    Some(Sent { request: builder.body(Body::from(body)).ok()?, text, object })
}

async fn read(grid: &Grid, object: Option<&(Option<String>, String)>) -> Option<Object> {
    let (collection, id) = object?;
    grid.get(collection.as_deref(), &ObjectId::parse(id).ok()?).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_requests_get_answers_and_leave_valid_objects() {
    let suite = proofs::begin("random requests to the data grid", SAMPLE, FULL);
    let (grid, random) = (grid().await, &mut fastrand::Rng::with_seed(SEED));
    let apis = [Access::Internal, Access::Public].map(|it| router(grid.clone(), it));
    let (mut sent, mut changed, mut refused) = (0, 0, 0);
    while sent < suite.rounds {
        let Some(Sent { request, text, object }) = request(random) else { continue };
        sent += 1;
        let before = read(&grid, object.as_ref()).await;
        let api = apis[usize::from(random.u32(..8) == 0)].clone();
        let response = api.oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let (status, body) = (parts.status, body.collect().await.unwrap().to_bytes());
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{text}");
        let is_problem = parts
            .headers
            .get("content-type")
            .is_some_and(|it| it.as_bytes() == b"application/problem+json");
        let after = read(&grid, object.as_ref()).await;
        if status.is_success() {
            changed += usize::from(before != after);
            continue;
        }
        refused += 1;
        assert_eq!(before, after, "{status} {text}");
        // Paths and methods without a route are the node's to answer.
        if !matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
            let is_head = text.starts_with("HEAD");
            assert!(is_problem || is_head, "{status} {text}");
        }
        if is_problem && !body.is_empty() {
            let problem: Value = serde_json::from_slice(&body).unwrap();
            assert!(problem["reason"].is_string(), "{text}: {problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(!detail.contains("panic"), "{text}: {detail}");
        }
    }
    for collection in ["C", "D/é"] {
        let page = grid.list(Some(collection), "", None, 1000).await.unwrap();
        for object in page.objects {
            grid.class().check(&object.state).unwrap();
        }
    }
    assert!(changed > sent / 100 && refused > sent / 10, "{changed} of {sent}, {refused}");
    suite.held("no panic, no status 500, refused requests changed nothing");
}
