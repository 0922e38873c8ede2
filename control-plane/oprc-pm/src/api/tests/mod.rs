//! The routes as callers meet them, over a registry in memory and deployments that are made up.

mod access;
mod answers;
mod document;
mod fake;
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
use oprc_rest::Problem;
use oprc_server::TokenFile;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt as _;

use super::*;
use crate::{config::Limits, state::Cache};

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
    fake: Arc<fake::Fake>,
    stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

/// What was answered.
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The problem document that every failure is.
    fn problem(&self) -> Problem {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        let problem: Problem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.status, self.status.as_u16());
        assert_eq!(self.headers["x-correlation-id"], problem.correlation_id.as_str());
        assert!(!problem.reason.is_empty() && !problem.title.is_empty());
        problem
    }
}

impl Server {
    async fn new(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let lines = format!(
            "vera {VIEWER} role=viewer\ndora {DEPLOYER} role=deployer\nada {ADMIN} role=admin\n\
             eve expired-0123456789abcdef role=admin expires=2020-01-01T00:00:00Z\n"
        );
        fs::write(&path, lines).unwrap();
        let (stop, stopping) = watch::channel(false);
        let fake = Arc::new(fake::Fake::default());
        let cache = Arc::new(Cache::load(Store::memory()).await.unwrap());
        let following = Arc::clone(&cache);
        tokio::spawn(async move { following.follow().await });
        let app = App {
            registry: Registry::new(cache),
            deployments: fake.clone(),
            metrics: Arc::default(),
            streams: Arc::new(Semaphore::new(limits.streams)),
            stopping,
        };
        let options = Options {
            access: Access::new(false, Some(TokenFile::with_roles(&path).unwrap())),
            limits,
            cors_origins: vec!["https://console.example.org".to_owned()],
            docs: true,
        };
        Self { router: router(app, options), fake, stop, _folder: folder }
    }

    async fn send(&self, request: Request<Body>) -> Answered {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answered { status: parts.status, headers: parts.headers, body }
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
         function: greet\nfunctions:\n- key: greet\n  type: TASK\n  provision:\n    knative:\n      \
         image: {image}\n"
    )
}
