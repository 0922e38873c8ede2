//! Authorization, and secrecy of credentials.

use std::fs;

use hyper::{Method, StatusCode};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use oprc_tests::{
    certificate_authority::Authority,
    crm::{CrmProcess, CrmTask, Options},
    eventually, in_namespace,
    pm::{ADMIN, Pm, ROLLOUT_TIMEOUT, Setup, deployment, package},
};
use serde_json::{Value, json};

const VIEWER: &str = "a-viewer-of-the-tests";
const DEPLOYER: &str = "a-deployer-of-the-tests";
const EXPIRED: &str = "a-token-that-has-expired";

/// Writes the token file, and waits until PM has reloaded it.
async fn tokens(pm: &Pm) {
    let lines = format!(
        "admin {ADMIN} role=admin\nviewer {VIEWER} role=viewer\ndeployer {DEPLOYER} role=deployer\n\
         late {EXPIRED} role=admin expires=2020-01-01T00:00:00Z\n"
    );
    let draft = pm.folder().join("tokens.new");
    fs::write(&draft, lines).unwrap();
    fs::rename(draft, pm.folder().join("tokens")).unwrap();
    eventually("the tokens to be reloaded", ROLLOUT_TIMEOUT, || async {
        match pm.ask(Method::GET, "/api/v1/packages", None, Some(VIEWER)).await? {
            (StatusCode::OK, _) => Ok(()),
            (status, response) => Err(format!("{status}: {response}")),
        }
    })
    .await;
}

#[tokio::test]
async fn tokens_grant_the_permissions_of_their_role() {
    let pm = Pm::start(&Setup::default()).await;
    tokens(&pm).await;
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let sample = package("1.0.0");
    let packages = "/api/v1/packages";
    let version = "/api/v1/packages/sample/versions/1.0.0";
    let orphan = "/api/v1/orphans/east/a";
    for (method, path, body, token, status, reason) in [
        (&get, packages, None, None, 401, "TOKEN_REQUIRED"),
        (&get, packages, None, Some("no-such-token-at-all"), 401, "TOKEN_INVALID"),
        (&get, packages, None, Some(EXPIRED), 401, "TOKEN_EXPIRED"),
        (&get, packages, None, Some(VIEWER), 200, ""),
        (&post, packages, Some(&sample), Some(VIEWER), 403, "ROLE_REQUIRED"),
        (&post, packages, Some(&sample), Some(DEPLOYER), 201, ""),
        (&delete, version, None, Some(DEPLOYER), 403, "ROLE_REQUIRED"),
        (&delete, orphan, None, Some(DEPLOYER), 403, "ROLE_REQUIRED"),
        (&delete, version, None, Some(ADMIN), 204, ""),
        (&get, "/health/live", None, None, 200, ""),
        (&get, "/health/ready", None, None, 200, ""),
        (&get, "/metrics", None, None, 200, ""),
    ] {
        let (actual, response) = pm.ask(method.clone(), path, body, token).await.unwrap();
        assert_eq!(actual.as_u16(), status, "{method} {path} {token:?}: {response}");
        if status >= 400 {
            assert_eq!(response["reason"], reason, "{response}");
            assert_eq!(response["status"], status, "{response}");
            assert!(
                response["correlationId"].as_str().is_some_and(|id| !id.is_empty()),
                "{response}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_output_contains_a_secret() {
    const CRM: &str = "canary-1-token-of-the-crm";
    const ENV: &str = "canary-2-value-of-a-variable";
    const WRONG: &str = "canary-3-token-that-is-wrong";
    const ARGUMENT: &str = "--key=canary-4-argument";
    in_namespace(async |ns| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        fs::write(&file, format!("pm {CRM}\n")).unwrap();
        let options = Options::default()
            .with("OPRC_CRM_SECURITY_TOKEN_FILE", file.to_str().unwrap())
            // Its own logs at trace level; those of its libraries are too large.
            .with("RUST_LOG", "debug,oprc_crm=trace,oprc_server=trace");
        // A separate process, so that its log has no lines of the test.
        let crm = CrmProcess::start(ns, &options).await;
        let setup = Setup::default()
            .cluster("east", json!({"url": crm.url, "token": CRM}))
            .with("RUST_LOG", "trace");
        let pm = Pm::start(&setup).await;
        pm.wait_for_cluster("east", "HEALTHY").await;
        let mut sample = package("1.0.0");
        sample["functions"][0]["provision"]["deployment"]["env"]["PASSWORD"] = ENV.into();
        pm.publish(&sample).await;
        pm.deploy(&deployment("shop", "1.0.0")).await.unwrap();
        pm.wait_for_condition("shop", "RUNNING").await;
        // The sample rejects arguments; deploying it is enough.
        let mut sample = package("2.0.0");
        sample["functions"][0]["provision"]["deployment"]["args"] = json!([ARGUMENT]);
        sample["functions"][0]["provision"]["deployment"]["command"] = json!(["/fn", ARGUMENT]);
        pm.publish(&sample).await;
        pm.deploy(&deployment("other", "2.0.0")).await.unwrap();
        let denied = pm.ask(Method::GET, "/api/v1/packages", None, Some(WRONG)).await.unwrap();
        assert_eq!(denied.0, 401);
        let report = folder.path().join("report.tar");
        let token = folder.path().join("token");
        fs::write(&token, ADMIN).unwrap();
        let oprc = |arguments: &[&str]| {
            let done = std::process::Command::new(oprc_tests::program("oprc"))
                .args(arguments)
                .args(["--server", &pm.url, "--token-file", token.to_str().unwrap()])
                .env("OPRC_CONFIG", folder.path().join("none"))
                .output()
                .unwrap();
            assert!(
                done.status.success(),
                "{arguments:?}: {}",
                String::from_utf8_lossy(&done.stderr)
            );
            done.stdout
        };
        oprc(&["report", "--file", report.to_str().unwrap()]);
        let mut events = String::new();
        // The time includes connecting.
        for time in ["1s", "10s", "60s"] {
            let output = oprc(&["events", "--since", "0", "--for", time, "-o", "json"]);
            events = String::from_utf8(output).unwrap();
            if events.contains("deployment.created") {
                break;
            }
        }
        assert!(events.contains("deployment.created"), "no event of the deployment");
        let report = String::from_utf8_lossy(&fs::read(report).unwrap()).into_owned();
        for part in ["shop", "PASSWORD", "other", "args"] {
            assert!(report.contains(part), "the report lacks {part}");
        }
        let metrics = pm.ask(Method::GET, "/metrics", None, None).await.unwrap().1.to_string();
        // Kubernetes has Events of the running deployment, and CRM has logged its work.
        let kube_events: Api<Event> = Api::namespaced(ns.client.clone(), &ns.name);
        let kube_events = kube_events.list(&ListParams::default()).await.unwrap();
        let kubernetes = serde_json::to_string(&kube_events.items).unwrap();
        assert!(kubernetes.contains("shop"), "{kubernetes}");
        let crm_log = crm.log();
        assert!(crm_log.contains("shop."), "CRM's log lacks the deployment");
        for (what, text) in [
            ("the log", pm.log()),
            ("CRM's log", crm_log),
            ("Kubernetes' events", kubernetes),
            ("the report", report),
            ("events", events),
            ("metrics", metrics),
            ("clusters", pm.get("/clusters").await.to_string()),
        ] {
            for secret in ["canary", ADMIN] {
                assert!(!text.contains(secret), "{what} contains {secret}");
            }
        }
        for key in ["shop", "other"] {
            pm.call(Method::DELETE, &format!("/deployments/{key}"), None).await.unwrap();
            pm.wait_deleted(key).await;
        }
    })
    .await;
}

#[tokio::test]
async fn reaches_a_cluster_only_with_valid_credentials() {
    const TOKEN: &str = "the-token-of-this-crm";
    in_namespace(async |ns| {
        let folder = tempfile::tempdir().unwrap();
        let own_ca = Authority::new(&folder.path().join("ours"));
        let other_ca = Authority::new(&folder.path().join("others"));
        let (certificate, key) = own_ca.issue("crm", &["127.0.0.1", "crm.example"]);
        let tokens = folder.path().join("tokens");
        fs::write(&tokens, format!("pm {TOKEN}\n")).unwrap();
        let mut options = Options::default().with("OPRC_CRM_SECURITY_MTLS", "true");
        for (name, file) in [
            ("TLS_CERTIFICATE", &certificate),
            ("TLS_KEY", &key),
            ("TLS_CLIENT_CA", &own_ca.certificate()),
            ("TOKEN_FILE", &tokens),
        ] {
            options = options.with(&format!("OPRC_CRM_SECURITY_{name}"), file.to_str().unwrap());
        }
        let crm = CrmTask::start(ns, &options).await;
        let url = format!("https://{}", crm.address);
        let own = own_ca.issue("pm", &["pm"]);
        let foreign = other_ca.issue("pm", &["pm"]);
        let with = |ca: &Authority, client: Option<&(std::path::PathBuf, std::path::PathBuf)>| {
            let mut cluster = json!({"url": url, "ca": ca.certificate(), "token": TOKEN});
            if let Some((certificate, key)) = client {
                cluster["certificate"] = certificate.to_str().into();
                cluster["key"] = key.to_str().into();
            }
            cluster
        };
        let changed = |field: &str, value: Option<&str>| {
            let mut cluster = with(&own_ca, Some(&own));
            cluster[field] = value.into();
            cluster
        };
        let setup = Setup::default()
            .cluster("right", with(&own_ca, Some(&own)))
            .cluster("by-name", changed("serverName", Some("crm.example")))
            .cluster("wrong-ca", with(&other_ca, Some(&own)))
            .cluster("wrong-name", changed("serverName", Some("other.example")))
            .cluster("no-certificate", with(&own_ca, None))
            .cluster("foreign-certificate", with(&own_ca, Some(&foreign)))
            .cluster("wrong-token", changed("token", Some("another-token-than-that")))
            .cluster("no-token", changed("token", None))
            .cluster("no-tls", json!({"url": url.replace("https", "http"), "token": TOKEN}));
        let pm = Pm::start(&setup).await;
        pm.wait_for_cluster("right", "HEALTHY").await;
        pm.wait_for_cluster("by-name", "HEALTHY").await;
        let clusters =
            eventually("a connection attempt to each cluster", ROLLOUT_TIMEOUT, || async {
                let clusters = pm.get("/clusters").await["items"].as_array().unwrap().clone();
                let untried = |it: &&Value| it["message"].as_str().unwrap_or("").contains("yet");
                match clusters.iter().find(untried) {
                    None => Ok(clusters),
                    Some(cluster) => Err(cluster.to_string()),
                }
            })
            .await;
        for cluster in &clusters {
            let name = cluster["name"].as_str().unwrap();
            let healthy = ["right", "by-name"].contains(&name);
            let health = if healthy { "HEALTHY" } else { "UNREACHABLE" };
            assert_eq!(cluster["health"], health, "{cluster}");
            assert!(healthy || !cluster["message"].as_str().unwrap().is_empty(), "{cluster}");
        }
        let log = pm.log();
        for secret in [TOKEN, "another-token-than-that", ADMIN] {
            assert!(!log.contains(secret), "the log contains {secret}");
        }
    })
    .await;
}

#[test]
fn exits_and_names_an_invalid_setting() {
    for (variables, expected) in [
        (vec![("OPRC_PM_CRM_EAST_URL", "ftp://x")], "\"east\": url"),
        (vec![("OPRC_PM_CRM_CLUSTERS", "{\"east\": {\"ulr\": \"http://x\"}}")], "ulr"),
        (vec![("OPRC_PM_CRM_EAST_URL", "https://x:1")], "\"east\": ca"),
        (vec![("OPRC_PM_CRM_EAST_URL", "http://x:1"), ("OPRC_PM_CRM_EAST_TOKEN", " ")], "token"),
        (vec![("OPRC_PM_STORE_KIND", "mysql")], "mysql"),
        (vec![("OPRC_PM_SECURITY_AUTH", "off"), ("OPRC_PM_SERVER_HOST", "0.0.0.0")], "loopback"),
        (vec![("HTTP_PORT", "many")], "many"),
        (vec![("OPRC_PM_STORE_KIND", "etcd")], "endpoints"),
        (vec![], "token_file"),
        (vec![("OPRC_PM_SECURITY_TOKEN_FILE", "tokens")], "tokens: line 2: a token needs a role"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let lines = format!("admin {ADMIN} role=admin\nother {VIEWER}\n");
        fs::write(folder.path().join("tokens"), lines).unwrap();
        let done = std::process::Command::new(oprc_tests::program("oprc-pm"))
            .env_clear()
            .envs(variables.iter().copied())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{variables:?} is accepted");
        assert!(stderr.contains(expected), "{variables:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains(VIEWER), "{stderr}");
    }
}
