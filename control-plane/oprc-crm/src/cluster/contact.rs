//! The way to the API server: a client that counts what it asks for and knows whether it is
//! answered.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::http::{Method, Request, Response, StatusCode, Uri, header::RETRY_AFTER};
use futures::future::BoxFuture;
use kube::{Client, Config, Resource as _, client::ClientBuilder};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

use crate::crd::ClassRuntime;

/// How long an answer may take to begin.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a connection may be silent. Bookmarks come each minute on a watch that is alive; the
/// one on events has none, and is opened again.
const SILENCE: Duration = Duration::from_mins(2);
/// A request that was given up after this long went unanswered; one that was given up sooner says
/// nothing about the server.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest pause that a server can ask for.
const LONGEST: Duration = Duration::from_mins(1);
/// How often the server is asked for a sign of life while there is none.
const PROBE: Duration = Duration::from_secs(2);

/// Requests to the API server.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Counted {
    /// How: GET, PATCH and so on.
    pub verb: String,
    /// What came of it: a status code, or `error`.
    pub code: String,
}

#[derive(Default)]
struct Doubts {
    /// The last request wasn't answered.
    unanswered: bool,
    /// Watches that can't be opened, by what they watch, and since when.
    broken: BTreeMap<String, Instant>,
    /// The server asks for patience until then.
    patience: Option<Instant>,
}

/// Whether the API server answers, and how often it was asked.
#[derive(Clone)]
pub struct Contact {
    lost: watch::Sender<bool>,
    doubts: Arc<Mutex<Doubts>>,
    /// Requests so far.
    pub requests: Family<Counted, Counter>,
}

impl Default for Contact {
    fn default() -> Self {
        let lost = watch::channel(false).0;
        Self { lost, doubts: Arc::default(), requests: Family::default() }
    }
}

impl Contact {
    /// Tells whenever that changes.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// Whether what is known of classes may be out of date: the server doesn't answer, or the watch
    /// on classes is broken.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// What couldn't be watched for at least so long.
    pub fn broken(&self, least: Duration) -> Vec<String> {
        let doubts = self.doubts();
        let long = doubts.broken.iter().filter(|(_, since)| since.elapsed() >= least);
        long.map(|(what, _)| what.clone()).collect()
    }

    /// Something isn't watched any more: that it couldn't be is no trouble.
    pub fn forget(&self, what: &str) {
        self.doubts().broken.remove(what);
    }

    /// For how long the server has asked not to be asked for anything.
    pub fn patience(&self) -> Option<Duration> {
        let rest = self.doubts().patience?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }

    /// The server asks for patience: seconds, as in the header `Retry-After`.
    fn be_patient(&self, retry_after: &str) {
        if let Ok(seconds) = retry_after.parse() {
            let pause = Duration::from_secs(seconds).min(LONGEST);
            self.doubts().patience = Some(Instant::now() + pause);
        }
    }

    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        self.doubts.lock()
    }

    /// Something came of a request.
    fn heard(&self, asked: &Asked, outcome: Result<StatusCode, ()>) {
        let mut doubts = self.doubts();
        let away = |code: StatusCode| {
            use axum::http::StatusCode as Code;
            matches!(code, Code::BAD_GATEWAY | Code::SERVICE_UNAVAILABLE | Code::GATEWAY_TIMEOUT)
        };
        doubts.unanswered = outcome.map_or(true, away);
        match (asked, outcome.is_ok_and(|code| code.is_success())) {
            (Asked::Watch(what), true) => {
                if doubts.broken.remove(what).is_some() {
                    tracing::info!(what, "watched again");
                }
            }
            (Asked::Watch(what) | Asked::List(what), false) => {
                doubts.broken.entry(what.clone()).or_insert_with(|| {
                    tracing::warn!(what, ?outcome, "can't be watched; it is tried again");
                    Instant::now()
                });
            }
            (Asked::List(_) | Asked::Other, _) => {}
        }
        let lost = doubts.unanswered || doubts.broken.contains_key(&*ClassRuntime::plural(&()));
        drop(doubts);
        self.lost.send_if_modified(|before| std::mem::replace(before, lost) != lost);
    }
}

/// What a request is about, as far as it says something about what is known.
enum Asked {
    Watch(String),
    List(String),
    Other,
}

impl Asked {
    fn of(method: &Method, uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        if method != Method::GET || query.is_empty() {
            return Self::Other;
        }
        let mut parts = uri.path().rsplit('/');
        let plural = parts.next().unwrap_or_default().to_owned();
        // Knative's Services are something else than Services.
        let what = if uri.path().contains("/serving.knative.dev/") {
            format!("knative {plural}")
        } else {
            plural
        };
        let has = |name: &str| query.split('&').any(|part| part.starts_with(name));
        if has("watch=") {
            Self::Watch(what)
        } else if has("limit=") {
            Self::List(what)
        } else {
            Self::Other
        }
    }
}

/// While the server doesn't answer, asks it for a sign of life: who asks for nothing else would
/// never know that it is back.
pub async fn probe(client: Client, contact: Contact) {
    let mut lost = contact.changes();
    loop {
        // The sender is ours: it can't be gone.
        let _ = lost.wait_for(|lost| *lost).await;
        tokio::time::sleep(PROBE).await;
        if contact.doubts().unanswered {
            let _ = tokio::time::timeout(PATIENCE + PROBE, client.apiserver_version()).await;
        }
    }
}

/// A client whose requests are counted.
pub fn client(config: Config, contact: &Contact) -> Result<Client, kube::Error> {
    patient(config, contact, SILENCE)
}

/// The same with connections that may be silent for so long.
fn patient(
    mut config: Config,
    contact: &Contact,
    silence: Duration,
) -> Result<Client, kube::Error> {
    // A proxy from the environment is meant for other hosts than this cluster's; one that the
    // kubeconfig names is meant for it.
    let from_environment = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"]
        .iter()
        .filter_map(|name| std::env::var(name).ok()?.parse::<Uri>().ok())
        .any(|proxy| config.proxy_url.as_ref() == Some(&proxy));
    if from_environment {
        config.proxy_url = None;
    }
    // Who asks decides whether and when it asks again: by then it may not lead any more.
    config.default_retry = false;
    config.read_timeout = Some(silence);
    config.reset_reader_on_write = true;
    let layer = CountLayer(contact.clone());
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

#[derive(Clone)]
struct CountLayer(Contact);

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, contact: self.0.clone() }
    }
}

#[derive(Clone)]
struct Count<S> {
    inner: S,
    contact: Contact,
}

/// A request under way. One that is given up late went unanswered.
struct Underway {
    contact: Contact,
    asked: Asked,
    verb: String,
    sent: Instant,
    ended: bool,
}

impl Underway {
    fn end(&mut self, outcome: Result<StatusCode, ()>) {
        self.ended = true;
        self.contact.heard(&self.asked, outcome);
        let code =
            outcome.map_or_else(|()| "error".to_owned(), |status| status.as_u16().to_string());
        self.contact.requests.get_or_create(&Counted { verb: self.verb.clone(), code }).inc();
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if !self.ended && self.sent.elapsed() >= PATIENCE {
            self.end(Err(()));
        }
    }
}

impl<S, B, C> Service<Request<B>> for Count<S>
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
        let mut underway = Underway {
            contact: self.contact.clone(),
            asked: Asked::of(request.method(), request.uri()),
            verb: request.method().as_str().to_owned(),
            sent: Instant::now(),
            ended: false,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = match tokio::time::timeout(ANSWER, answer).await {
                Ok(answer) => answer,
                Err(late) => Err(late.into()),
            };
            underway.end(answer.as_ref().map(Response::status).map_err(|_| ()));
            if let Ok(answer) = &answer
                && !answer.status().is_success()
                && let Some(pause) = answer.headers().get(RETRY_AFTER)
            {
                underway.contact.be_patient(pause.to_str().unwrap_or_default());
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(uri: &str) -> Asked {
        Asked::of(&Method::GET, &uri.parse().unwrap())
    }

    const CLASSES: &str = "/apis/oaas.io/v1alpha1/classruntimes";

    #[test]
    fn what_is_known_is_doubted_until_the_watch_is_open_again() {
        let contact = Contact::default();
        contact.heard(&asked(&format!("{CLASSES}?watch=true&x=y")), Err(()));
        assert!(contact.is_lost());
        // Others are answered; what is known of classes is still out of date.
        contact.heard(&Asked::Other, Ok(StatusCode::OK));
        assert!(contact.is_lost());
        assert_eq!(contact.broken(Duration::ZERO), ["classruntimes"]);
        contact.heard(&asked(&format!("{CLASSES}?watch=true")), Ok(StatusCode::OK));
        assert!(!contact.is_lost());
        assert!(contact.broken(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_server_that_can_not_serve_is_away_and_one_that_refuses_is_not() {
        let contact = Contact::default();
        for (code, lost) in [(503, true), (404, false), (504, true), (409, false), (500, false)] {
            contact.heard(&Asked::Other, Ok(StatusCode::from_u16(code).unwrap()));
            assert_eq!(contact.is_lost(), lost, "{code}");
        }
    }

    /// A connection that leads nowhere any more tells nobody.
    #[tokio::test]
    async fn a_watch_that_is_silent_for_too_long_ends() {
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
        let silence = Duration::from_millis(100);
        let client = patient(config, &Contact::default(), silence).unwrap();
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
    fn a_pause_that_is_asked_for_ends() {
        let contact = Contact::default();
        assert_eq!(contact.patience(), None);
        contact.be_patient("soon");
        assert_eq!(contact.patience(), None);
        contact.be_patient("100000");
        assert!(contact.patience().is_some_and(|pause| pause <= LONGEST));
        contact.be_patient("0");
        assert_eq!(contact.patience(), None);
    }

    #[test]
    fn a_watch_that_is_refused_is_named() {
        let contact = Contact::default();
        let uri = "/apis/serving.knative.dev/v1/namespaces/n/services?watch=true";
        contact.heard(&asked(uri), Ok(StatusCode::FORBIDDEN));
        contact.heard(&asked("/api/v1/pods?limit=500"), Ok(StatusCode::FORBIDDEN));
        assert_eq!(contact.broken(Duration::ZERO), ["knative services", "pods"]);
        assert!(!contact.is_lost());
        contact.forget("knative services");
        assert_eq!(contact.broken(Duration::ZERO), ["pods"]);
    }
}
