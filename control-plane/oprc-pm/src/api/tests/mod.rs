//! The routes over the real service: a memory store, and a fake CRM as the cluster `east`. The
//! cluster `west` is never reachable.

mod auth;
mod deployments;
mod openapi;
mod packages;
mod streams;

use std::{fs, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode, header},
};
use http_body_util::BodyExt as _;
use oprc_cp_storage::Store;
use oprc_grpc::deployment::ClassRuntime;
use oprc_models::Diagnostic;
use oprc_rest::{Contact, DeploymentCondition};
use oprc_server::TokenFile;
use serde_json::Value;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::timeout,
};
use tower::ServiceExt as _;

use super::*;
use crate::{
    config::{ClusterConfig, Limits},
    crm_client::fake::Fake,
    planner::Defaults,
    rollout::Deadlines,
    run::{self, Components, drive},
};

const VIEWER: &str = "viewer-0123456789abcdef";
const DEPLOYER: &str = "deployer-0123456789abcdef";
const ADMIN: &str = "admin-0123456789abcdef";

const LIMITS: Limits = Limits {
    body_bytes: 64 << 10,
    requests: 16,
    streams: 2,
    timeout: Duration::from_secs(10),
    rate: 0,
    burst: 1,
};

/// A server without a port.
struct Server {
    router: Router,
    deployments: Arc<DeploymentService>,
    metrics: Arc<Metrics>,
    driving: JoinHandle<()>,
    stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A problem document as it is on the wire.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProblemBody {
    title: String,
    status: u16,
    #[serde(default)]
    detail: String,
    reason: String,
    correlation_id: String,
    #[serde(default)]
    errors: Vec<Diagnostic>,
}

impl Answered {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The problem document that every failure is.
    fn problem(&self) -> ProblemBody {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        let problem: ProblemBody = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.status, self.status.as_u16());
        assert_eq!(self.headers["x-correlation-id"], problem.correlation_id.as_str());
        assert!(!problem.reason.is_empty() && !problem.title.is_empty());
        problem
    }
}

impl Server {
    async fn new(limits: Limits) -> Self {
        Self::with_classes(limits, []).await
    }

    /// A server whose cluster `east` already runs these classes.
    async fn with_classes(limits: Limits, classes: impl IntoIterator<Item = ClassRuntime>) -> Self {
        let crm = Fake::start().await;
        crm.state
            .lock()
            .unwrap()
            .classes
            .extend(classes.into_iter().map(|class| (class.deployment_id.clone(), class)));
        let west = ClusterConfig {
            url: "http://127.0.0.1:1".to_owned(),
            default: false,
            ..crm.config("west")
        };
        let server = Self::start(limits, vec![crm.config("east"), west]).await;
        let east = server.deployments.clusters.client("east").unwrap();
        let mut changes = east.changes();
        while east.class_cache().contact() != Contact::Fresh {
            changes.changed().await.unwrap();
        }
        server
    }

    async fn start(limits: Limits, clusters: Vec<ClusterConfig>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let lines = format!(
            "vera {VIEWER} role=viewer\ndora {DEPLOYER} role=deployer\nada {ADMIN} role=admin\n\
             eve expired-0123456789abcdef role=admin expires=2020-01-01T00:00:00Z\n"
        );
        fs::write(&path, lines).unwrap();
        let (stop, stopping) = watch::channel(false);
        let store = Store::memory();
        let ownership = Arc::new(store.acquire_lease("pm", "a test").await.unwrap());
        let wiring = run::Options {
            clusters,
            crm_deadline: Duration::from_secs(20),
            in_doubt: Duration::ZERO,
            deadlines: Deadlines::default(),
            defaults: Defaults::default(),
        };
        let Components { deployments, dispatcher } =
            Components::assemble(&store, &ownership, wiring).await.unwrap();
        let driving = tokio::spawn(drive(Arc::clone(&deployments), dispatcher));
        let metrics = Arc::<Metrics>::default();
        let app = App {
            registry: deployments.registry.clone(),
            deployments: Arc::clone(&deployments),
            metrics: Arc::clone(&metrics),
            streams: Arc::new(Semaphore::new(limits.streams)),
            stopping,
        };
        let options = Options {
            access: Access::new(false, Some(TokenFile::load(&path, true).unwrap())),
            limits,
            cors_origins: vec!["https://console.example.org".to_owned()],
            docs: true,
        };
        Self { router: router(app, options), deployments, metrics, driving, stop, _folder: folder }
    }

    async fn send(&self, request: Request<Body>) -> Answered {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answered { status: parts.status, headers: parts.headers, body }
    }

    async fn publish(&self) {
        let text = package("1.0.0", "example.org/greet:1");
        let answered = self.yaml(DEPLOYER, "POST", "/api/v1/packages", &text).await;
        assert_eq!(answered.status, StatusCode::CREATED, "{}", answered.text());
    }

    /// Waits until the deployment `hello` has a condition.
    async fn until(&self, condition: DeploymentCondition) {
        let mut changes = self.deployments.cache.changes();
        let mut observed = self.deployments.clusters.client("east").unwrap().changes();
        let reached = async {
            while self.deployments.status("hello").map(|it| it.condition).ok() != Some(condition) {
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = observed.changed() => {}
                }
            }
        };
        let reached = timeout(Duration::from_mins(2), reached).await;
        reached.unwrap_or_else(|_| panic!("{:?}", self.deployments.status("hello")));
    }

    async fn get(&self, path: &str) -> Answered {
        self.send(as_(VIEWER, "GET", path).body(Body::empty()).unwrap()).await
    }

    async fn yaml(&self, token: &str, method: &str, path: &str, text: &str) -> Answered {
        let request = as_(token, method, path).header(header::CONTENT_TYPE, "application/yaml");
        self.send(request.body(Body::from(text.to_owned())).unwrap()).await
    }
}

fn as_(token: &str, method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
}

fn package(version: &str, image: &str) -> String {
    format!(
        "name: hello\nversion: {version}\nclasses:\n- key: Greeter\n  functions:\n  - name: greet\n    \
         function: greet\nfunctions:\n- key: greet\n  type: TASK\n  provision:\n    \
         deployment:\n      image: {image}\n"
    )
}
