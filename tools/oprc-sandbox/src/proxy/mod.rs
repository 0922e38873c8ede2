//! A proxy in front of the API server, for tests: it knows clients by their certificates, counts
//! what they ask for, and lets faults befall their requests.
//!
//! It speaks for its clients with the front-proxy certificate of the cluster, so that the API
//! server sees their own user names and groups.

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
    Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

use self::{
    fault::Faults,
    tls::{Subject, Upstream, server_tls, subject, upstream},
};
pub use self::{
    fault::{Fault, Injected, Match, Seen},
    request::Asked,
};
use crate::{Cluster, Error, Result};

/// How many requests are remembered one by one; counts go on without end.
const REMEMBERED: usize = 100_000;
/// How long a client may take to show its certificate.
const HANDSHAKE: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Failure>;

/// How often each client asked for what: by client, verb and resource.
pub type Counts = BTreeMap<(String, String, String), u64>;

#[derive(Default)]
struct Book {
    seen: VecDeque<Seen>,
    counts: Counts,
    numbers: BTreeMap<String, u64>,
}

struct Shared {
    upstream: Upstream,
    authority: hyper::http::uri::Authority,
    faults: Faults,
    book: Mutex<Book>,
    /// How many requests there were, so that one can wait for more.
    total: watch::Sender<u64>,
}

/// The running proxy; it ends when this is dropped.
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

fn broken(error: impl std::fmt::Display) -> Error {
    Error::failed("Starting the proxy", error.to_string())
}

impl ApiProxy {
    /// Starts a proxy beside the API server of a cluster, on a free port.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let host = cluster.spec().host();
        let identity = cluster.pki().server(&["localhost", &host.to_string()])?;
        let tls = server_tls(&cluster.authority()?, &identity)?;
        let listener = TcpListener::bind((host, 0)).await.map_err(broken)?;
        let address: SocketAddr = listener.local_addr().map_err(broken)?;
        let api: Uri = cluster.spec().api_url().parse().map_err(broken)?;
        let shared = Arc::new(Shared {
            upstream: upstream(cluster)?,
            authority: api
                .authority()
                .cloned()
                .ok_or_else(|| broken("the API server has no address"))?,
            faults: Faults::new(),
            book: Mutex::default(),
            total: watch::Sender::new(0),
        });
        let server =
            tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&shared)));
        Ok(Self { cluster: cluster.clone(), url: format!("https://{address}"), shared, server })
    }

    /// The address of the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client through the proxy, known by that name.
    pub async fn client(&self, user: &str, group: Option<&str>) -> Result<kube::Client> {
        let identity = self.cluster.pki().client(user, group)?;
        self.cluster.client_at(&self.url, &identity).await
    }

    /// Lets a fault befall every request that matches, until the answer is dropped.
    pub fn inject(&self, matches: Match, fault: Fault) -> Injected {
        self.shared.faults.inject(matches, fault, u64::MAX)
    }

    /// Lets a fault befall the next requests that match, so many of them.
    pub fn inject_times(&self, matches: Match, fault: Fault, times: u64) -> Injected {
        self.shared.faults.inject(matches, fault, times)
    }

    /// How often each client has asked for what since the start or the last [`ApiProxy::reset`].
    pub fn counts(&self) -> Counts {
        self.shared.book().counts.clone()
    }

    /// The requests since then, one by one, the last hundred thousand of them.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.book().seen.iter().cloned().collect()
    }

    /// Begins counting anew; numbers go on.
    pub fn reset(&self) {
        let mut book = self.shared.book();
        book.counts.clear();
        book.seen.clear();
    }

    /// Waits until the counts are such that `enough` says so.
    pub async fn wait_for(&self, enough: impl Fn(&Counts) -> bool) {
        let mut total = self.shared.total.subscribe();
        while !enough(&self.counts()) {
            if total.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock()
    }

    /// Numbers and counts a request.
    fn note(&self, client: &str, asked: Asked) -> Seen {
        let mut book = self.book();
        let number = book.numbers.entry(client.to_owned()).or_default();
        *number += 1;
        let seen = Seen { client: client.to_owned(), number: *number, asked };
        let key = (seen.client.clone(), seen.asked.verb.clone(), seen.asked.resource.clone());
        *book.counts.entry(key).or_default() += 1;
        if book.seen.len() == REMEMBERED {
            book.seen.pop_front();
        }
        book.seen.push_back(seen.clone());
        drop(book);
        self.total.send_modify(|total| *total += 1);
        seen
    }
}

/// Takes connections for as long as the proxy lives; they all end with it.
async fn serve(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, tls.clone(), Arc::clone(&shared)));
                    }
                    // Too many open files, say: that passes, and not by asking at once.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: tokio::net::TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    // A client that fails here has no certificate of this cluster, and is told so by TLS.
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else {
        return;
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let Some(client) = certificates.and_then(|all| all.first()).and_then(subject) else {
        return;
    };
    let client = Arc::new(client);
    let service =
        service_fn(move |request| handle(Arc::clone(&shared), Arc::clone(&client), request));
    // An error here is a fault that was asked for, or a client that went away.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Answers one request. An error closes the connection.
async fn handle(
    shared: Arc<Shared>,
    client: Arc<Subject>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let asked = Asked::read(request.method(), request.uri());
    let numbered = shared.note(&client.name, asked);
    match shared.faults.befalling(&numbered) {
        Some((_, Fault::Refuse)) => return Err("refused on purpose".into()),
        Some((_, Fault::Status(status, retry_after))) => return status_answer(status, retry_after),
        Some((_, Fault::Delay(time))) => tokio::time::sleep(time).await,
        Some((rule, Fault::Hold)) => shared.faults.removed(rule).await,
        Some((_, Fault::Cut)) => {
            let answer = forward(&shared, &client, request).await?;
            // Read to its end: then what was asked for is done. A watch would never end.
            if numbered.asked.verb != "watch" {
                answer.into_body().collect().await?;
            }
            return Err("cut on purpose".into());
        }
        None => {}
    }
    let answer = forward(&shared, &client, request).await?;
    if numbered.asked.verb == "watch" {
        return Ok(answer.map(|body| watched(shared, numbered, body)));
    }
    Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
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
    // Nobody may say in these whom they speak for but this proxy.
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

/// A watch's answer, whose events can be held back and which can be cut at any time.
fn watched(shared: Arc<Shared>, request: Seen, body: Incoming) -> Body {
    let changes = shared.faults.changes();
    let frames = try_unfold(
        (shared, request, body, changes),
        |(shared, request, mut body, mut changes)| async {
            loop {
                let held = match shared.faults.befalling_watch(&request) {
                    Some(Fault::Cut) => return Err::<_, Failure>("cut on purpose".into()),
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

fn status_answer(status: u16, retry_after: Option<u32>) -> Result<Response<Body>, Failure> {
    let code = StatusCode::from_u16(status)?;
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
        "message": "answered by the proxy on purpose", "reason": reason, "code": status,
    });
    let body =
        Full::new(Bytes::from(text.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Ok(response)
}
