//! HTTP without TLS.

use axum::http::{StatusCode, Version, header::CONTENT_TYPE};

use super::{
    client::{Client, get},
    options, router, start,
};
use crate::{Access, Error, Options, bind};

#[tokio::test]
async fn serves_http1_and_http2_on_one_port() {
    let server = start(options(), router(Access::open())).await;
    for (h2, version) in [(false, Version::HTTP_11), (true, Version::HTTP_2)] {
        let response = Client::plain(server.address, h2).await.get("/guarded").await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, version));
    }
}

#[tokio::test]
async fn fallback_answers_rest_and_grpc() {
    let server = start(options(), router(Access::open())).await;
    let mut client = Client::plain(server.address, true).await;
    let response = client.get("/nowhere").await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    let document: serde_json::Value = serde_json::from_str(response.body()).unwrap();
    assert_eq!(document["type"], "about:blank");
    assert_eq!(document["status"], 404);

    let request = get("/package.Service/Other").header(CONTENT_TYPE, "application/grpc+proto");
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "12");
}

#[tokio::test]
async fn bind_rejects_bad_options_and_addresses_in_use() {
    let error = bind(Options { max_connections: 0, ..options() }).await.err().unwrap();
    assert_eq!(error.to_string(), "max_connections must be at least 1");
    let server = start(options(), router(Access::open())).await;
    let error = bind(Options { address: server.address, ..options() }).await.err().unwrap();
    assert!(matches!(error, Error::Listen { address, .. } if address == server.address));
}
