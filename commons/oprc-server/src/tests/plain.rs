//! HTTP without TLS.

use axum::http::{StatusCode, Version, header::CONTENT_TYPE};

use super::{
    client::{Client, get},
    options, router, start,
};
use crate::{Access, Error, Options, bind};

#[tokio::test]
async fn both_versions_are_spoken_on_one_port() {
    let server = start(options(), router(Access::open())).await;
    for (h2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let answer = Client::plain(server.address, h2).await.get("/guarded").await.unwrap();
        assert_eq!((answer.status(), answer.version()), (StatusCode::OK, version));
    }
}

#[tokio::test]
async fn an_unknown_path_is_answered_as_it_was_asked() {
    let server = start(options(), router(Access::open())).await;
    let mut client = Client::plain(server.address, true).await;
    let answer = client.get("/nowhere").await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/problem+json");
    let document: serde_json::Value = serde_json::from_str(answer.body()).unwrap();
    assert_eq!(document["type"], "about:blank");
    assert_eq!(document["status"], 404);

    let request = get("/package.Service/Other").header(CONTENT_TYPE, "application/grpc+proto");
    let answer = client.send(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/grpc");
    assert_eq!(answer.headers()["grpc-status"], "12");
}

#[tokio::test]
async fn what_cannot_be_served_is_said_at_once() {
    let error = bind(Options { max_connections: 0, ..options() }).await.err().unwrap();
    assert_eq!(error.to_string(), "max_connections must be at least 1");
    let server = start(options(), router(Access::open())).await;
    let error = bind(Options { address: server.address, ..options() }).await.err().unwrap();
    assert!(matches!(error, Error::Listen { address, .. } if address == server.address));
}
