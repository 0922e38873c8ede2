//! Authentication, roles, limits and CORS.

use axum::http::Method;

use super::*;

#[tokio::test]
async fn rejects_missing_invalid_expired_and_insufficient_tokens() {
    let server = Server::new(LIMITS).await;
    let plain = Request::get("/api/v1/packages").body(Body::empty()).unwrap();
    let answered = server.send(plain).await;
    assert_eq!(answered.status, StatusCode::UNAUTHORIZED);
    assert_eq!(answered.headers[header::WWW_AUTHENTICATE], "Bearer");
    assert_eq!(answered.problem().reason, "TOKEN_REQUIRED");
    for (token, reason) in [
        ("nobody-0123456789abcdef", "TOKEN_INVALID"),
        ("expired-0123456789abcdef", "TOKEN_EXPIRED"),
    ] {
        let request = as_(token, "GET", "/api/v1/packages").body(Body::empty()).unwrap();
        let answered = server.send(request).await;
        assert_eq!((answered.status.as_u16(), answered.problem().reason.as_str()), (401, reason));
        assert!(!String::from_utf8_lossy(&answered.body).contains(token));
    }
    let answered = server.yaml(VIEWER, "POST", "/api/v1/packages", "{}").await;
    assert_eq!(answered.status, StatusCode::FORBIDDEN);
    assert_eq!(answered.problem().detail, "This request requires a token with the role deployer.");
    let delete = as_(DEPLOYER, "DELETE", "/api/v1/packages/hello").body(Body::empty()).unwrap();
    assert_eq!(server.send(delete).await.problem().reason, "ROLE_REQUIRED");
}

/// Every write of the API is covered.
#[tokio::test]
async fn viewers_can_not_write() {
    let server = Server::new(LIMITS).await;
    let document = document();
    let mut writes = 0;
    for (path, item) in &document.paths.paths {
        let path = path.replace(['{', '}'], "");
        let looks = ["/api/v1/validate", "/api/v1/plan"].contains(&path.as_str());
        for (method, operation) in
            [(Method::PUT, &item.put), (Method::POST, &item.post), (Method::DELETE, &item.delete)]
        {
            if operation.is_some() && !looks {
                let answered = server.yaml(VIEWER, method.as_str(), &path, "{}").await;
                assert_eq!(answered.status, StatusCode::FORBIDDEN, "{method} {path}");
                writes += 1;
            }
        }
        let unknown = Request::builder().method("GET").uri(&path).body(Body::empty()).unwrap();
        let status = server.send(unknown).await.status;
        assert!([401, 405].contains(&status.as_u16()), "{path}: {status}");
    }
    assert_eq!(writes, 12);
}

/// A misspelt `dry_run` must not change anything.
#[tokio::test]
async fn writes_reject_unknown_parameters() {
    let server = Server::new(LIMITS).await;
    let document = document();
    for (path, item) in &document.paths.paths {
        let path = path.replace(['{', '}'], "");
        for (method, operation) in
            [(Method::PUT, &item.put), (Method::POST, &item.post), (Method::DELETE, &item.delete)]
        {
            if operation.is_some() {
                let path = format!("{path}?dry-run=true");
                let answered = server.yaml(ADMIN, method.as_str(), &path, "{}").await;
                let problem = answered.problem();
                let found = (problem.status, problem.reason.as_str());
                assert_eq!(found, (400, "INVALID_PARAMETER"), "{method} {path}");
                assert!(problem.detail.contains("dry-run"), "{}", problem.detail);
            }
        }
    }
}

#[tokio::test]
async fn rate_limit_returns_retry_after() {
    let server = Server::new(Limits { rate: 1, burst: 2, ..LIMITS }).await;
    for _ in 0..2 {
        assert_eq!(server.get("/api/v1/clusters").await.status, StatusCode::OK);
    }
    // Between two of them a second may pass, and one more is allowed.
    let mut answered = server.get("/api/v1/clusters").await;
    for _ in 0..1000 {
        if answered.status != StatusCode::OK {
            break;
        }
        answered = server.get("/api/v1/clusters").await;
    }
    assert_eq!(answered.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answered.headers[header::RETRY_AFTER], "1");
    assert_eq!(answered.problem().reason, "RATE_LIMITED");
    let other = as_(ADMIN, "GET", "/api/v1/clusters").body(Body::empty()).unwrap();
    assert_eq!(server.send(other).await.status, StatusCode::OK);
    let probe = Request::get("/health/live").body(Body::empty()).unwrap();
    assert_eq!(server.send(probe).await.status, StatusCode::OK);
}

#[tokio::test]
async fn cors_allows_configured_origins_only() {
    let server = Server::new(LIMITS).await;
    let ask = |origin: &str, method: &str| {
        Request::builder()
            .method(method)
            .uri("/api/v1/packages")
            .header(header::ORIGIN, origin)
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
            .header(header::AUTHORIZATION, format!("Bearer {VIEWER}"))
            .body(Body::empty())
            .unwrap()
    };
    let known = "https://console.example.org";
    let answered = server.send(ask(known, "OPTIONS")).await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(answered.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], known);
    let methods = answered.headers[header::ACCESS_CONTROL_ALLOW_METHODS].to_str().unwrap();
    assert_eq!(methods, "GET,HEAD,POST,PUT,DELETE");
    assert_eq!(answered.headers[header::ACCESS_CONTROL_MAX_AGE], "600");
    let answered = server.send(ask(known, "GET")).await;
    assert_eq!(answered.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], known);
    for method in ["OPTIONS", "GET"] {
        let answered = server.send(ask("https://console.example.org.evil", method)).await;
        assert!(!answered.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    }
}
