//! Examples in the OpenAPI document: for the files in `examples/packages`, published and deployed
//! to a cluster named `east`.

use serde_json::{Value, json};
use utoipa::openapi::{
    Content, Ref, RefOr,
    path::{Operation, ParameterBuilder},
};

/// Adds examples to the parameters and the body of an operation.
pub(super) fn add(method: &str, path: &str, operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && let Some(example) = value(method, path, &parameter.name)
        {
            let builder = ParameterBuilder::from(std::mem::take(parameter));
            *parameter = builder.example(Some(example)).build();
        }
    }
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        for content in body.content.values_mut() {
            if let RefOr::T(content) = content {
                content.example = body_of(content);
            }
        }
    }
}

/// Deletions have examples of their own, so that the other examples keep working.
fn value(method: &str, path: &str, name: &str) -> Option<Value> {
    let deletes = method == "delete";
    let example = match name {
        "name" if path.starts_with("/api/v1/clusters") => "east",
        "name" if deletes && !path.ends_with("/deprecation") => "shapes",
        "version" if path.contains("{version}") => "0.1.0",
        "key" if deletes => "counter",
        "name" | "key" => "hello",
        "cluster" if path.contains("{cluster}") => "east",
        "id" => "hello.Hello..east",
        "If-Match" => "*",
        "If-None-Match" => "\"0\"",
        "limit" => return Some(json!(100)),
        "dry_run" => return Some(json!(true)),
        _ => return None,
    };
    Some(example.into())
}

fn body_of(content: &Content) -> Option<Value> {
    let Some(RefOr::Ref(Ref { ref_location, .. })) = &content.schema else { return None };
    match ref_location.rsplit('/').next()? {
        "OPackage" => Some(package()),
        "OClassDeployment" => Some(json!({"key": "hello", "package": "hello", "class": "Hello"})),
        "Deprecation" => Some(json!({"reason": "0.2.0 greets in more languages"})),
        // To the previous revision.
        "Rollback" => Some(json!({})),
        "Adoption" => Some(json!({"deployment": "hello"})),
        _ => None,
    }
}

fn package() -> Value {
    json!({
        "name": "greetings",
        "version": "1.0.0",
        "metadata": {"description": "A class that greets its callers.", "tags": ["example"]},
        "functions": [{
            "key": "greet",
            "type": "TASK",
            "provision": {"deployment": {
                "image": "oprc.local/hello-fn:dev",
                "pullPolicy": "IfNotPresent",
                "healthCheck": {"path": "/healthz", "periodSeconds": 1},
            }},
        }],
        "classes": [{
            "key": "Greeter",
            "functions": [
                {"name": "greet", "function": "greet", "access": "PUBLIC", "defaultRoute": true},
            ],
        }],
    })
}
