//! The client of the API server: counts its requests and tracks whether the server responds.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::http::{Method, Request, Response, StatusCode, Uri, header::RETRY_AFTER};
use futures::future::BoxFuture;
use kube::{Client, Config, Resource as _, client::ClientBuilder};
use parking_lot::Mutex;
use prometheus_client::metrics::{counter::Counter, family::Family};
use tokio::sync::watch;
use tower::{BoxError, Service, layer::layer_fn};

use super::optional_apis::watch_name_in;
use crate::crd::ClassRuntime;

/// Bound on the time until the headers of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may be silent. A watch that is alive has a bookmark each minute; the one on
/// Events has none, and is reopened.
const READ_TIMEOUT: Duration = Duration::from_mins(2);
/// A request that was cancelled after this long counts as unanswered; one that was cancelled sooner
/// says nothing about the server.
const CANCELLED_UNANSWERED: Duration = Duration::from_secs(3);
/// Cap on `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// Pause between probes of a server that doesn't respond.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    /// The last request got no response.
    unanswered: bool,
    /// Watches that can't be opened, and since when.
    failing_watches: BTreeMap<String, Instant>,
    /// When the last `Retry-After` ends.
    retry_at: Option<Instant>,
}

/// Whether the API server responds, and how many requests it was sent.
#[derive(Clone, Default)]
pub struct ApiHealth {
    stale: watch::Sender<bool>,
    state: Arc<Mutex<State>>,
    /// By verb and by code: a status code, or `error` without a response.
    pub requests: Family<[(&'static str, String); 2], Counter>,
}

impl ApiHealth {
    /// Notifies whenever [`Self::is_stale`] changes.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.stale.subscribe()
    }

    /// Whether the cached classes may be out of date: the server doesn't respond, or the watch on
    /// ClassRuntimes fails.
    pub fn is_stale(&self) -> bool {
        *self.stale.borrow()
    }

    /// Watches that have been failing for at least `min_age`.
    pub fn failing_watches(&self, min_age: Duration) -> Vec<String> {
        let state = self.state.lock();
        let long = state.failing_watches.iter().filter(|(_, since)| since.elapsed() >= min_age);
        long.map(|(what, _)| what.clone()).collect()
    }

    /// Drops the failure record of a watch that was stopped.
    pub fn remove_watch(&self, what: &str) {
        self.state.lock().failing_watches.remove(what);
    }

    /// The rest of the pause that the server requested with `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        let rest = self.state.lock().retry_at?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }

    fn set_retry_after(&self, seconds: &str) {
        if let Ok(seconds) = seconds.parse() {
            let pause = Duration::from_secs(seconds).min(MAX_RETRY_AFTER);
            self.state.lock().retry_at = Some(Instant::now() + pause);
        }
    }

    fn record(&self, request: &RequestKind, outcome: Result<StatusCode, ()>) {
        let mut state = self.state.lock();
        let unavailable = |code: StatusCode| {
            use axum::http::StatusCode as Code;
            matches!(code, Code::BAD_GATEWAY | Code::SERVICE_UNAVAILABLE | Code::GATEWAY_TIMEOUT)
        };
        state.unanswered = outcome.map_or(true, unavailable);
        match (request, outcome.is_ok_and(|code| code.is_success())) {
            (RequestKind::Watch(what), true) => {
                if state.failing_watches.remove(what).is_some() {
                    tracing::info!(what, "watch reopened");
                }
            }
            (RequestKind::Watch(what) | RequestKind::List(what), false) => {
                state.failing_watches.entry(what.clone()).or_insert_with(|| {
                    tracing::warn!(what, ?outcome, "watch failed, retrying");
                    Instant::now()
                });
            }
            (RequestKind::List(_) | RequestKind::Other, _) => {}
        }
        let stale =
            state.unanswered || state.failing_watches.contains_key(&*ClassRuntime::plural(&()));
        drop(state);
        self.stale.send_if_modified(|before| std::mem::replace(before, stale) != stale);
    }
}

/// What a request says about the caches.
enum RequestKind {
    Watch(String),
    List(String),
    Other,
}

impl RequestKind {
    fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().filter(|_| method == Method::GET).unwrap_or_default();
        let has = |name: &str| query.split('&').any(|part| part.starts_with(name));
        // The only ConfigMap that CRM watches is optional, and so is the permission to read it.
        if uri.path().ends_with("/configmaps") {
            Self::Other
        } else if has("watch=") {
            Self::Watch(watch_name_in(uri.path()))
        } else if has("limit=") {
            Self::List(watch_name_in(uri.path()))
        } else {
            Self::Other
        }
    }
}

/// Probes the server while it doesn't respond: an idle CRM would never notice that it is back.
pub async fn probe(client: Client, api_health: ApiHealth) {
    let mut stale = api_health.changes();
    loop {
        // `api_health` holds the sender, so this can't fail.
        let _ = stale.wait_for(|stale| *stale).await;
        tokio::time::sleep(PROBE_INTERVAL).await;
        if api_health.state.lock().unanswered {
            let bound = CANCELLED_UNANSWERED + PROBE_INTERVAL;
            let _ = tokio::time::timeout(bound, client.apiserver_version()).await;
        }
    }
}

/// A client whose requests are recorded in `api_health`.
pub fn client(config: Config, api_health: &ApiHealth) -> Result<Client, kube::Error> {
    with_read_timeout(config, api_health, READ_TIMEOUT)
}

fn with_read_timeout(
    mut config: Config,
    api_health: &ApiHealth,
    read_timeout: Duration,
) -> Result<Client, kube::Error> {
    // A proxy from the environment is not meant for the cluster; one in the kubeconfig is.
    let from_environment = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"]
        .iter()
        .filter_map(|name| std::env::var(name).ok()?.parse::<Uri>().ok())
        .any(|proxy| config.proxy_url.as_ref() == Some(&proxy));
    if from_environment {
        config.proxy_url = None;
    }
    // Callers retry themselves: by then this process may no longer be the leader.
    config.default_retry = false;
    config.read_timeout = Some(read_timeout);
    config.reset_reader_on_write = true;
    let layer = layer_fn(|inner| RecordingClient { inner, api_health: api_health.clone() });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

#[derive(Clone)]
struct RecordingClient<S> {
    inner: S,
    api_health: ApiHealth,
}

struct InFlight {
    api_health: ApiHealth,
    kind: RequestKind,
    verb: String,
    sent: Instant,
    ended: bool,
}

impl InFlight {
    fn end(&mut self, outcome: Result<StatusCode, ()>) {
        self.ended = true;
        self.api_health.record(&self.kind, outcome);
        let code =
            outcome.map_or_else(|()| "error".to_owned(), |status| status.as_u16().to_string());
        let labels = [("verb", self.verb.clone()), ("code", code)];
        self.api_health.requests.get_or_create(&labels).inc();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if !self.ended && self.sent.elapsed() >= CANCELLED_UNANSWERED {
            self.end(Err(()));
        }
    }
}

impl<S, B, C> Service<Request<B>> for RecordingClient<S>
where
    S: Service<Request<B>, Response = Response<C>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<C>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<C>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut in_flight = InFlight {
            api_health: self.api_health.clone(),
            kind: RequestKind::of(request.method(), request.uri()),
            verb: request.method().as_str().to_owned(),
            sent: Instant::now(),
            ended: false,
        };
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = tokio::time::timeout(RESPONSE_TIMEOUT, response).await;
            let response = response.unwrap_or_else(|elapsed| Err(elapsed.into()));
            in_flight.end(response.as_ref().map(Response::status).map_err(|_| ()));
            if let Ok(response) = &response
                && !response.status().is_success()
                && let Some(seconds) = response.headers().get(RETRY_AFTER)
            {
                in_flight.api_health.set_retry_after(seconds.to_str().unwrap_or_default());
            }
            response
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(uri: &str) -> RequestKind {
        RequestKind::of(&Method::GET, &uri.parse().unwrap())
    }

    const CLASSES: &str = "/apis/oaas.io/v1alpha1/classruntimes";

    #[test]
    fn cache_is_stale_until_the_watch_is_reopened() {
        let api_health = ApiHealth::default();
        api_health.record(&get(&format!("{CLASSES}?watch=true&x=y")), Err(()));
        assert!(api_health.is_stale());
        // Other requests succeed; the cached classes are still out of date.
        api_health.record(&RequestKind::Other, Ok(StatusCode::OK));
        assert!(api_health.is_stale());
        assert_eq!(api_health.failing_watches(Duration::ZERO), ["classruntimes"]);
        api_health.record(&get(&format!("{CLASSES}?watch=true")), Ok(StatusCode::OK));
        assert!(!api_health.is_stale());
        assert!(api_health.failing_watches(Duration::ZERO).is_empty());
    }

    #[test]
    fn unavailable_server_makes_the_cache_stale_and_a_rejection_does_not() {
        let api_health = ApiHealth::default();
        for (code, stale) in [
            (503, true),
            (404, false),
            (504, true),
            (409, false),
            (500, false),
            (401, false),
            (429, false),
        ] {
            api_health.record(&RequestKind::Other, Ok(StatusCode::from_u16(code).unwrap()));
            assert_eq!(api_health.is_stale(), stale, "{code}");
        }
    }

    /// A connection whose peer is gone reports no error.
    #[tokio::test]
    async fn silent_watch_times_out() {
        use futures::StreamExt as _;
        use k8s_openapi::api::core::v1::ConfigMap;
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4096]).await.unwrap();
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            connection.write_all(head.as_bytes()).await.unwrap();
            // It stays open.
            std::future::pending::<()>().await;
        };
        let config = Config::new(format!("http://{address}").parse().unwrap());
        let read_timeout = Duration::from_millis(100);
        let client = with_read_timeout(config, &ApiHealth::default(), read_timeout).unwrap();
        let watch = async {
            let api = kube::Api::<ConfigMap>::namespaced(client, "default");
            let mut events = api.watch(&kube::api::WatchParams::default(), "0").await?.boxed();
            events.next().await.transpose()
        };
        let ended = tokio::select! {
            () = server => unreachable!(),
            ended = tokio::time::timeout(Duration::from_secs(20), watch) => ended,
        };
        assert!(matches!(ended, Ok(Err(_))), "{ended:?}");
    }

    #[test]
    fn retry_after_is_capped_and_expires() {
        let api_health = ApiHealth::default();
        assert_eq!(api_health.retry_after(), None);
        api_health.set_retry_after("soon");
        assert_eq!(api_health.retry_after(), None);
        api_health.set_retry_after("100000");
        assert!(api_health.retry_after().is_some_and(|rest| rest <= MAX_RETRY_AFTER));
        api_health.set_retry_after("0");
        assert_eq!(api_health.retry_after(), None);
    }

    #[test]
    fn failing_watches_are_named() {
        let api_health = ApiHealth::default();
        let uri = "/apis/serving.knative.dev/v1/namespaces/n/services?watch=true";
        api_health.record(&get(uri), Ok(StatusCode::FORBIDDEN));
        api_health.record(&get("/api/v1/pods?limit=500"), Ok(StatusCode::FORBIDDEN));
        let optional = "/api/v1/namespaces/n/configmaps?limit=500";
        api_health.record(&get(optional), Ok(StatusCode::FORBIDDEN));
        assert_eq!(api_health.failing_watches(Duration::ZERO), ["knative services", "pods"]);
        assert!(!api_health.is_stale());
        api_health.remove_watch("knative services");
        assert_eq!(api_health.failing_watches(Duration::ZERO), ["pods"]);
    }
}
