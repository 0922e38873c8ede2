//! A proxy of the API server for tests. It identifies clients by their certificates, counts their
//! requests and injects faults.
//!
//! It impersonates its clients with the front-proxy certificate of the cluster, so that the API
//! server sees their user names and groups.

mod fault;
mod request;
mod tls;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::stream::try_unfold;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use self::{
    fault::Faults,
    tls::{Subject, Upstream, server_tls, subject, upstream},
};
pub use self::{
    fault::{Fault, InjectedFault, Match, RecordedRequest},
    request::RequestInfo,
};
use crate::{Cluster, Error, Result};

/// Older requests are only counted.
const MAX_RECORDED: usize = 100_000;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Failure>;

/// Number of requests by client, verb and resource.
pub type Counts = BTreeMap<(String, String, String), u64>;

#[derive(Default)]
struct RequestLog {
    recorded: VecDeque<RecordedRequest>,
    counts: Counts,
    numbers: BTreeMap<String, u64>,
}

struct Shared {
    upstream: Upstream,
    authority: hyper::http::uri::Authority,
    faults: Faults,
    log: Mutex<RequestLog>,
    /// Total number of requests, to wait for more.
    total: watch::Sender<u64>,
}

/// A running proxy; dropping it stops the proxy.
pub struct ApiProxy {
    cluster: Cluster,
    url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::failed("Starting the proxy", error)
}

impl ApiProxy {
    /// Starts a proxy on a free port of the API server's address.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let host = cluster.spec().host();
        let identity = cluster.pki().server(&["localhost", &host.to_string()])?;
        let tls = server_tls(&cluster.pki().authority()?, &identity)?;
        let listener = TcpListener::bind((host, 0)).await.map_err(failed)?;
        let address: SocketAddr = listener.local_addr().map_err(failed)?;
        let api: Uri = cluster.spec().api_url().parse().map_err(failed)?;
        let authority = api.authority().cloned();
        let shared = Arc::new(Shared {
            upstream: upstream(cluster)?,
            authority: authority.ok_or_else(|| failed("the API server URL has no address"))?,
            faults: Faults::default(),
            log: Mutex::default(),
            total: watch::Sender::default(),
        });
        let server =
            tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&shared)));
        Ok(Self { cluster: cluster.clone(), url: format!("https://{address}"), shared, server })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client that connects as `user` through the proxy.
    pub async fn client(&self, user: &str, group: Option<&str>) -> Result<kube::Client> {
        let identity = self.cluster.pki().client(user, group)?;
        self.cluster.client_at(&self.url, &identity).await
    }

    /// Injects a fault into all matching requests until the guard is dropped.
    pub fn inject(&self, matches: Match, fault: Fault) -> InjectedFault {
        self.shared.faults.inject(matches, fault, u64::MAX)
    }

    /// Injects a fault into the next `times` matching requests.
    pub fn inject_times(&self, matches: Match, fault: Fault, times: u64) -> InjectedFault {
        self.shared.faults.inject(matches, fault, times)
    }

    /// Request counts since the start or the last [`ApiProxy::reset`].
    pub fn counts(&self) -> Counts {
        self.shared.log.lock().counts.clone()
    }

    /// The requests since then, at most the last hundred thousand.
    pub fn recorded(&self) -> Vec<RecordedRequest> {
        self.shared.log.lock().recorded.iter().cloned().collect()
    }

    /// Clears counts and recorded requests; the numbering continues.
    pub fn reset(&self) {
        let mut log = self.shared.log.lock();
        log.counts.clear();
        log.recorded.clear();
    }

    /// Waits until `enough` returns true for the counts.
    pub async fn wait_for(&self, enough: impl Fn(&Counts) -> bool) {
        let _ = self.shared.total.subscribe().wait_for(|_| enough(&self.counts())).await;
    }
}

impl Shared {
    /// Numbers, counts and records a request.
    fn record(&self, client: &str, info: RequestInfo) -> RecordedRequest {
        let mut log = self.log.lock();
        let number = log.numbers.entry(client.to_owned()).or_default();
        *number += 1;
        let request = RecordedRequest { client: client.to_owned(), number: *number, info };
        let key = (client.to_owned(), request.info.verb.clone(), request.info.resource.clone());
        *log.counts.entry(key).or_default() += 1;
        if log.recorded.len() == MAX_RECORDED {
            log.recorded.pop_front();
        }
        log.recorded.push_back(request.clone());
        drop(log);
        self.total.send_modify(|total| *total += 1);
        request
    }
}

/// Accepts connections until the task is aborted, which also closes them.
async fn serve(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, tls.clone(), Arc::clone(&shared)));
                    }
                    // For example too many open files: retrying immediately would fail, too.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    // TLS reports the error to a client without a certificate of this cluster.
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await;
    let Ok(Ok(stream)) = handshake else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
    let Some(client) = certificate.and_then(subject).map(Arc::new) else { return };
    let service =
        service_fn(move |request| handle(Arc::clone(&shared), Arc::clone(&client), request));
    // An error is an injected fault or a closed connection.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Handles one request. An error closes the connection.
async fn handle(
    shared: Arc<Shared>,
    client: Arc<Subject>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let info = RequestInfo::parse(request.method(), request.uri());
    let recorded = shared.record(&client.name, info);
    match shared.faults.take(&recorded) {
        Some((_, Fault::DropRequest)) => return Err("request dropped by an injected fault".into()),
        Some((_, Fault::Status(status, retry_after))) => {
            return status_response(status, retry_after);
        }
        Some((_, Fault::Delay(time))) => tokio::time::sleep(time).await,
        Some((rule, Fault::Hold)) => shared.faults.removed(rule).await,
        Some((_, Fault::DropResponse)) => {
            let response = forward(&shared, &client, request).await?;
            // Read to the end, so that the request is completed. A watch would never end.
            if recorded.info.verb != "watch" {
                response.into_body().collect().await?;
            }
            return Err("response dropped by an injected fault".into());
        }
        None => {}
    }
    let response = forward(&shared, &client, request).await?;
    if recorded.info.verb == "watch" {
        return Ok(response.map(|body| watched(shared, recorded, body)));
    }
    Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
}

async fn forward(
    shared: &Shared,
    client: &Subject,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Failure> {
    let mut target = std::mem::take(request.uri_mut()).into_parts();
    target.scheme = Some(hyper::http::uri::Scheme::HTTPS);
    target.authority = Some(shared.authority.clone());
    *request.uri_mut() = Uri::from_parts(target)?;
    let headers = request.headers_mut();
    headers.remove(AUTHORIZATION);
    headers.remove(hyper::header::HOST);
    // Clients must not set impersonation headers themselves.
    let claimed: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    for name in claimed {
        headers.remove(name);
    }
    headers.insert(HeaderName::from_static("x-remote-user"), HeaderValue::from_str(&client.name)?);
    for group in &client.groups {
        headers.append(HeaderName::from_static("x-remote-group"), HeaderValue::from_str(group)?);
    }
    Ok(shared.upstream.request(request).await?)
}

/// The body of a watch response, which faults can hold or close at any time.
fn watched(shared: Arc<Shared>, request: RecordedRequest, body: Incoming) -> Body {
    let changes = shared.faults.changed.subscribe();
    let frames = try_unfold(
        (shared, request, body, changes),
        |(shared, request, mut body, mut changes)| async {
            loop {
                let held = match shared.faults.take_for_watch(&request) {
                    Some(Fault::DropResponse) => {
                        return Err::<_, Failure>("watch closed by an injected fault".into());
                    }
                    fault => fault == Some(Fault::Hold),
                };
                tokio::select! {
                    biased;
                    changed = changes.changed() => changed?,
                    frame = body.frame(), if !held => match frame.transpose()? {
                        None => return Ok(None),
                        Some(frame) => return Ok(Some((frame, (shared, request, body, changes)))),
                    },
                }
            }
        },
    );
    StreamBody::new(frames).boxed_unsync()
}

fn status_response(status: u16, retry_after: Option<u32>) -> Result<Response<Body>, Failure> {
    let reason = match status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let text = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected by the proxy", "reason": reason, "code": status,
    });
    let body =
        Full::new(Bytes::from(text.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    Ok(response.body(body)?)
}
