//! Authentication of requests.

use std::fs;

use axum::http::{
    Request, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE},
};

use super::{
    client::{Client, get, get_with_tls},
    options, pki,
    pki::{Authority, replace},
    router, start,
};
use crate::{Access, Options, TokenFile};

#[tokio::test]
async fn admits_requests_with_a_valid_token() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    fs::write(&path, "operator 0123456789abcdef").unwrap();
    let access = Access::new(false, Some(TokenFile::load(&path, false).unwrap()));
    let server = start(options(), router(access)).await;
    let mut client = Client::plain(server.address, false).await;

    let denied = client.get("/guarded").await.unwrap();
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(denied.headers()[WWW_AUTHENTICATE], "Bearer");
    assert_eq!(denied.headers()[CONTENT_TYPE], "application/problem+json");
    let document: serde_json::Value = serde_json::from_str(denied.body()).unwrap();
    assert_eq!(document["title"], "Unauthorized");
    assert_eq!(document["status"], 401);
    assert_eq!(document["detail"], "a bearer token is required");
    assert!(!denied.body().contains("127.0.0.1"));

    let with = |token: &str| get("/guarded").header(AUTHORIZATION, format!("Bearer {token}"));
    let denied = client.send(with("wrong")).await.unwrap();
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    assert!(denied.body().contains("the bearer token is not valid"));
    let response = client.send(with("0123456789abcdef")).await.unwrap();
    assert_eq!((response.status(), response.body().as_str()), (StatusCode::OK, "operator"));

    replace(&path, "other fedcba9876543210");
    let denied = client.send(with("0123456789abcdef")).await.unwrap();
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(client.send(with("fedcba9876543210")).await.unwrap().body(), "other");
}

#[tokio::test]
async fn denies_grpc_calls_with_a_grpc_status() {
    let server = start(options(), router(Access::new(true, None))).await;
    let mut client = Client::plain(server.address, true).await;
    let call = Request::post("http://localhost/package.Service/Method");
    let response: Response<String> =
        client.send(call.header(CONTENT_TYPE, "application/grpc")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
    assert_eq!(response.headers()["grpc-status"], "16");
    assert_eq!(response.headers()["grpc-message"], "a client certificate is required");
    assert_eq!(response.body(), "");
}

#[tokio::test]
async fn requires_a_certificate_per_route_not_per_port() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new(), Authority::new());
    let tls = Some(pki::files(folder.path(), &servers.server(), Some(&clients)));
    let server = start(Options { tls, ..options() }, router(Access::new(true, None))).await;
    let gateway = clients.client("gateway");

    for h2 in [false, true] {
        let open = get_with_tls(server.address, &servers, None, h2, "/peer").await.unwrap();
        assert_eq!((open.status(), open.body().as_str()), (StatusCode::OK, ""));
        let denied = get_with_tls(server.address, &servers, None, h2, "/guarded").await.unwrap();
        assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
        for path in ["/peer", "/guarded"] {
            let response =
                get_with_tls(server.address, &servers, Some(&gateway), h2, path).await.unwrap();
            assert_eq!((response.status(), response.body().as_str()), (StatusCode::OK, "gateway"));
        }
        let untrusted = Authority::new().client("gateway");
        assert!(
            get_with_tls(server.address, &servers, Some(&untrusted), h2, "/peer").await.is_err()
        );
    }
}
