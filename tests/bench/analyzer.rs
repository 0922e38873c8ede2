//! A pass of CRM's analyzer over 1,000 classes, against a Prometheus with the series of their pods as
//! CRM's proxy and cAdvisor export them.
//!
//! Prometheus and the passes run in processes of their own, so that the memory of a pass is measured
//! without that of loading the series.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

use std::{
    collections::BTreeMap,
    env, fs,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response};
use hyper_util::{client::legacy, rt::TokioExecutor};
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use oprc_crm::{
    analyzer::{Analyzer, EnforcementOptions, Options},
    cache::{Cache, PodRecord},
    decode::decode,
    observations::ObservationStore,
    provider::{
        MetricsProvider, PrometheusOptions, PrometheusProvider, QueryError, RangeQuery, Received,
        SeriesSet, SeriesSink,
    },
    signals::{QueryTable, RateWindows, usage_queries},
};
use oprc_nfr::Safeguards;
use oprc_tests::prometheus::Prometheus;
use oprc_unit::{Platform, Profile, spec::Dimension};
use parking_lot::Mutex;
use prost::Message;
use serde_json::{Value, json};

const CLASSES: usize = 1000;
const PASSES: usize = 10;
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_secs(15);
const USAGE_RANGE: Duration = Duration::from_hours(24);
const RANGE: Duration = Duration::from_mins(10);
/// The range, and the rate window before it.
const SCRAPES: usize = 45;
const MAX_PASS_SECONDS: f64 = 2.0;
const MAX_QUERIES: usize = 20;
/// Bound on the memory that the passes add, in megabytes. Includes the stand-in for the API server.
const MAX_ADDED_MB: f64 = 100.0;
/// Bound on the relative error of the 95th percentile of latencies.
const MAX_ERROR: f64 = 0.1;
/// URL, newest scrape in seconds, and process of Prometheus, for the process that runs the passes.
const MEASURE: &str = "OPRC_BENCH_MEASURE";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Ok(target) = env::var(MEASURE) {
        let [url, newest, prometheus] = target.split(' ').collect::<Vec<_>>()[..] else { panic!() };
        return runtime.block_on(measure(url, newest.parse().unwrap(), prometheus));
    }
    let prometheus = runtime.block_on(Prometheus::start(&json!({})));
    let newest = runtime.block_on(load(&prometheus.url));
    let status = Command::new(env::current_exe().unwrap())
        .env(MEASURE, format!("{} {newest} {}", prometheus.url, prometheus.pid()))
        .status()
        .unwrap();
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The load of a pod: latencies have a log-logistic distribution.
struct Load {
    rate: f64,
    median: f64,
}

impl Load {
    const SHAPE: f64 = 4.0;

    /// From 0.1 to 100 requests per second, with medians from 5 to 500 ms.
    fn of(pod: usize) -> Self {
        let spread = |factor: usize, range: f64| {
            range.powf((pod * factor % CLASSES) as f64 / CLASSES as f64)
        };
        Self { rate: 0.1 * spread(389, 1000.0), median: 0.005 * spread(617, 100.0) }
    }

    fn share_below(&self, bound: f64) -> f64 {
        1.0 / (1.0 + (self.median / bound).powf(Self::SHAPE))
    }

    fn p95(&self) -> f64 {
        self.median * 19_f64.powf(1.0 / Self::SHAPE)
    }
}

fn pod_name(class: usize) -> String {
    format!("class-{class:04}-f-7c9d8b6f5d-x{:02}zq", class % 97)
}

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    milliseconds: i64,
}

/// Writes the scrapes of the last minutes. Returns the time of the newest.
async fn load(url: &str) -> i64 {
    let started = Instant::now();
    let interval = SCRAPE_INTERVAL.as_secs() as i64;
    let newest = Timestamp::now().as_second() / interval * interval;
    let mut count = 0;
    let classes: Vec<usize> = (0..CLASSES).collect();
    for chunk in classes.chunks(50) {
        let mut series = Vec::new();
        for class in chunk {
            proxy_series(*class, newest, &mut series);
            container_series(*class, newest, &mut series);
        }
        count += series.len();
        write(url, &WriteRequest { series }).await;
    }
    println!(
        "{CLASSES} classes with a pod each: {count} series of {SCRAPES} scrapes, loaded in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    newest
}

fn series(
    labels: &[(&str, &str)],
    more: &[(&str, &str)],
    newest: i64,
    value: impl Fn(f64) -> f64,
) -> TimeSeries {
    let mut all: Vec<_> = labels.iter().chain(more).collect();
    all.sort_unstable();
    let labels =
        all.iter().map(|(name, value)| Label { name: (*name).into(), value: (*value).into() });
    let interval = SCRAPE_INTERVAL.as_secs() as i64;
    let samples = (0..SCRAPES as i64).map(|scrape| {
        let age = (SCRAPES as i64 - 1 - scrape) * interval;
        // As if the process had started some hours before.
        Sample { value: value((20_000 - age) as f64), milliseconds: (newest - age) * 1000 }
    });
    TimeSeries { labels: labels.collect(), samples: samples.collect() }
}

/// Bounds from 1 ms to 100 s that grow by 25 %, and the required latency of the class.
fn bounds(required: f64) -> Vec<f64> {
    let growing = std::iter::successors(Some(1000.0_f64), |bound| Some(bound * 1.25));
    let growing = growing.take_while(|bound| *bound < 1.1e8).map(|bound| bound.round() / 1e6);
    let mut all: Vec<_> = growing.chain([required]).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn proxy_series(class: usize, newest: i64, all: &mut Vec<TimeSeries>) {
    let (load, pod, owner) = (Load::of(class), pod_name(class), format!("class-{class:04}"));
    let instance = format!("10.1.{}.{}:18081", class / 256, class % 256);
    let labels = [
        ("namespace", "shop"),
        ("pod", &*pod),
        ("job", "proxies"),
        ("instance", &*instance),
        ("app", &*owner),
        ("oaas_owner", &*owner),
    ];
    let requests = |at: f64| (load.rate * at).floor();
    let mut add = |name: &str, more: &[(&str, &str)], value: &dyn Fn(f64) -> f64| {
        let more = [more, &[("__name__", name)]].concat();
        all.push(series(&labels, &more, newest, value));
    };
    for bound in bounds(required(class)) {
        let share = load.share_below(bound);
        let below = |at: f64| (requests(at) * share).floor();
        let bound = format!("{bound:?}");
        add("oprc_proxy_request_duration_seconds_bucket", &[("le", &bound)], &below);
    }
    add("oprc_proxy_request_duration_seconds_bucket", &[("le", "+Inf")], &requests);
    add("oprc_proxy_request_duration_seconds_count", &[], &requests);
    add("oprc_proxy_request_duration_seconds_sum", &[], &|at| requests(at) * load.median);
    add("oprc_proxy_requests_total", &[("outcome", "ok")], &requests);
    for outcome in
        ["client_error", "server_error", "timeout", "rejected", "unreachable", "canceled"]
    {
        add("oprc_proxy_requests_total", &[("outcome", outcome)], &|_| 0.0);
    }
    for reason in ["queue_full", "breaker"] {
        add("oprc_proxy_rejected_total", &[("reason", reason)], &|_| 0.0);
    }
    for bound in ["0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1.0", "5.0", "30.0", "+Inf"] {
        add("oprc_proxy_queue_wait_seconds_bucket", &[("le", bound)], &|_| 0.0);
    }
    add("oprc_proxy_hard_latency_breaches_total", &[], &|_| 0.0);
    add("oprc_proxy_requests_in_flight", &[], &|at| (at / 15.0 % 7.0).floor());
    add("oprc_proxy_queue_length", &[], &|_| 0.0);
}

fn container_series(class: usize, newest: i64, all: &mut Vec<TimeSeries>) {
    let (pod, node) = (pod_name(class), format!("node-{}", class % 50));
    for container in ["function", "oprc-proxy"] {
        let id = format!("/kubepods/burstable/pod{class:032x}/{class:064x}");
        let labels = [
            ("namespace", "shop"),
            ("pod", &*pod),
            ("container", container),
            ("job", "cadvisor"),
            ("instance", &*node),
            ("node", &*node),
            ("id", &*id),
            ("image", "registry.example.com/shop/function:1.2.3"),
        ];
        let cores = 0.01 + (class % 100) as f64 / 100.0;
        let mut add = |name: &str, value: &dyn Fn(f64) -> f64| {
            all.push(series(&labels, &[("__name__", name)], newest, value));
        };
        add("container_cpu_usage_seconds_total", &|at| (cores * at * 1e6).round() / 1e6);
        add("container_memory_working_set_bytes", &|at| 2e7 + (at * 7919.0 % 1e6));
        add("container_cpu_cfs_throttled_periods_total", &|at| (at / 100.0).floor());
        add("container_cpu_cfs_periods_total", &|at| at * 10.0);
        add("container_oom_events_total", &|_| 0.0);
    }
}

/// Sends a remote write request. The body must be compressed by Snappy, which allows literals.
async fn write(url: &str, request: &WriteRequest) {
    let plain = request.encode_to_vec();
    let mut body = Vec::with_capacity(plain.len() + 16);
    prost::encoding::encode_varint(plain.len() as u64, &mut body);
    // A literal whose length minus one follows in four bytes.
    body.push(63 << 2);
    body.extend((plain.len() as u32 - 1).to_le_bytes());
    body.extend(plain);
    let request = Request::post(format!("{url}/api/v1/write"))
        .header("content-type", "application/x-protobuf")
        .header("content-encoding", "snappy")
        .header("x-prometheus-remote-write-version", "0.1.0")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let response = client.request(request).await.unwrap();
    assert!(response.status().is_success(), "{response:?}");
}

/// Counts queries and the bytes of their answers.
struct Counting {
    inner: PrometheusProvider,
    queries: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl MetricsProvider for Counting {
    async fn query_range(
        &self,
        query: &RangeQuery,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        let received = self.inner.query_range(query, sink).await?;
        self.bytes.fetch_add(received.bytes, Ordering::SeqCst);
        Ok(received)
    }

    async fn query_instant(&self, promql: &str, at: Timestamp) -> Result<SeriesSet, QueryError> {
        self.inner.query_instant(promql, at).await
    }

    async fn health_check(&self) -> Result<(), QueryError> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        self.inner.health_check().await
    }
}

/// The required latency of a class in seconds.
fn required(class: usize) -> f64 {
    if class.is_multiple_of(2) { 0.3 } else { 0.2 }
}

/// Takes writes of status as the API server does, and counts them.
#[derive(Default)]
struct ApiServer {
    classes: Mutex<BTreeMap<String, Value>>,
    writes: AtomicUsize,
    /// Counts writes, too, but is never reset.
    version: AtomicUsize,
}

impl ApiServer {
    async fn serve(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        self.writes.fetch_add(1, Ordering::SeqCst);
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 2;
        if parts.method == Method::POST {
            return Ok(Response::new(Body::from(body)));
        }
        let body: Value = serde_json::from_slice(&body).unwrap();
        let mut classes = self.classes.lock();
        let class = classes.get_mut(body["metadata"]["name"].as_str().unwrap()).unwrap();
        class["status"] = body["status"].clone();
        class["metadata"]["resourceVersion"] = version.to_string().into();
        Ok(Response::new(Body::from(class.to_string().into_bytes())))
    }
}

fn add_class(class: usize, server: &ApiServer, cache: &Cache, newest: Timestamp) {
    let name = format!("class-{class:04}");
    let started = newest.checked_sub(Duration::from_hours(1)).unwrap().to_string();
    let object = json!({
        "apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime",
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", "generation": 1,
        },
        "spec": {
            "functions": [{"key": "f", "image": "i"}],
            "nfr_requirements": {
                "max_latency_ms": (required(class) * 1000.0).round() as u32, "min_throughput_rps": 1, "availability": 0.99,
            },
        },
    });
    let decoded = decode(&serde_json::from_value(object.clone()).unwrap());
    assert!(decoded.spec.is_ok(), "{:?}", decoded.spec);
    cache.put_class(decoded);
    server.classes.lock().insert(name.clone(), object);
    let pod = json!({
        "metadata": {
            "name": pod_name(class), "namespace": "shop", "uid": name,
            "creationTimestamp": started,
            "labels": {"oaas.io/owner": name, "oaas.io/function": "f"},
        },
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": started},
        ]},
    });
    let pod = PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap();
    cache.put_pod(pod, None, newest);
}

fn analyzer(provider: Counting, server: &Arc<ApiServer>, newest: i64) -> Analyzer {
    let handler = Arc::clone(server);
    let service = tower::service_fn(move |request| Arc::clone(&handler).serve(request));
    let client = kube::Client::new(service, "shop");
    let now = Timestamp::from_second(newest).unwrap();
    let options = Options {
        interval: SCRAPE_INTERVAL,
        urgent_interval: SCRAPE_INTERVAL,
        enforcement: EnforcementOptions {
            enabled: true,
            dimensions: Dimension::ALL.to_vec(),
            safeguards: Safeguards::default(),
            default_cpu: 0.5,
            resource_range: USAGE_RANGE,
            effect_window: RANGE,
        },
        frozen: false,
        usage_range: USAGE_RANGE,
        usage_queries: usage_queries(&BTreeMap::new(), None, &["function", "odgm"]),
        range: RANGE,
        step: STEP,
        scrape_interval: SCRAPE_INTERVAL,
        queries: QueryTable::new(&BTreeMap::new(), RateWindows::new(SCRAPE_INTERVAL, STEP), None),
    };
    let analyzer = Analyzer {
        // All queries are sent, also those for Knative.
        platform: Arc::new(|| {
            let mut platform = Platform { knative: true, ..Platform::of(Profile::Dev) };
            platform.features.knative = true;
            platform
        }),
        ..Analyzer::standalone(options, Box::new(provider), client, Arc::new(move || now))
    };
    for class in 0..CLASSES {
        add_class(class, server, &analyzer.cache, now);
    }
    analyzer
}

/// A value of `/proc/self/status` in megabytes.
fn memory(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1000.0
}

/// CPU time of a process so far, in seconds.
fn cpu(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    [11, 12].iter().map(|&at| fields[at].parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

async fn measure(url: &str, newest: i64, prometheus: &str) -> ExitCode {
    let options = PrometheusOptions {
        url: url.to_owned(),
        timeout: Duration::from_secs(5),
        ca_file: None,
        token_file: None,
        client_certificate: None,
    };
    let (queries, bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let inner = PrometheusProvider::new(options).unwrap();
    let provider = Counting { inner, queries: Arc::clone(&queries), bytes: Arc::clone(&bytes) };
    let server = Arc::<ApiServer>::default();
    let analyzer = analyzer(provider, &server, newest);

    // Resets the peak.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = memory("VmRSS:");
    analyzer.pass().await;
    let first_writes = server.writes.swap(0, Ordering::SeqCst);
    let error = largest_error(&analyzer.observations);
    for counter in [&queries, &bytes] {
        counter.store(0, Ordering::SeqCst);
    }
    let processes = ["self", prometheus];
    let cpu_before = processes.map(cpu);
    let mut seconds = Vec::new();
    for _ in 0..PASSES {
        let started = Instant::now();
        analyzer.pass().await;
        seconds.push(started.elapsed().as_secs_f64());
    }
    let added = memory("VmHWM:") - before;
    let [crm_cpu, prometheus_cpu] =
        [0, 1].map(|at| (cpu(processes[at]) - cpu_before[at]) / PASSES as f64);
    seconds.sort_by(f64::total_cmp);
    let (median, max) = (seconds[PASSES / 2], seconds[PASSES - 1]);
    let queries = queries.load(Ordering::SeqCst) / PASSES;
    let megabytes = bytes.load(Ordering::SeqCst) as f64 / PASSES as f64 / 1e6;
    let writes = server.writes.load(Ordering::SeqCst);
    println!(
        "first pass: {first_writes} writes; the next {PASSES}: {megabytes:.1} MB read in each"
    );
    println!("CPU time of a pass: {crm_cpu:.2} s of CRM, {prometheus_cpu:.2} s of Prometheus");
    let limits = [
        ("median time of a pass", median, "s", MAX_PASS_SECONDS),
        ("longest pass", max, "s", MAX_PASS_SECONDS),
        ("queries of a pass", queries as f64, "", MAX_QUERIES as f64),
        ("memory added at the peak", added, "MB", MAX_ADDED_MB),
        ("writes while nothing changes", writes as f64, "", 0.0),
        ("largest error of p95", error * 100.0, "%", MAX_ERROR * 100.0),
    ];
    let mut failed = false;
    for (name, value, unit, limit) in limits {
        let ratio =
            if limit > 0.0 { format!(", {:.2} of it", value / limit) } else { String::new() };
        println!("{name:28} {value:>6.2} {unit:2}  limit {limit} {unit}{ratio}");
        if value > limit {
            failed = true;
            println!("  FAILED: {name} exceeds its limit");
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The largest relative error of the 95th percentile, of functions with enough requests.
fn largest_error(observations: &ObservationStore) -> f64 {
    let latest = observations.latest();
    assert_eq!(latest.failure, None);
    assert_eq!(latest.classes.len(), CLASSES);
    let mut largest: f64 = 0.0;
    for class in 0..CLASSES {
        let key = ("shop".to_owned(), format!("class-{class:04}"));
        let observed = &latest.class(&key).unwrap()["f"];
        let load = Load::of(class);
        let rate = observed.throughput.expect("a rate");
        assert!((rate - load.rate).abs() < 0.05 * load.rate + 0.1, "{rate} {}", load.rate);
        let p95 = observed.latency_p95.expect("a latency");
        if load.rate >= 10.0 {
            largest = largest.max((p95 / load.p95() - 1.0).abs());
        }
    }
    largest
}
