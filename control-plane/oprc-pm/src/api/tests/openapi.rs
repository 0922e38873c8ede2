//! The OpenAPI document, and routes without authentication.

use std::collections::BTreeSet;

use tokio::time::advance;

use super::*;

fn open(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn openapi_lists_every_problem_response() {
    let server = Server::new(LIMITS).await;
    let document = server.send(open("/openapi.json")).await.json();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("Problem"));
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    let mut ids = BTreeSet::new();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.keys().all(|path| path.starts_with("/api/v1/")));
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].to_string()), "{method} {path}: its id");
            let responses = operation["responses"].as_object().unwrap();
            for status in ["400", "401", "403", "429", "500", "503", "504"] {
                let content = &responses[status]["content"]["application/problem+json"];
                assert_eq!(content["schema"]["$ref"], "#/components/schemas/Problem", "{path}");
            }
            let body = operation.get("requestBody").is_some();
            assert_eq!(responses.contains_key("415"), body, "{method} {path}");
            let parameters = operation.get("parameters").and_then(Value::as_array);
            let parameters = parameters.map(Vec::as_slice).unwrap_or_default();
            let in_path = parameters.iter().filter(|it| it["in"] == "path");
            let named: Vec<String> =
                in_path.map(|it| format!("{{{}}}", it["name"].as_str().unwrap())).collect();
            let segments = path.split('/').filter(|segment| segment.starts_with('{'));
            assert_eq!(named, segments.collect::<Vec<_>>(), "{method} {path}");
            assert!(named.is_empty() || responses.contains_key("404"), "{method} {path}");
        }
    }
    // Fields have the same names as in files.
    for (schema, field) in [("OFunction", "type"), ("OFunction", "macro"), ("Step", "as")] {
        let fields = schemas[schema]["properties"].as_object().unwrap();
        assert!(fields.contains_key(field), "{schema}: {:?}", fields.keys());
    }
    // Every reference resolves.
    let text = document.to_string();
    for part in text.split("\"#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn probes_metrics_and_docs_need_no_token() {
    let server = Server::new(LIMITS).await;
    for path in ["/health", "/health/live", "/health/ready"] {
        assert_eq!(server.send(open(path)).await.status, StatusCode::OK, "{path}");
    }
    server.publish().await;
    let text = "key: hello\npackage: hello\nclass: Greeter\n";
    server.yaml(DEPLOYER, "POST", "/api/v1/deployments", text).await;
    server.until(DeploymentCondition::Running).await;
    server.get("/api/v1/packages/none").await;
    let metrics = server.send(open("/metrics")).await;
    let text = String::from_utf8(metrics.body).unwrap();
    let counted =
        "pm_http_requests_total{method=\"GET\",route=\"/api/v1/packages/{name}\",status=\"404\"} 1";
    assert!(text.contains(counted), "{text}");
    assert!(text.contains("pm_cluster_reachable{cluster=\"west\"} 0"), "{text}");
    assert!(text.contains("pm_cluster_reachable{cluster=\"east\"} 1"), "{text}");
    assert!(text.contains("pm_deployments{condition=\"RUNNING\"} 1"), "{text}");
    let page = server.send(open("/docs")).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.headers.contains_key(header::CONTENT_SECURITY_POLICY));
    server.stop.send_replace(true);
    assert_eq!(server.send(open("/health/ready")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.send(open("/health/live")).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn concurrent_scrapes_share_one_evaluation_per_second() {
    let server = Server::start(LIMITS, Vec::new()).await;
    let ask = || server.send(open("/metrics"));
    let (one, two, three) = futures::join!(ask(), ask(), ask());
    assert!(one.status == StatusCode::OK && one.body == two.body && two.body == three.body);
    assert_eq!(server.metrics.evaluations.get(), 1);
    assert_eq!(ask().await.body, one.body, "requests counted since are not shown yet");
    advance(Duration::from_secs(1)).await;
    assert_ne!(ask().await.body, one.body);
    assert_eq!(server.metrics.evaluations.get(), 2);
}

/// Examples are names of existing resources and valid bodies.
#[tokio::test]
async fn openapi_examples_are_accepted() {
    let server = Server::new(LIMITS).await;
    let document = server.send(open("/openapi.json")).await.json();
    let mut bodies = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let has_example = parameter["in"] != "path" || parameter.get("example").is_some();
                assert!(has_example, "{method} {path}: {parameter}");
            }
            let Some(contents) = operation.pointer("/requestBody/content") else { continue };
            for (kind, content) in contents.as_object().unwrap() {
                let example = content.get("example").expect(path).to_string();
                bodies += 1;
                if content["schema"]["$ref"].as_str().is_some_and(|it| it.contains("/O")) {
                    let documents = oprc_models::parse(&example, "example").unwrap();
                    assert_eq!(documents.len(), 1, "{method} {path} {kind}");
                    documents[0].check().unwrap();
                }
            }
        }
    }
    assert_eq!(bodies, 13);
    let package = &document["paths"]["/api/v1/packages"]["post"]["requestBody"]["content"];
    let package = package["application/json"]["example"].to_string();
    let answered = server.yaml(DEPLOYER, "POST", "/api/v1/packages", &package).await;
    assert_eq!(answered.status, StatusCode::CREATED);
}
