//! Deployments and class runtimes: preconditions, dry runs, problem documents.

use oprc_grpc::deployment::{GetOdgmStatusResponse, OdgmCollectionHealth, OdgmNode};

use super::*;

#[tokio::test]
async fn every_failure_is_a_problem_document() {
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
async fn keeps_a_valid_correlation_id() {
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
async fn reports_a_request_that_times_out() {
    let limits = Limits { timeout: Duration::ZERO, ..LIMITS };
    let server = Server::start(limits, Vec::new()).await;
    let endless = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let request = as_(VIEWER, "POST", "/api/v1/validate")
        .header(header::CONTENT_TYPE, "application/yaml")
        .body(Body::from_stream(endless));
    let answered = server.send(request.unwrap()).await;
    let problem = answered.problem();
    assert_eq!((problem.status, problem.reason.as_str()), (504, "TIMEOUT"));
    assert!(problem.detail.contains("may still take effect"), "{}", problem.detail);
}

const HELLO: &str = "key: hello\npackage: hello\nclass: Greeter\n";
const PATH: &str = "/api/v1/deployments/hello";

/// `HELLO` with another replica count, which makes another revision.
fn changed(replicas: u32) -> String {
    format!("{HELLO}replicaCount: {replicas}\n")
}

async fn put_if(server: &Server, name: header::HeaderName, tag: &str, text: String) -> Answered {
    let request = as_(DEPLOYER, "PUT", PATH)
        .header(header::CONTENT_TYPE, "application/yaml")
        .header(name, tag);
    server.send(request.body(Body::from(text)).unwrap()).await
}

fn etag(answered: &Answered) -> String {
    assert_eq!(answered.status.as_u16() / 100, 2, "{}", answered.text());
    answered.headers[header::ETAG].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_write_requires_the_revision_of_if_match() {
    let server = Server::new(LIMITS).await;
    server.publish().await;
    let missing = put_if(&server, header::IF_MATCH, "*", HELLO.to_owned()).await;
    assert_eq!(missing.problem().status, 412);
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", HELLO).await;
    assert_eq!(answered.status, StatusCode::CREATED, "{}", answered.text());
    assert_eq!(answered.headers[header::LOCATION], PATH);
    assert_eq!(answered.json()["updatedBy"], "dora");
    let first = etag(&answered);
    assert_eq!(first, format!("{}", answered.json()["revision"]));
    let exists = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", HELLO).await;
    assert_eq!((exists.problem().status, exists.problem().reason.as_str()), (409, "EXISTS"));
    let exists = put_if(&server, header::IF_NONE_MATCH, "*", changed(2)).await;
    assert_eq!((exists.problem().status, exists.problem().reason.as_str()), (412, "CHANGED"));
    let stale = put_if(&server, header::IF_MATCH, "\"r0\"", changed(2)).await;
    assert_eq!((stale.problem().status, stale.problem().reason.as_str()), (412, "CHANGED"));
    let unchanged = put_if(&server, header::IF_MATCH, &first, HELLO.to_owned()).await;
    assert_eq!(etag(&unchanged), first);
    let second = etag(&put_if(&server, header::IF_MATCH, &first, changed(2)).await);
    assert_ne!(second, first);
    let late = put_if(&server, header::IF_MATCH, &first, changed(3)).await;
    assert_eq!(late.problem().reason, "CHANGED");
    let third = etag(&put_if(&server, header::IF_MATCH, "*", changed(3)).await);
    assert_eq!(etag(&server.get(PATH).await), third);
    let delete = as_(DEPLOYER, "DELETE", PATH).header(header::IF_MATCH, second.as_str());
    let stale = server.send(delete.body(Body::empty()).unwrap()).await;
    assert_eq!(stale.problem().status, 412);
    let delete = as_(DEPLOYER, "DELETE", PATH).header(header::IF_MATCH, third.as_str());
    let deleted = server.send(delete.body(Body::empty()).unwrap()).await;
    assert_eq!(deleted.status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn rolls_back_to_the_previous_revision() {
    let server = Server::new(LIMITS).await;
    server.publish().await;
    let first = etag(&server.yaml(DEPLOYER, "POST", "/api/v1/deployments", HELLO).await);
    let second = etag(&server.yaml(DEPLOYER, "PUT", PATH, &changed(2)).await);
    let rollback = format!("{PATH}/rollback");
    let misspelt = server.yaml(DEPLOYER, "POST", &rollback, "revison: r1").await;
    assert_eq!(misspelt.problem().status, 422);
    let unknown = server.yaml(DEPLOYER, "POST", &rollback, "revision: r1").await;
    assert_eq!(unknown.problem().status, 404);
    let stale = as_(DEPLOYER, "POST", &rollback)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::IF_MATCH, first.as_str());
    assert_eq!(server.send(stale.body(Body::from("{}")).unwrap()).await.problem().status, 412);
    let back = server.yaml(DEPLOYER, "POST", &rollback, "{}").await;
    assert!(![&first, &second].contains(&&etag(&back)));
    assert_eq!(back.json()["deployment"].get("replicaCount"), None);
    let history = server.get(&format!("{PATH}/history")).await.json();
    let causes = history["items"].as_array().unwrap().iter().map(|it| it["cause"].to_string());
    let rolled_back = format!("\"rollback to {}\"", first.trim_matches('"'));
    assert_eq!(causes.collect::<Vec<_>>(), [rolled_back.as_str(), "\"updated\"", "\"created\""]);
}

#[tokio::test]
async fn a_body_has_one_deployment_of_the_path() {
    let server = Server::new(LIMITS).await;
    let both = format!("{}---\n{HELLO}", package("1.0.0", "example.org/greet:1"));
    let planned = server.yaml(VIEWER, "POST", "/api/v1/plan", &both).await;
    assert_eq!(planned.json()["deployment"], "hello", "{}", planned.text());
    assert_eq!(planned.json()["version"], "1.0.0", "packages of the body count as published");
    assert_eq!(server.get("/api/v1/packages/hello").await.status, StatusCode::NOT_FOUND);
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", &both).await;
    assert_eq!(answered.problem().status, 422);
    let answered = server.yaml(DEPLOYER, "PUT", "/api/v1/deployments/other", HELLO).await;
    assert_eq!(answered.problem().status, 422);
    let bad = server.yaml(VIEWER, "POST", "/api/v1/plan", "key: hello\nclases: []\n").await;
    let problem = bad.problem();
    assert_eq!((problem.status, problem.reason.as_str()), (422, "INVALID_DOCUMENT"));
    assert!(!problem.errors.is_empty());
}

fn class(id: &str) -> ClassRuntime {
    ClassRuntime {
        deployment_id: id.to_owned(),
        namespace: "default".to_owned(),
        ..ClassRuntime::default()
    }
}

#[tokio::test]
async fn lists_class_runtimes_by_ownership() {
    let classes = [class("shop.Cart..east"), class("team/shop")];
    let server = Server::with_classes(LIMITS, classes).await;
    for (path, ids) in [
        ("orphans", ["shop.Cart..east"].as_slice()),
        ("class-runtimes", &["shop.Cart..east", "team/shop"]),
        ("deployment-records?ownership=unmanaged", &["team/shop"]),
        ("class-runtimes?ownership=managed", &[]),
    ] {
        let page = server.get(&format!("/api/v1/{path}")).await.json();
        let found = page["items"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), ids, "{path}");
    }
    let answered = server.get("/api/v1/orphans?ownership=unmanaged").await;
    assert_eq!(answered.problem().reason, "INVALID_PARAMETER");
}

#[tokio::test]
async fn finds_a_class_runtime_whose_id_has_slashes() {
    let server = Server::with_classes(LIMITS, [class("team/shop"), class("shop")]).await;
    let answered = server.get("/api/v1/class-runtimes/team%2Fshop").await;
    assert_eq!(answered.json()["id"], "team/shop");
    let answered = server.get("/api/v1/deployment-records/shop?cluster=east").await;
    assert_eq!(answered.json()["id"], "shop");
    let answered = server.get("/api/v1/deployment-records/shop?cluster=west").await;
    assert_eq!(answered.problem().status, 404);
    let answered = server.get("/api/v1/class-runtimes/shop?clutser=east").await;
    assert_eq!(answered.problem().reason, "INVALID_PARAMETER");
}

#[tokio::test]
async fn a_dry_run_returns_the_plan_and_stores_nothing() {
    let server = Server::new(LIMITS).await;
    server.publish().await;
    let all = "/api/v1/deployments";
    for (method, path) in [
        ("POST", format!("{all}?dry_run=true")),
        ("POST", format!("{all}?dryRun=true")),
        ("PUT", format!("{PATH}?dry_run=true")),
    ] {
        let answered = server.yaml(DEPLOYER, method, &path, HELLO).await;
        assert_eq!(answered.status, StatusCode::OK, "{method} {path}: {}", answered.text());
        assert_eq!(answered.json()["deployment"], "hello", "a plan");
        assert_eq!(server.get(PATH).await.status, StatusCode::NOT_FOUND);
    }
    let answered = server.yaml(DEPLOYER, "POST", &format!("{all}?dry_run=false"), HELLO).await;
    assert_eq!(answered.status, StatusCode::CREATED);
    assert_eq!(answered.json()["deployment"]["key"], "hello", "a deployment");
    let wrong = server.yaml(DEPLOYER, "POST", &format!("{all}?dry_run=perhaps"), HELLO).await;
    assert_eq!(wrong.problem().reason, "INVALID_PARAMETER");
    // A dry run fails for what the write would fail for.
    let again = server.yaml(DEPLOYER, "POST", &format!("{all}?dry_run=true"), HELLO).await;
    assert_eq!(again.problem().reason, "EXISTS");
    let put = as_(DEPLOYER, "PUT", &format!("{PATH}?dry_run=true"))
        .header(header::CONTENT_TYPE, "application/yaml")
        .header(header::IF_MATCH, "\"r0\"");
    let answered = server.send(put.body(Body::from(HELLO)).unwrap()).await;
    assert_eq!(answered.problem().reason, "CHANGED");
}

#[tokio::test]
async fn lists_data_grids_and_why_some_do_not_respond() {
    let (east, north) = (Fake::start().await, Fake::start().await);
    let west = ClusterConfig { url: "http://127.0.0.1:1".to_owned(), ..east.config("west") };
    let clusters = vec![east.config("east"), north.config("north"), west];
    let server = Server::start(LIMITS, clusters).await;
    let answered = server.get(&format!("{PATH}/grid")).await;
    assert_eq!(answered.problem().status, 404);
    let text = "name: hello\nversion: 1.0.0\nclasses:\n\
                - {key: Greeter}\n\
                - {key: Counter, stateSpec: {keySpecs: [{name: value, type: INTEGER}]}}\n";
    server.yaml(DEPLOYER, "POST", "/api/v1/packages", text).await;
    let text = "key: stateless\npackage: hello\nclass: Greeter\n";
    let created = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", text).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let none = server.get("/api/v1/deployments/stateless/grid").await.json();
    assert_eq!(none["items"], serde_json::json!([]));

    let text = "key: hello\npackage: hello\nclasses: [Greeter, Counter]\n\
                targetClusters: [east, north, west]\n";
    let created = server.yaml(DEPLOYER, "POST", "/api/v1/deployments", text).await;
    assert_eq!(created.status, StatusCode::CREATED, "{}", created.text());
    let grid = GetOdgmStatusResponse {
        nodes: vec![OdgmNode {
            node_id: "n0".to_owned(),
            status: "active".to_owned(),
            ..OdgmNode::default()
        }],
        leader_node: "n0".to_owned(),
        collections: vec![OdgmCollectionHealth {
            name: "Counter".to_owned(),
            partition_count: 4,
            active_partitions: 3,
            total_objects: 7,
            ..OdgmCollectionHealth::default()
        }],
        total_shards: 4,
        active_shards: 3,
        store_bytes: 90,
        store_quota_bytes: 100,
        low_on_space: true,
        ..GetOdgmStatusResponse::default()
    };
    let id = |cluster: &str| format!("hello.Counter..{cluster}");
    east.state.lock().unwrap().grids.insert(id("east"), grid);
    for cluster in ["east", "north"] {
        let client = server.deployments.clusters.client(cluster).unwrap();
        let mut changes = client.changes();
        let reported = async {
            while client.class_cache().class(&id(cluster), "").is_none() {
                changes.changed().await.unwrap();
            }
        };
        timeout(Duration::from_mins(2), reported).await.unwrap();
    }
    let answered = server.get(&format!("{PATH}/grid")).await;
    assert_eq!(answered.status, StatusCode::OK, "{}", answered.text());
    let items = answered.json()["items"].clone();
    let ids: Vec<_> = items.as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(ids, [id("east"), id("north"), id("west")]);
    let expected = serde_json::json!({
        "id": id("east"), "cluster": "east", "environment": "", "class": "Counter",
        "service": "odgm:8081", "ready": false, "replicas": 1,
        "nodes": [{"id": "n0", "address": "", "status": "active", "lastHeartbeat": ""}],
        "leader": "n0", "activeShards": 3, "totalShards": 4,
        "collections": [
            {"name": "Counter", "partitions": 4, "activePartitions": 3, "objects": 7},
        ],
        "storeBytes": 90, "storeQuotaBytes": 100, "lowOnSpace": true,
    });
    assert_eq!(items[0], expected);
    let error = |at: usize| items[at]["error"].as_str().unwrap();
    assert!(error(1).contains("does not respond: connection refused"), "{}", error(1));
    assert_eq!(error(2), "cluster west does not respond");
    assert_eq!((&items[1]["service"], items[1].get("storeBytes")), (&"odgm:8081".into(), None));
}
