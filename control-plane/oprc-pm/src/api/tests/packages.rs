//! Packages, from the file to the list.

use super::*;
use crate::dispatcher::StreamItem;

#[tokio::test]
async fn publishes_a_version_once() {
    let server = Server::new(LIMITS).await;
    let first = package("1.0.0", "example.org/greet:1");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &first).await;
    let body = String::from_utf8_lossy(&answered.body).into_owned();
    assert_eq!(answered.status, StatusCode::CREATED, "{body}");
    assert_eq!(answered.json()[0]["version"], "1.0.0");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &first).await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(answered.json()[0]["unchanged"], true);
    let other = package("1.0.0", "example.org/greet:2");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &other).await;
    let problem = answered.problem();
    assert_eq!((problem.status, problem.reason.as_str()), (409, "VERSION_EXISTS"));
    assert_eq!(package_events(&server), ["package.published 1.0.0"]);

    let page = server.get("/api/v1/packages?q=greet&limit=1").await.json();
    assert_eq!(page["items"][0]["latest"], "1.0.0");
    assert_eq!(server.get("/api/v1/classes").await.json()["items"][0]["key"], "Greeter");
}

#[tokio::test]
async fn functions_have_the_status_of_deployments_of_the_version() {
    let server = Server::new(LIMITS).await;
    server.publish().await;
    let text = "key: hello\npackage: hello\nclass: Greeter\nversion: =1.0.0\n";
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", text).await;
    assert_eq!(answered.status, StatusCode::CREATED, "{}", answered.text());
    server.until(DeploymentCondition::Running).await;
    let next = package("1.1.0", "example.org/greet:1");
    server.yaml(DEPLOYER, "POST", "/api/v1/packages", &next).await;
    for (query, keys) in
        [("", ["greet"].as_slice()), ("&version=1.0.0", &["greet"]), ("&version=1.1.0", &[])]
    {
        let path = format!("/api/v1/functions?package=hello{query}");
        let functions = server.get(&path).await.json();
        let status = functions["items"][0]["status"].as_array().cloned().unwrap_or_default();
        let found: Vec<&str> = status.iter().filter_map(|it| it["key"].as_str()).collect();
        assert_eq!(found, keys, "{path}");
    }
}

/// The kinds and messages of events about the package `hello` so far.
fn package_events(server: &Server) -> Vec<String> {
    use futures::{FutureExt as _, StreamExt as _};

    let mut stream = server.deployments.events.stream(Some("0"));
    let mut found = Vec::new();
    while let Some(Some(item)) = stream.next().now_or_never() {
        if let StreamItem::Event(event) = item
            && event.subject == "hello"
        {
            found.push(format!("{} {}", event.kind, event.message));
        }
    }
    found
}

#[tokio::test]
async fn answers_not_modified_for_a_known_etag() {
    let server = Server::new(LIMITS).await;
    let text = package("1.0.0", "example.org/greet:1");
    server.yaml(DEPLOYER, "POST", "/api/v1/packages", &text).await;
    let path = "/api/v1/packages/hello/versions/latest";
    let tag = server.get(path).await.headers[header::ETAG].clone();
    let again = |tag: &axum::http::HeaderValue| {
        let request = as_(VIEWER, "GET", path).header(header::IF_NONE_MATCH, tag);
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(server.send(again(&tag)).await.status, StatusCode::NOT_MODIFIED);
    let deprecation = "/api/v1/packages/hello/versions/1.0.0/deprecation";
    let answered = server.yaml(DEPLOYER, "PUT", deprecation, "reason: there is a better one").await;
    assert_eq!(answered.json()["deprecated"], "there is a better one");
    assert_eq!(server.send(again(&tag)).await.status, StatusCode::OK);
    // The digest is the same, so a change with its ETag succeeds.
    let delete = as_(ADMIN, "DELETE", "/api/v1/packages/hello/versions/1.0.0")
        .header(header::IF_MATCH, answered.headers[header::ETAG].clone());
    let answered = server.send(delete.body(Body::empty()).unwrap()).await;
    assert_eq!(answered.status, StatusCode::NO_CONTENT);
    assert_eq!(server.get(path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn publishes_events_for_deprecation_and_its_removal() {
    let server = Server::new(LIMITS).await;
    let text = package("1.0.0", "example.org/greet:1");
    server.yaml(DEPLOYER, "POST", "/api/v1/packages", &text).await;
    let deprecation = "/api/v1/packages/hello/versions/1.0.0/deprecation";
    server.yaml(DEPLOYER, "PUT", deprecation, "reason: there is a better one").await;
    let back = as_(DEPLOYER, "DELETE", deprecation).body(Body::empty()).unwrap();
    assert_eq!(server.send(back).await.status, StatusCode::OK);
    let events = ["package.published", "package.deprecated", "package.undeprecated"];
    assert_eq!(package_events(&server), events.map(|kind| format!("{kind} 1.0.0")));
}

#[tokio::test]
async fn reports_document_problems_with_their_position() {
    let server = Server::new(LIMITS).await;
    let text = package("1.0.0", "example.org/greet:1").replace("classes:", "clases:");
    for path in ["/api/v1/packages", "/api/v1/validate"] {
        let problem = server.yaml(DEPLOYER, "POST", path, &text).await.problem();
        assert_eq!((problem.status, problem.reason.as_str()), (422, "INVALID_DOCUMENT"));
        let place = problem.errors.first().and_then(|it| it.location.as_ref()).unwrap();
        assert_eq!((place.source.as_str(), place.line), ("body", 3));
    }
    let text = "key: hello\npackage: hello\nclass: Greeter\n";
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", text).await;
    assert_eq!(answered.problem().status, 422);
    assert_eq!(server.get("/api/v1/packages").await.json()["items"], serde_json::json!([]));
}
