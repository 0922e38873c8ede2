//! The OpenAPI document compared with the running server.

use std::{env, fs, path::PathBuf, process::Command, time::Duration};

use oprc_tests::{
    crm::{Crm, Options},
    in_namespace,
    pm::{ADMIN, Pm, Setup},
    workspace,
};
use serde_json::json;
use tokio::time::timeout;

/// Generates requests from the document.
const CHECKER: &str = "schemathesis==4.32.5";
/// Covering the limits of each field of packages and deployments would take thousands of requests:
/// examples and random bodies suffice there.
const CONFIGURATION: &str = r#"
[[operations]]
include-operation-id = [
    "postPackages", "postValidate", "postPlan", "postDeployments", "putDeploymentsByKey",
]
phases.coverage.enabled = false
"#;
const CHECK_TIMEOUT: Duration = Duration::from_mins(15);

/// The checker, fetched from PyPI once.
fn checker() -> PathBuf {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap();
    let folder = cache.join("oprc/python").join(CHECKER.replace("==", "-"));
    if folder.join("bin/schemathesis").is_file() {
        return folder;
    }
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    let draft = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
    let done = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(draft.path())
        .arg(CHECKER)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .output()
        .expect("python3 with pip");
    assert!(done.status.success(), "{CHECKER}: {}", String::from_utf8_lossy(&done.stderr));
    fs::rename(draft.keep(), &folder).unwrap();
    folder
}

/// Creates the objects of the document's examples, so that lists aren't empty and requests succeed.
async fn fill(pm: &Pm) {
    for name in ["hello", "counter", "shapes"] {
        let file = workspace().join(format!("examples/packages/{name}.yaml"));
        let text = fs::read_to_string(file).unwrap();
        // The packages endpoint accepts no deployments.
        pm.publish_text(text.split("\n---\n").next().unwrap()).await.unwrap();
    }
    // A revision to roll back to, and a deployment to delete.
    for seconds in [300, 600] {
        let options = json!({"progressDeadlineSeconds": seconds});
        let hello =
            json!({"key": "hello", "package": "hello", "class": "Hello", "options": options});
        pm.deploy(&hello).await.unwrap();
    }
    let counter = json!({"key": "counter", "package": "counter", "class": "Counter"});
    pm.deploy(&counter).await.unwrap();
    pm.wait_for_condition("hello", "RUNNING").await;
    for list in ["packages", "classes", "functions", "deployments", "class-runtimes", "clusters"] {
        let page = pm.get(&format!("/{list}")).await;
        assert!(page["items"].as_array().is_some_and(|items| !items.is_empty()), "{list}: {page}");
    }
    let runtime = pm.get("/class-runtimes/hello.Hello..east").await;
    assert_eq!(runtime["ownership"], "managed", "{runtime}");
    let functions = pm.get("/functions?package=hello").await;
    assert_eq!(functions["items"][0]["status"][0]["condition"], "RUNNING", "{functions}");
    assert_eq!(pm.get("/deployments/hello/history").await["items"].as_array().unwrap().len(), 2);
}

/// Sends generated requests, and validates the responses.
async fn compare(pm: &Pm) {
    let folder = tokio::task::spawn_blocking(checker).await.unwrap();
    fs::write(pm.folder().join("schemathesis.toml"), CONFIGURATION).unwrap();
    let mut command = tokio::process::Command::new(folder.join("bin/schemathesis"));
    let seed = "1";
    command
        .args(["run", &format!("{}/openapi.json", pm.url)])
        .args(["--header", &format!("Authorization: Bearer {ADMIN}")])
        .args(["--checks", "not_a_server_error,status_code_conformance"])
        .args(["--checks", "content_type_conformance,response_schema_conformance"])
        .args(["--checks", "response_headers_conformance,unsupported_method"])
        // A stream doesn't end.
        .args(["--exclude-path", "/api/v1/events"])
        .args(["--max-examples", "40", "--seed", seed, "--request-timeout", "60"])
        .args(["--no-color", "--output-sanitize", "true"])
        .env("PYTHONPATH", &folder)
        .current_dir(pm.folder())
        .kill_on_drop(true);
    let done = timeout(CHECK_TIMEOUT, command.output())
        .await
        .expect("the checker didn't end in time")
        .unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{stdout}{stderr}");
    assert!(!pm.log().contains("panicked"), "{}", pm.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_responses_conform_to_the_openapi_document() {
    in_namespace(async |ns| {
        let crm = Crm::start(ns, &Options::default()).await;
        let clusters = Setup::of([("east", crm.url.as_str())]);
        let pm = Pm::start(&clusters.with("OPRC_PM_SERVER_RATE_LIMIT", "0")).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        fill(&pm).await;
        compare(&pm).await;
    })
    .await;
}
