//! Requests to nodes of a grid, and what is known about their outcome.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode, header::ETAG};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tokio::time::timeout;

use super::history::{Args, Kind, Outcome, Response};

/// A request to a node that is stopped or cut off ends after this time.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// A client of one grid.
#[derive(Clone, Debug)]
pub struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    /// The part of all ETags that identifies the store of the grid.
    store: Arc<OnceLock<String>>,
}

/// What is known after a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempt {
    Done(Response),
    /// Nothing was changed, and nothing will be.
    NotDone(String),
    /// It may have happened, or may still happen.
    Unknown(String),
}

/// What is done with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    Normal,
    /// The network loses the response.
    Lost,
    /// The client closes the connection after this time.
    Abandoned(Duration),
}

impl Default for Client {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Self { http, store: Arc::default() }
    }
}

impl Client {
    /// Sends an operation to the node at this URL.
    pub async fn send(
        &self,
        node: &str,
        object: &str,
        kind: Kind,
        args: &Args,
        key: Option<&str>,
        delivery: Delivery,
    ) -> Attempt {
        let expected = args.version.map(|version| self.etag(version));
        let request = request(node, object, kind, args, expected, key);
        let limit = match delivery {
            Delivery::Abandoned(after) => after,
            Delivery::Normal | Delivery::Lost => REQUEST_TIMEOUT,
        };
        let attempt = match timeout(limit, self.exchange(request, kind)).await {
            Ok(attempt) => attempt,
            Err(_) => Attempt::Unknown(format!("{node}: no response")),
        };
        match attempt {
            Attempt::Done(_) if delivery == Delivery::Lost => {
                Attempt::Unknown(format!("{node}: the response was lost"))
            }
            attempt => attempt,
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, kind: Kind) -> Attempt {
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Attempt::NotDone(error.to_string()),
            Err(error) => return Attempt::Unknown(error.to_string()),
        };
        let status = response.status();
        let version = response.headers().get(ETAG).map(|tag| self.version(tag.to_str().unwrap()));
        match response.into_body().collect().await {
            Ok(body) => interpret(kind, status, version, &body.to_bytes()),
            Err(error) => Attempt::Unknown(error.to_string()),
        }
    }

    /// Versions are only comparable in one store, which a grid must not lose.
    fn version(&self, tag: &str) -> u64 {
        let (store, version) = tag.trim_matches('"').split_once('-').expect("an ETag");
        assert_eq!(
            self.store.get_or_init(|| store.to_owned()),
            store,
            "the grid has another store"
        );
        version.parse().unwrap()
    }

    fn etag(&self, version: u64) -> String {
        format!("\"{}-{version}\"", self.store.get().expect("a version from a response"))
    }

    /// A GET of a path, for tests.
    pub async fn get(&self, url: &str) -> Result<(StatusCode, Value), String> {
        self.json(Request::get(url).body(Full::default()).unwrap()).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> Result<(StatusCode, Value), String> {
        self.json(Request::post(url).body(Full::from(body.to_string())).unwrap()).await
    }

    async fn json(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Value), String> {
        let exchange = async {
            let response = self.http.request(request).await.map_err(|it| it.to_string())?;
            let status = response.status();
            let body = response.into_body().collect().await.map_err(|it| it.to_string())?;
            Ok((status, serde_json::from_slice(&body.to_bytes()).unwrap_or_default()))
        };
        timeout(REQUEST_TIMEOUT, exchange).await.map_err(|_| "no response".to_owned())?
    }
}

fn request(
    node: &str,
    object: &str,
    kind: Kind,
    args: &Args,
    expected: Option<String>,
    key: Option<&str>,
) -> Request<Full<Bytes>> {
    let (method, path) = match kind {
        Kind::Create | Kind::Put => ("PUT", ""),
        Kind::Patch => ("PATCH", ""),
        Kind::Delete => ("DELETE", ""),
        Kind::Get => ("GET", ""),
        Kind::Increment => ("POST", "/increment"),
    };
    let mut request =
        Request::builder().method(method).uri(format!("{node}/objects/{object}{path}"));
    if kind == Kind::Create {
        request = request.header("if-none-match", "*");
    }
    if let Some(expected) = expected {
        request = request.header("if-match", expected);
    }
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let body = match (&args.state, args.by) {
        (Some(state), _) => serde_json::to_vec(state).unwrap(),
        (None, Some(by)) => serde_json::json!({"by": by}).to_string().into_bytes(),
        (None, None) => Vec::new(),
    };
    request.body(Full::from(body)).unwrap()
}

/// Only a response that says so leaves the outcome open, or one that isn't from the grid.
fn interpret(kind: Kind, status: StatusCode, version: Option<u64>, body: &[u8]) -> Attempt {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    if status.is_success() {
        let state = (kind == Kind::Get).then(|| body["state"].as_object().unwrap().clone());
        let count = (kind == Kind::Increment).then(|| body.as_u64().unwrap());
        return Attempt::Done(Response { outcome: Outcome::Ok, version, state, count });
    }
    let reason = body["reason"].as_str().unwrap_or_default();
    let text = format!("{status} {reason}: {}", body["detail"].as_str().unwrap_or_default());
    match (status, reason) {
        (StatusCode::NOT_FOUND, "NOT_FOUND") => Attempt::Done(Outcome::Absent.into()),
        (StatusCode::PRECONDITION_FAILED, "CHANGED") => Attempt::Done(Outcome::Changed.into()),
        (_, "" | "UNKNOWN_OUTCOME") => Attempt::Unknown(text),
        _ if status.is_server_error() => Attempt::NotDone(text),
        _ => panic!("{kind:?}: {text}"),
    }
}
