//! Clients that call a method of objects, one call after the other each.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use axum::{Json, Router, routing::post, serve::ListenerExt as _};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::objects;

const DURATION: Duration = Duration::from_millis(1500);

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// Each call is of any of these.
    pub(crate) objects: usize,
    pub(crate) clients: usize,
    /// Whether calls have an idempotency key.
    pub(crate) keyed: bool,
}

pub(crate) type Sender = http1::SendRequest<Full<Bytes>>;

pub(crate) async fn connect(address: SocketAddr) -> Result<Sender, String> {
    let stream = TcpStream::connect(address).await.map_err(|it| it.to_string())?;
    stream.set_nodelay(true).map_err(|it| it.to_string())?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|it| it.to_string())?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The body of a successful response.
pub(crate) async fn send(
    sender: &mut Sender,
    request: Request<Full<Bytes>>,
) -> Result<Bytes, String> {
    sender.ready().await.map_err(|it| it.to_string())?;
    let response = sender.send_request(request).await.map_err(|it| it.to_string())?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|it| it.to_string())?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    Err(format!("{status}: {}", String::from_utf8_lossy(&body)))
}

/// Calls until the time is over. Returns sorted latencies and the time from the first call to the last.
pub(crate) async fn run(addresses: &[SocketAddr], workload: Workload) -> (Vec<Duration>, Duration) {
    let mut senders = Vec::new();
    for address in addresses.iter().cycle().take(workload.clients) {
        senders.push(connect(*address).await.unwrap());
    }
    let (mut clients, started) = (JoinSet::new(), Instant::now());
    for mut sender in senders {
        clients.spawn(async move {
            let mut latencies = Vec::new();
            while started.elapsed() < DURATION {
                let id = objects::id(fastrand::usize(..workload.objects));
                let mut request =
                    Request::post(format!("/objects/{id}/increment")).header("host", "bench");
                if workload.keyed {
                    request = request.header("idempotency-key", fastrand::u64(..).to_string());
                }
                let sent = Instant::now();
                send(&mut sender, request.body(Full::default()).unwrap()).await.unwrap();
                latencies.push(sent.elapsed());
            }
            latencies
        });
    }
    let mut all = clients.join_all().await.concat();
    let took = started.elapsed();
    all.sort_unstable();
    (all, took)
}

/// Starts the function of the method, and returns its URL.
pub(crate) async fn function() -> String {
    let increment = async |Json(mut call): Json<Value>| {
        let mut state = call["object"]["state"].take();
        let count = state["count"].as_u64().unwrap() + 1;
        state["count"] = json!(count);
        Json(json!({"object": {"state": state}, "result": count}))
    };
    let address =
        serve(([127, 0, 0, 1], 0).into(), Router::new().route("/", post(increment))).await;
    format!("http://{address}/")
}

/// Serves in the background.
pub(crate) async fn serve(address: SocketAddr, router: Router) -> SocketAddr {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    address
}
