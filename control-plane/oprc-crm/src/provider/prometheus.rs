//! Queries over the HTTP API of Prometheus.

use std::{
    error::Error as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response, Uri,
    body::{Body as _, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::mpsc;

use super::{
    MAX_BODY_BYTES, MetricsProvider, QueryError, RangeQuery, Received, SeriesSet, SeriesSink,
    answer::{Expected, ResultType, parse, parse_error},
    body_reader::body_channel,
    breaker::Breaker,
    tls::{Connector, TlsFiles, file_error, read},
};
use crate::deadline::until;

/// Bound on the body of an answer whose status is an error.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Bound on the answer to an instant query, which is held in memory.
const MAX_INSTANT_BYTES: usize = 1 << 20;
const MAX_RETRIES: usize = 2;
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Connections don't outlive a pass for long, so that new certificates are used soon.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusOptions {
    /// With the path prefix of the API, if it has one; see [`url_problem`].
    pub url: String,
    /// Bound on one query with its retries.
    pub timeout: Duration,
    /// By default the CAs of the system.
    pub ca_file: Option<PathBuf>,
    /// Read for each request.
    pub token_file: Option<PathBuf>,
    /// Certificate chain and private key, read for each connection.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// Why this isn't the base URL of a Prometheus server.
pub fn url_problem(url: &str) -> Option<&'static str> {
    let Ok(uri) = url.parse::<Uri>() else { return Some("not a URL") };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Some("must start with http:// or https://");
    }
    if uri.host().is_none_or(str::is_empty) {
        return Some("has no host");
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Some("must not contain credentials: use a token file");
    }
    // hyper drops the fragment.
    (uri.query().is_some() || url.contains('#')).then_some("must not have a query or fragment")
}

/// A client of one server, with pooled connections.
pub struct PrometheusProvider {
    http: Client<Connector, Full<Bytes>>,
    /// Without a trailing slash.
    url: String,
    timeout: Duration,
    token_file: Option<PathBuf>,
    breaker: Mutex<Breaker>,
}

impl PrometheusProvider {
    /// Doesn't connect and doesn't read files yet.
    pub fn new(options: PrometheusOptions) -> Result<Self, String> {
        let PrometheusOptions { url, timeout, ca_file, token_file, client_certificate } = options;
        if let Some(problem) = url_problem(&url) {
            return Err(problem.to_owned());
        }
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(Connector::new(TlsFiles { ca: ca_file, client: client_certificate }));
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { http, url, timeout, token_file, breaker: Mutex::default() })
    }

    async fn query(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        expected: Expected,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        let begun = Instant::now();
        if !self.breaker.lock().enter(begun) {
            return Err(QueryError::BreakerOpen);
        }
        let end = begun + self.timeout;
        let result = until(end, self.retry(path, parameters, end, expected, sink)).await;
        let result = result.unwrap_or(Err(QueryError::Timeout));
        match &result {
            Err(error) if error.is_outage() => self.breaker.lock().record_failure(Instant::now()),
            _ => self.breaker.lock().record_success(),
        }
        result
    }

    async fn retry(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        end: Instant,
        expected: Expected,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(MIN_RETRY_DELAY)
            .with_factor(4.0)
            .with_max_times(MAX_RETRIES)
            .with_jitter()
            .build();
        loop {
            sink.reset();
            let attempt = async {
                let response = self.send(path, parameters, end).await?;
                read_series(response, expected, Arc::clone(&sink)).await
            };
            match attempt.await {
                Err(error) if error.is_transient() => {
                    // A retry that can't be made in time would hide the reason behind a timeout.
                    let delay = delays.next().filter(|delay| Instant::now() + *delay < end);
                    tokio::time::sleep(delay.ok_or(error)?).await;
                }
                result => return result,
            }
        }
    }

    async fn send(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        end: Instant,
    ) -> Result<Response<Incoming>, QueryError> {
        // The server stops as well when nobody waits for the answer any more.
        let left = end.saturating_duration_since(Instant::now()).as_millis().max(1);
        let timeout = ("timeout", format!("{left}ms"));
        let form: Vec<String> = parameters
            .iter()
            .chain([&timeout])
            .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, RESERVED)))
            .collect();
        let mut request = Request::post(format!("{}{path}", self.url))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(token) = self.token().await? {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request
            .body(Full::new(Bytes::from(form.join("&"))))
            .map_err(|error| QueryError::Unreachable(error.to_string()))?;
        let response = self.http.request(request).await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        if status == hyper::StatusCode::OK {
            return Ok(response);
        }
        // A body that is too long or incomplete says nothing more than the status.
        let body = read_body(response, MAX_ERROR_BYTES).await.unwrap_or_default();
        Err(parse_error(status.as_u16(), &body))
    }

    async fn token(&self) -> Result<Option<HeaderValue>, QueryError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let content = read(path).await.map_err(QueryError::Credentials)?;
        let invalid = || QueryError::Credentials(file_error(path, &"not a token on one line"));
        let token = std::str::from_utf8(&content).map_err(|_| invalid())?.trim();
        if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(invalid());
        }
        let mut header =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| invalid())?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

#[async_trait]
impl MetricsProvider for PrometheusProvider {
    async fn query_range(
        &self,
        query: &RangeQuery,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        let RangeQuery { promql, start, end, step } = query;
        let parameters = [
            ("query", promql.clone()),
            ("start", seconds(*start)),
            ("end", seconds(*end)),
            ("step", format!("{}", step.as_secs_f64())),
        ];
        let expected = expect(ResultType::Matrix, *start, *end);
        self.query("/api/v1/query_range", &parameters, expected, sink).await
    }

    async fn query_instant(&self, promql: &str, at: Timestamp) -> Result<SeriesSet, QueryError> {
        let parameters = [("query", promql.to_owned()), ("time", seconds(at))];
        let expected = expect(ResultType::Vector, at, at);
        let sink = Arc::new(Mutex::new(SeriesSet::default()));
        let Received { partial, .. } =
            self.query("/api/v1/query", &parameters, expected, sink.clone()).await?;
        let series = std::mem::take(&mut sink.lock().series);
        Ok(SeriesSet { series, partial })
    }

    async fn health_check(&self) -> Result<(), QueryError> {
        // Not `/-/healthy`, which compatible stores lack and which needs no credentials.
        let set = self.query_instant("vector(1)", Timestamp::now()).await?;
        match set.series.as_slice() {
            [one] if one.points.iter().map(|it| it.value).eq([1.0]) => Ok(()),
            _ => Err(QueryError::Invalid("vector(1) is not 1".to_owned())),
        }
    }
}

/// With times as they are sent, in milliseconds.
fn expect(result_type: ResultType, start: Timestamp, end: Timestamp) -> Expected {
    let sent = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    let max_bytes = match result_type {
        ResultType::Matrix => MAX_BODY_BYTES,
        ResultType::Vector => MAX_INSTANT_BYTES,
    };
    Expected { result_type, start: sent(start), end: sent(end), max_bytes }
}

/// Parses the body on another thread while it arrives.
async fn read_series(
    response: Response<Incoming>,
    expected: Expected,
    sink: Arc<dyn SeriesSink>,
) -> Result<Received, QueryError> {
    let body = response.into_body();
    if body.size_hint().lower() > expected.max_bytes as u64 {
        return Err(QueryError::TooLarge);
    }
    let (frames, reader) = body_channel();
    let parser = tokio::task::spawn_blocking(move || parse(reader, expected, &*sink));
    let received = feed(body, frames, expected.max_bytes).await;
    // Also after an error: nothing may reach the sink once this returns.
    let parsed = parser.await;
    let parsed = parsed.unwrap_or_else(|error| Err(QueryError::Invalid(error.to_string())));
    Ok(Received { bytes: received?, partial: parsed? })
}

/// Sends the body to its parser, and returns its length.
async fn feed(
    mut body: Incoming,
    frames: mpsc::Sender<Bytes>,
    max_bytes: usize,
) -> Result<usize, QueryError> {
    let mut bytes = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            // The parser has found an error.
            () = frames.closed() => None,
        };
        let Some(frame) = frame else { return Ok(bytes) };
        let frame = frame.map_err(|error| QueryError::Unreachable(chain(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        bytes += data.len();
        if bytes > max_bytes {
            return Err(QueryError::TooLarge);
        }
        // Fails only if the parser has found an error.
        let _ = frames.send(data).await;
    }
}

async fn read_body(response: Response<Incoming>, limit: usize) -> Result<Vec<u8>, QueryError> {
    let mut body = response.into_body();
    if body.size_hint().lower() > limit as u64 {
        return Err(QueryError::TooLarge);
    }
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| QueryError::Unreachable(chain(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if content.len() + data.len() > limit {
            return Err(QueryError::TooLarge);
        }
        content.extend_from_slice(&data);
    }
    Ok(content)
}

fn unreachable(error: &hyper_util::client::legacy::Error) -> QueryError {
    // The outermost error only says that sending or connecting failed.
    QueryError::Unreachable(error.source().map_or_else(|| error.to_string(), chain))
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}

fn seconds(at: Timestamp) -> String {
    let milliseconds = at.as_millisecond();
    format!("{}.{:03}", milliseconds.div_euclid(1000), milliseconds.rem_euclid(1000))
}
