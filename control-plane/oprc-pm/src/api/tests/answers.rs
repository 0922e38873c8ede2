//! What goes wrong is a problem document, and what is known is tagged.

use super::*;

#[tokio::test]
async fn every_refusal_is_a_problem_document() {
    let server = Server::new(LIMITS).await;
    assert_eq!(server.get("/api/v1/nothing").await.problem().reason, "NO_SUCH_PATH");
    assert_eq!(server.get("/api/v1/packages/none").await.problem().status, 404);
    let patch = as_(ADMIN, "PATCH", "/api/v1/packages").body(Body::empty()).unwrap();
    let answered = server.send(patch).await;
    assert_eq!(answered.problem().reason, "METHOD_NOT_ALLOWED");
    assert!(answered.headers.contains_key(header::ALLOW));
    let text = as_(DEPLOYER, "POST", "/api/v1/packages").header(header::CONTENT_TYPE, "text/plain");
    let answered = server.send(text.body(Body::from("{}")).unwrap()).await;
    assert_eq!(answered.problem().reason, "UNSUPPORTED_MEDIA_TYPE");
    let long = "#".repeat(LIMITS.body_bytes + 1);
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &long).await;
    assert_eq!(answered.problem().reason, "BODY_TOO_LARGE");
    for query in ["limit=0", "limit=x", "colour=red", "labels==a"] {
        let answered = server.get(&format!("/api/v1/packages?{query}")).await;
        assert_eq!(answered.problem().reason, "INVALID_PARAMETER", "{query}");
    }
    assert_eq!(server.get("/api/v1/clusters/west/health").await.problem().status, 503);
    assert_eq!(server.get("/api/v1/clusters/east/health").await.status, StatusCode::OK);
    assert_eq!(server.get("/api/v1/class-runtimes?ownership=mine").await.problem().status, 400);
}

#[tokio::test]
async fn a_correlation_id_goes_through() {
    let server = Server::new(LIMITS).await;
    let ask = |id: &str| {
        let request = as_(VIEWER, "GET", "/api/v1/packages/none").header("x-correlation-id", id);
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(server.send(ask("call-7")).await.problem().correlation_id, "call-7");
    let made = server.send(ask("a \"bad\" one")).await.problem().correlation_id;
    assert_eq!(made.len(), 32);
}

#[tokio::test]
async fn deployments_are_changed_by_revision() {
    let server = Server::new(LIMITS).await;
    let text = "key: hello\npackage: hello\nclass: Greeter\n";
    let path = "/api/v1/deployments/hello";
    let put = |tag: &str| {
        let request = as_(DEPLOYER, "PUT", path)
            .header(header::CONTENT_TYPE, "application/yaml")
            .header(header::IF_MATCH, tag);
        request.body(Body::from(text)).unwrap()
    };
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", text).await;
    let told = String::from_utf8_lossy(&answered.body).into_owned();
    assert_eq!(answered.status, StatusCode::CREATED, "{told}");
    assert_eq!(answered.headers[header::LOCATION], path);
    assert_eq!(answered.headers[header::ETAG], "\"r1\"");
    assert_eq!(answered.json()["updatedBy"], "dora");
    assert_eq!(server.send(put("\"r0\"")).await.problem().reason, "CHANGED");
    assert_eq!(server.send(put("\"r1\"")).await.headers[header::ETAG], "\"r2\"");
    let answered = server.yaml(DEPLOYER, "PUT", "/api/v1/deployments/other", text).await;
    assert_eq!(answered.problem().status, 422);
    let answered = server.yaml(DEPLOYER, "POST", &format!("{path}/rollback"), "revison: r1").await;
    assert_eq!(answered.problem().status, 422);
    let answered = server.yaml(DEPLOYER, "POST", &format!("{path}/rollback"), "{}").await;
    assert_eq!(answered.status, StatusCode::OK);
    assert_eq!(*server.fake.asked.lock().unwrap(), ["rollback hello None"]);
    let answered = server.yaml(VIEWER, "POST", "/api/v1/plan", text).await;
    assert_eq!(answered.json()["deployment"], "hello");
    let both = format!("name: hello\nversion: 1.0.0\n---\n{text}");
    let answered = server.yaml(VIEWER, "POST", "/api/v1/plan", &both).await;
    assert_eq!(answered.json()["package"], "1", "{text}");
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", &both).await;
    assert_eq!(answered.problem().status, 422);
    let bad = server.yaml(VIEWER, "POST", "/api/v1/plan", "key: hello\nclases: []\n").await;
    let problem = bad.problem();
    assert_eq!((problem.status, problem.reason.as_str()), (422, "INVALID_DOCUMENT"));
    assert!(!problem.faults.is_empty());
}

#[tokio::test]
async fn orphans_are_the_class_runtimes_that_nobody_drives() {
    let server = Server::new(LIMITS).await;
    for path in ["orphans", "class-runtimes", "deployment-records?ownership=foreign"] {
        assert_eq!(server.get(&format!("/api/v1/{path}")).await.status, StatusCode::OK);
    }
    // An orphan's ownership is no question.
    let answered = server.get("/api/v1/orphans?ownership=foreign").await;
    assert_eq!(answered.problem().reason, "INVALID_PARAMETER");
    let asked = ["runtimes Some(\"orphan\")", "runtimes None", "runtimes Some(\"foreign\")"];
    assert_eq!(*server.fake.asked.lock().unwrap(), asked);
}

#[tokio::test]
async fn a_class_runtime_is_found_by_an_id_with_slashes() {
    let server = Server::new(LIMITS).await;
    let answered = server.get("/api/v1/class-runtimes/team%2Fshop").await;
    assert_eq!(answered.json()["id"], "team/shop");
    let answered = server.get("/api/v1/deployment-records/shop?cluster=east").await;
    assert_eq!(answered.status, StatusCode::OK);
    let answered = server.get("/api/v1/class-runtimes/shop?clutser=east").await;
    assert_eq!(answered.problem().reason, "INVALID_PARAMETER");
    let asked = ["runtime team/shop None", "runtime shop Some(\"east\")"];
    assert_eq!(*server.fake.asked.lock().unwrap(), asked);
}

#[tokio::test]
async fn what_is_tried_out_is_planned_and_not_stored() {
    let server = Server::new(LIMITS).await;
    let (all, path) = ("/api/v1/deployments", "/api/v1/deployments/hello");
    let text = "key: hello\npackage: hello\nclass: Greeter\n";
    for (method, path) in [
        ("POST", format!("{all}?dry_run=true")),
        ("POST", format!("{all}?dryRun=true")),
        ("PUT", format!("{path}?dry_run=true")),
    ] {
        let answered = server.yaml(DEPLOYER, method, &path, text).await;
        assert_eq!(answered.status, StatusCode::OK, "{method} {path}");
        assert_eq!(answered.json()["deployment"], "hello", "a plan");
        assert_eq!(server.get("/api/v1/deployments/hello").await.status, StatusCode::NOT_FOUND);
    }
    let answered = server.yaml(DEPLOYER, "POST", &format!("{all}?dry_run=false"), text).await;
    assert_eq!(answered.status, StatusCode::CREATED);
    assert_eq!(answered.json()["deployment"]["key"], "hello", "a deployment");
    let wrong = server.yaml(DEPLOYER, "POST", &format!("{all}?dry_run=perhaps"), text).await;
    assert_eq!(wrong.problem().reason, "INVALID_PARAMETER");
    // It is refused for what it would be refused for.
    let again = server.yaml(DEPLOYER, "POST", &format!("{all}?dry_run=true"), text).await;
    assert_eq!(again.problem().reason, "CHANGED");
    let put = as_(DEPLOYER, "PUT", &format!("{path}?dry_run=true"))
        .header(header::CONTENT_TYPE, "application/yaml")
        .header(header::IF_MATCH, "\"r0\"");
    let answered = server.send(put.body(Body::from(text)).unwrap()).await;
    assert_eq!(answered.problem().reason, "CHANGED");
}
