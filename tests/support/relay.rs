//! A proxy between PM and a CRM or an etcd. It counts writing calls, can reject them, can be
//! unreachable, and can kill PM before or after any of them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// Calls that write.
const WRITES: [&str; 3] = [
    "/deployment.DeploymentService/Deploy",
    "/deployment.DeploymentService/DeleteDeployment",
    "/etcdserverpb.KV/Txn",
];

type Kill = Box<dyn FnOnce() + Send>;

/// Kills a process at a chosen point: before a call is forwarded, or before its response is. Points
/// are counted over all relays that share a trap.
#[derive(Clone, Default)]
pub struct Trap(Arc<TrapState>);

#[derive(Default)]
struct TrapState {
    passed: AtomicUsize,
    at: Mutex<Option<(usize, Kill)>>,
    sprung: watch::Sender<bool>,
}

impl Trap {
    /// Kills at this point, counted from now, starting with 0.
    pub fn arm(&self, point: usize, kill: impl FnOnce() + Send + 'static) {
        let mut at = self.0.at.lock().unwrap();
        self.0.passed.store(0, Ordering::SeqCst);
        *at = Some((point, Box::new(kill)));
    }

    pub fn disarm(&self) {
        *self.0.at.lock().unwrap() = None;
    }

    pub async fn sprung(&self) {
        let mut sprung = self.0.sprung.subscribe();
        let _ = sprung.wait_for(|sprung| *sprung).await;
    }

    /// False if the process was killed here.
    fn passes(&self) -> bool {
        let mut at = self.0.at.lock().unwrap();
        let here = self.0.passed.fetch_add(1, Ordering::SeqCst);
        match at.take() {
            Some((point, kill)) if point == here => {
                kill();
                self.0.sprung.send_replace(true);
                false
            }
            other => {
                *at = other;
                true
            }
        }
    }
}

/// A relay to one server.
pub struct Relay {
    pub url: String,
    refuses: Arc<AtomicBool>,
    away: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct RelayState {
    to: String,
    trap: Trap,
    refuses: Arc<AtomicBool>,
    away: watch::Receiver<bool>,
    client: Client<HttpConnector, Body>,
}

impl Relay {
    /// Starts a relay to a URL.
    pub async fn start(to: &str, trap: &Trap) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let refuses = Arc::new(AtomicBool::new(false));
        let (away, is_away) = watch::channel(false);
        let state = RelayState {
            to: to.to_owned(),
            trap: trap.clone(),
            refuses: refuses.clone(),
            away: is_away,
            client: Client::builder(TokioExecutor::new()).http2_only(true).build_http(),
        };
        let router = Router::new().fallback(forward).with_state(state);
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { url, refuses, away, task }
    }

    /// Whether Deploy calls fail with FAILED_PRECONDITION.
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Whether the server is unreachable: calls fail, and open streams end.
    pub fn away(&self, away: bool) {
        self.away.send_replace(away);
    }
}

async fn forward(State(state): State<RelayState>, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if *state.away.borrow() {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let writes = WRITES.contains(&path.as_str());
    if writes && !state.trap.passes() {
        return no_response().await;
    }
    if path == WRITES[0] && state.refuses.load(Ordering::SeqCst) {
        let headers = [
            ("content-type", "application/grpc"),
            // FAILED_PRECONDITION
            ("grpc-status", "9"),
            ("grpc-message", "refused by the test"),
        ];
        return headers.into_response();
    }
    *request.uri_mut() = format!("{}{path}", state.to).parse::<Uri>().unwrap();
    let response = match state.client.request(request).await {
        Ok(response) => response.map(|body| until_away(Body::new(body), state.away.clone())),
        Err(_) => return StatusCode::BAD_GATEWAY.into_response(),
    };
    if writes && !state.trap.passes() {
        return no_response().await;
    }
    response
}

/// The response, until the server becomes unreachable.
fn until_away(body: Body, mut away: watch::Receiver<bool>) -> Body {
    let is_away = async move { drop(away.wait_for(|away| *away).await) };
    Body::new(StreamBody::new(BodyStream::new(body).take_until(Box::pin(is_away))))
}

/// No response, because the caller was killed.
async fn no_response() -> Response {
    std::future::pending().await
}
