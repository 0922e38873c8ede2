//! Packages, from the file to the list.

use super::*;

#[tokio::test]
async fn a_package_is_published_once() {
    let server = Server::new(LIMITS).await;
    let first = package("1.0.0", "example.org/greet:1");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &first).await;
    let told = String::from_utf8_lossy(&answered.body).into_owned();
    assert_eq!(answered.status, StatusCode::CREATED, "{told}");
    assert_eq!(answered.json()[0]["version"], "1.0.0");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &first).await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(answered.json()[0]["unchanged"], true);
    let other = package("1.0.0", "example.org/greet:2");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &other).await;
    let problem = answered.problem();
    assert_eq!((problem.status, problem.reason.as_str()), (409, "VERSION_EXISTS"));
    let told = server.fake.told.lock().unwrap().clone();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].kind.as_str(), told[0].subject.as_str()), ("package.published", "hello"));

    let page = server.get("/api/v1/packages?q=greet&limit=1").await.json();
    assert_eq!(page["items"][0]["latest"], "1.0.0");
    let functions = server.get("/api/v1/functions?package=hello").await.json();
    assert_eq!(functions["items"][0]["status"][0]["key"], "greet");
    server.get("/api/v1/functions?package=hello&version=1.0.0").await;
    let asked = ["functions hello None", "functions hello Some(\"1.0.0\")"];
    assert_eq!(*server.fake.asked.lock().unwrap(), asked);
    assert_eq!(server.get("/api/v1/classes").await.json()["items"][0]["key"], "Greeter");
}

#[tokio::test]
async fn what_is_known_is_not_sent_again() {
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
    // The digest is the same, so a change that was meant for it is still made.
    let delete = as_(ADMIN, "DELETE", "/api/v1/packages/hello/versions/1.0.0")
        .header(header::IF_MATCH, answered.headers[header::ETAG].clone());
    let answered = server.send(delete.body(Body::empty()).unwrap()).await;
    assert_eq!(answered.status, StatusCode::NO_CONTENT);
    assert_eq!(server.get(path).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn whoever_follows_is_told_of_deprecations_both_ways() {
    let server = Server::new(LIMITS).await;
    let text = package("1.0.0", "example.org/greet:1");
    server.yaml(DEPLOYER, "POST", "/api/v1/packages", &text).await;
    let deprecation = "/api/v1/packages/hello/versions/1.0.0/deprecation";
    server.yaml(DEPLOYER, "PUT", deprecation, "reason: there is a better one").await;
    let back = as_(DEPLOYER, "DELETE", deprecation).body(Body::empty()).unwrap();
    assert_eq!(server.send(back).await.status, StatusCode::OK);
    let told = server.fake.told.lock().unwrap().clone();
    let kinds: Vec<&str> = told.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["package.published", "package.deprecated", "package.undeprecated"]);
    assert!(told.iter().all(|it| it.subject == "hello" && it.message == "1.0.0"));
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_told_by_place() {
    let server = Server::new(LIMITS).await;
    let text = package("1.0.0", "example.org/greet:1").replace("classes:", "clases:");
    for path in ["/api/v1/packages", "/api/v1/validate"] {
        let problem = server.yaml(DEPLOYER, "POST", path, &text).await.problem();
        assert_eq!((problem.status, problem.reason.as_str()), (422, "INVALID_DOCUMENT"));
        let place = problem.faults.first().and_then(|fault| fault.location.as_ref()).unwrap();
        assert_eq!((place.source.as_str(), place.line), ("body", 3));
    }
    let text = "key: hello\npackage: hello\nclass: Greeter\n";
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", text).await;
    assert_eq!(answered.problem().status, 422);
    assert_eq!(server.get("/api/v1/packages").await.json()["items"], serde_json::json!([]));
}
