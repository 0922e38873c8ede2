mod scale;

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{Method, Request, Response};
use kube::client::Body;
use oprc_nfr::compliance::State;
use oprc_unit::spec::Dimension;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{
    cache::PodRecord,
    crd::{ComplianceState, NFR_OBSERVED},
    decode::decode,
    provider::{QueryError, RangeQuery, Received, Series, SeriesSet, SeriesSink},
    signals::{Query, USAGE_STEP},
};

mod enforcement;
mod resources;
mod template;

const STEP: i64 = 30;
const START: i64 = 1_800_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// What Prometheus says about a pod, for the whole window.
#[derive(Clone, Copy, Default)]
struct Load {
    rate: f64,
    /// Share of requests that take from 100 ms to 1 s; the others take less.
    slow: f64,
    /// CPU cores in use; unknown if it is 0.
    cpu: f64,
    /// Working set in bytes; unknown if it is 0.
    memory: f64,
}

/// What a provider answers that a real Prometheus can't be made to answer.
#[derive(Clone, Default)]
struct Script {
    health: Option<QueryError>,
    partial: bool,
    /// By pod.
    loads: BTreeMap<String, Load>,
    /// Bytes per second by which memory grows from the start.
    leak: f64,
    /// The second from which requests are slow.
    slow_from: i64,
    /// Queries about the usage over hours.
    usage_queries: u32,
}

struct Liar {
    script: Arc<Mutex<Script>>,
    texts: Vec<(Query, String)>,
}

fn series(pod: &str, label: (&str, &str), value: f64, query: &RangeQuery) -> Series {
    let labels = [("namespace", "n"), ("pod", pod), label];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut points = Vec::new();
    let mut at = query.start;
    while at <= query.end {
        points.push(Point { at, value });
        at += query.step;
    }
    Series { labels: labels.into_iter().collect(), points }
}

#[async_trait]
impl MetricsProvider for Liar {
    async fn query_range(
        &self,
        query: &RangeQuery,
        sink: Arc<dyn SeriesSink>,
    ) -> Result<Received, QueryError> {
        let script = self.script.lock().clone();
        let kind = self.texts.iter().find(|(_, text)| *text == query.promql).unwrap().0;
        if query.step == USAGE_STEP {
            self.script.lock().usage_queries += 1;
        }
        let mut all = Vec::new();
        for (pod, Load { rate, slow, cpu, memory }) in &script.loads {
            match kind {
                Query::ProxyRequests => all.push(series(pod, ("outcome", "ok"), *rate, query)),
                Query::ProxyLatency => {
                    let fast = rate * (1.0 - slow);
                    for (bound, count) in [("0.1", fast), ("1", *rate), ("+Inf", *rate)] {
                        let mut series = series(pod, ("le", bound), count, query);
                        let before = |it: &&mut Point| it.at < at(script.slow_from);
                        series.points.iter_mut().filter(before).for_each(|it| it.value = *rate);
                        all.push(series);
                    }
                }
                Query::Cpu if *cpu > 0.0 => {
                    all.push(series(pod, ("container", "function"), *cpu, query));
                }
                Query::Memory if *memory > 0.0 => {
                    let mut series = series(pod, ("container", "function"), *memory, query);
                    for point in &mut series.points {
                        let elapsed = point.at.duration_since(at(START)).as_secs_f64();
                        point.value += script.leak * elapsed.max(0.0);
                    }
                    all.push(series);
                }
                _ => {}
            }
        }
        all.iter().try_for_each(|series| sink.accept(&series.into(), &series.points))?;
        Ok(Received { partial: script.partial, bytes: 0 })
    }

    async fn query_instant(&self, _: &str, _: Timestamp) -> Result<SeriesSet, QueryError> {
        Ok(SeriesSet::default())
    }

    async fn health_check(&self) -> Result<(), QueryError> {
        self.script.lock().health.clone().map_or(Ok(()), Err)
    }
}

/// Takes writes of status as the API server does, and counts them.
#[derive(Default)]
struct ApiServer {
    classes: Mutex<BTreeMap<String, Value>>,
    statuses: Mutex<VecDeque<(String, Value)>>,
    events: Mutex<Vec<Value>>,
}

impl ApiServer {
    fn respond(&self, method: &Method, path: &str, body: &Value) -> Value {
        if *method == Method::POST {
            self.events.lock().push(body.clone());
            return body.clone();
        }
        let name = path.split('/').rev().nth(1).unwrap().to_owned();
        assert!(path.ends_with("/status"), "{method} {path}");
        let mut classes = self.classes.lock();
        let class = classes.get_mut(&name).unwrap();
        class["status"] = body["status"].clone();
        let version: u64 = class["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        class["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        self.statuses.lock().push_back((name, body["status"].clone()));
        class.clone()
    }
}

async fn serve(
    server: Arc<ApiServer>,
    request: Request<Body>,
) -> Result<Response<Body>, kube::Error> {
    let (parts, body) = request.into_parts();
    let manager = parts.uri.query().unwrap_or_default().to_owned();
    let body: Bytes = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    if parts.method == Method::PATCH {
        assert!(manager.contains("fieldManager=oprc-crm-nfr"), "{manager}");
    }
    let response = server.respond(&parts.method, parts.uri.path(), &body);
    Ok(Response::new(Body::from(serde_json::to_vec(&response).unwrap())))
}

struct Fixture {
    analyzer: Analyzer,
    memory: Memory,
    server: Arc<ApiServer>,
    script: Arc<Mutex<Script>>,
    now: Arc<AtomicI64>,
    freeze: watch::Sender<bool>,
    lacks_monitors: Arc<AtomicBool>,
}

impl Fixture {
    fn new() -> Self {
        let server = Arc::new(ApiServer::default());
        let handler = Arc::clone(&server);
        let service = tower::service_fn(move |request| serve(Arc::clone(&handler), request));
        let client = kube::Client::new(service, "n");
        let queries = QueryTable::new(&BTreeMap::new(), Duration::from_mins(1), None);
        let script = Arc::new(Mutex::new(Script::default()));
        let usage_queries =
            usage_queries(&BTreeMap::new(), None, &[FUNCTION_CONTAINER, GRID_CONTAINER]);
        let texts = queries.iter().chain(usage_queries.iter());
        let texts = texts.map(|(query, text)| (query, text.to_owned())).collect();
        let now = Arc::new(AtomicI64::new(START));
        let clock = Arc::clone(&now);
        let freeze = watch::Sender::new(false);
        let lacks_monitors = Arc::new(AtomicBool::new(false));
        let lacks = Arc::clone(&lacks_monitors);
        let options = Options {
            interval: Duration::from_mins(1),
            urgent_interval: Duration::from_mins(1),
            enforcement: EnforcementOptions {
                enabled: true,
                dimensions: Dimension::ALL.to_vec(),
                safeguards: Safeguards::default(),
                default_cpu: 0.5,
                resource_range: Duration::from_hours(24),
                effect_window: Duration::from_mins(10),
            },
            frozen: false,
            range: Duration::from_mins(5),
            step: Duration::from_secs(30),
            scrape_interval: Duration::from_secs(15),
            queries,
            usage_range: Duration::from_hours(24),
            usage_queries,
        };
        let provider = Box::new(Liar { script: Arc::clone(&script), texts });
        let clock = Arc::new(move || at(clock.load(Ordering::SeqCst)));
        let analyzer = Analyzer {
            lacks_monitors: Box::new(move || lacks.load(Ordering::SeqCst)),
            freeze: freeze.subscribe(),
            ..Analyzer::standalone(options, provider, client, clock)
        };
        let memory = Memory::default();
        Self { analyzer, memory, server, script, now, freeze, lacks_monitors }
    }

    /// Adds a class with the function `f`, which has one pod.
    fn add(&self, name: &str, spec: &Value) {
        let mut spec = spec.clone();
        spec["functions"] = json!([{"key": "f", "image": "i"}]);
        let class = json!({
            "apiVersion": "oaas.io/v1alpha1", "kind": "ClassRuntime",
            "metadata": {
                "name": name, "namespace": "n", "uid": name, "resourceVersion": "1",
                "generation": 1,
            },
            "spec": spec,
        });
        self.server.classes.lock().insert(name.to_owned(), class.clone());
        self.analyzer.cache.put_class(decode(&serde_json::from_value(class).unwrap()));
        self.add_pod(name, 0);
    }

    fn add_pod(&self, name: &str, number: u32) {
        let pod = json!({
            "metadata": {
                "name": format!("{name}-{number}"), "namespace": "n",
                "uid": format!("{name}-{number}"),
                "creationTimestamp": at(START - 5000).to_string(),
                "labels": {"oaas.io/owner": name, "oaas.io/function": "f"},
            },
            "status": {"conditions": [{
                "type": "Ready", "status": "True",
                "lastTransitionTime": at(START - 4990).to_string(),
            }]},
        });
        let pod = PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap();
        self.analyzer.cache.put_pod(pod, None, at(START));
    }

    fn set_load(&self, class: &str, rate: f64, slow: f64) {
        self.script
            .lock()
            .loads
            .insert(format!("{class}-0"), Load { rate, slow, cpu: 0.0, memory: 0.0 });
    }

    /// Changes a class as a client would.
    fn edit(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut classes = self.server.classes.lock();
        let class = classes.get_mut(name).unwrap();
        edit(class);
        let version: u64 = class["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        class["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        self.analyzer.cache.put_class(decode(&serde_json::from_value(class.clone()).unwrap()));
    }

    /// One pass, a minute later. Returns the statuses that it wrote.
    async fn pass(&mut self) -> Vec<(String, Value)> {
        self.now.fetch_add(60, Ordering::SeqCst);
        let (_stop, stopping) = watch::channel(false);
        let reports = self.analyzer.measure(&mut self.memory).await;
        self.analyzer.write(reports, &stopping).await;
        self.server.statuses.lock().drain(..).collect()
    }

    fn events(&self) -> Vec<(String, String)> {
        let events = std::mem::take(&mut *self.server.events.lock());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events.iter().map(|it| (text(&it["reason"]), text(&it["note"]))).collect()
    }
}

fn fast() -> Value {
    json!({"nfr_requirements": {"max_latency_ms": 200}})
}

fn condition(status: &Value) -> (&str, &str) {
    let condition = &status["conditions"][0];
    assert_eq!(condition["type"], NFR_OBSERVED);
    (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
}

#[tokio::test]
async fn writes_transitions_and_nothing_else() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.5);
    let written = fixture.pass().await;
    let [(name, status)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!((name.as_str(), condition(status)), ("shop", ("True", "Measured")));
    let entry = &status["nfr_compliance"][0];
    assert_eq!((&entry["function"], &entry["requirement"]), (&json!("f"), &json!("latency")));
    assert_eq!((&entry["state"], &entry["required"]), (&json!("violated"), &json!(200.0)));
    let since: Timestamp = entry["since"].as_str().unwrap().parse().unwrap();
    assert_eq!(since, at(START + 60 - 300), "the start of the window");
    let events = fixture.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0].0, "NFRViolated");
    assert!(events[0].1.starts_with("f: latency: p95 is "), "{events:?}");
    for _ in 0..30 {
        assert_eq!(fixture.pass().await, [], "nothing has changed");
    }
    let shop = ("n".to_owned(), "shop".to_owned());
    let latest = fixture.analyzer.observations.latest();
    let observed = &latest.class(&shop).unwrap()["f"];
    assert_eq!(observed.throughput, Some(10.0));
    assert_eq!(observed.requirements[0].verdict.state, State::Violated);
    assert_eq!(
        observed.requirements[0].verdict.since,
        since.as_millisecond(),
        "the stored time is older than the window"
    );

    fixture.set_load("shop", 10.0, 0.0);
    let written = fixture.pass().await;
    assert_eq!(written[0].1["nfr_compliance"][0]["state"], "met");
    assert_eq!(fixture.events()[0].0, "NFRRecovered");
    assert_eq!(fixture.pass().await, []);
    let text = fixture.analyzer.metrics.text();
    let violations =
        r#"crm_nfr_violations_total{function_key="shop/f",environment="default",type="latency"} 1"#;
    assert!(text.contains(violations), "{text}");
    assert!(
        text.contains(
            r#"crm_function_throughput{function_key="shop/f",environment="default"} 10.0"#
        ),
        "{text}"
    );
}

#[tokio::test]
async fn failed_pass_keeps_the_last_observations() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.0);
    assert_eq!(condition(&fixture.pass().await[0].1), ("True", "Measured"));
    fixture.script.lock().health = Some(QueryError::Timeout);
    for _ in 1..REPORT_AFTER_FAILURES {
        assert_eq!(fixture.pass().await, [], "it may be a restart");
    }
    let latest = fixture.analyzer.observations.latest();
    assert_eq!(latest.observed_at, Some(at(START + 60)));
    assert!(latest.failure.as_ref().unwrap().contains("did not answer"));
    assert_eq!(latest.classes.len(), 1);
    let written = fixture.pass().await;
    assert_eq!(condition(&written[0].1), ("False", "PrometheusUnavailable"));
    assert_eq!(written[0].1["nfr_compliance"][0]["state"], "met", "the last that was known");
    assert_eq!(fixture.pass().await, []);
    fixture.script.lock().health = None;
    assert_eq!(condition(&fixture.pass().await[0].1), ("True", "Measured"));
    assert_eq!(fixture.events(), []);
    let text = fixture.analyzer.metrics.text();
    assert!(text.contains(r#"crm_analyzer_queries_total{query="cpu",result="Timeout"}"#), "{text}");
}

#[tokio::test]
async fn unknown_is_neither_met_nor_violated() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    // A class with a similar name has all the load.
    fixture.add("shop-0", &json!({}));
    fixture.set_load("shop-0", 10.0, 1.0);
    let written = fixture.pass().await;
    assert_eq!(written.len(), 1, "the other has no requirements: {written:?}");
    assert_eq!(written[0].0, "shop");
    assert_eq!(condition(&written[0].1), ("False", "NoData"));
    assert_eq!(written[0].1["nfr_compliance"][0]["state"], "unknown");
    // Values that can't be measurements.
    for (rate, slow) in [(f64::NAN, 0.0), (f64::INFINITY, 0.5), (-1.0, 0.0)] {
        fixture.set_load("shop", rate, slow);
        assert_eq!(fixture.pass().await, [], "{rate}");
    }
    fixture.set_load("shop", 10.0, 0.0);
    assert_eq!(condition(&fixture.pass().await[0].1), ("True", "Measured"));
    // Partial answers don't show that metrics are missing, but that they can't be read.
    fixture.script.lock().partial = true;
    for _ in 1..REPORT_AFTER_FAILURES {
        assert_eq!(fixture.pass().await, []);
    }
    let written = fixture.pass().await;
    assert_eq!(condition(&written[0].1), ("False", "PrometheusUnavailable"));
    assert_eq!(written[0].1["nfr_compliance"][0]["state"], "met", "the last that was known");
    assert_eq!(fixture.pass().await, []);
    fixture.script.lock().partial = false;
    assert_eq!(condition(&fixture.pass().await[0].1), ("True", "Measured"));
    assert_eq!(fixture.events(), []);
}

#[tokio::test]
async fn mode_off_measures_nothing_and_removes_what_was_reported() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.0);
    assert_eq!(fixture.pass().await.len(), 1);
    fixture.edit("shop", |class| class["spec"]["nfr"] = json!({"enforcement": {"mode": "off"}}));
    assert_eq!(fixture.pass().await, [("shop".to_owned(), json!({}))]);
    assert_eq!(fixture.pass().await, []);
    assert!(fixture.analyzer.observations.latest().classes.is_empty());
}

/// Type, status and reason of the conditions that were written.
fn conditions(status: &Value) -> Vec<[&str; 3]> {
    let conditions = status["conditions"].as_array().unwrap().iter();
    conditions.map(|it| ["type", "status", "reason"].map(|key| it[key].as_str().unwrap())).collect()
}

#[tokio::test]
async fn reports_once_that_prometheus_is_disabled() {
    let mut fixture = Fixture::new();
    fixture.analyzer.provider = None;
    fixture.add("shop", &fast());
    fixture.add("plain", &json!({}));
    let off = json!({"enforcement": {"mode": "off"}});
    fixture.add("off", &json!({"nfr_requirements": {"max_latency_ms": 200}, "nfr": off.clone()}));
    let written = fixture.pass().await;
    let [(name, status)] = written.as_slice() else { panic!("{written:?}") };
    assert_eq!(name, "shop");
    assert_eq!(conditions(status), [["NfrObserved", "False", "PrometheusDisabled"]]);
    for _ in 0..10 {
        assert_eq!(fixture.pass().await, []);
    }
    // A class that is created later is reported as well.
    fixture.add("later", &fast());
    assert_eq!(fixture.pass().await.len(), 1);
    assert_eq!(fixture.pass().await, []);
    fixture.edit("shop", |class| class["spec"]["nfr"] = off);
    assert_eq!(fixture.pass().await, [("shop".to_owned(), json!({}))]);
    assert_eq!(fixture.pass().await, []);
}

#[tokio::test]
async fn reports_no_compliance_that_is_not_measured_any_more() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.0);
    assert_eq!(fixture.pass().await.len(), 1);
    fixture.analyzer.provider = None;
    let written = fixture.pass().await;
    assert_eq!(condition(&written[0].1), ("False", "PrometheusDisabled"));
    assert_eq!(written[0].1.get("nfr_compliance"), None);
    assert_eq!(fixture.analyzer.observations.latest().observed_at, None);
    assert_eq!(fixture.pass().await, []);
}

#[tokio::test]
async fn nothing_is_measured_while_the_kinds_of_the_operator_are_missing() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.0);
    fixture.lacks_monitors.store(true, Ordering::SeqCst);
    let written = fixture.pass().await;
    let expected = [
        ["NfrObserved", "False", "PrometheusDisabled"],
        ["PrometheusDisabled", "True", "MissingCRDs"],
    ];
    assert_eq!(conditions(&written[0].1), expected);
    assert_eq!(fixture.pass().await, []);
    let text = fixture.analyzer.metrics.text();
    assert!(!text.contains("crm_analyzer_queries_total{"), "{text}");
    fixture.lacks_monitors.store(false, Ordering::SeqCst);
    assert_eq!(conditions(&fixture.pass().await[0].1), [["NfrObserved", "True", "Measured"]]);
    assert_eq!(fixture.pass().await, []);
}

#[tokio::test]
async fn scaling_to_zero_changes_no_state() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_load("shop", 10.0, 0.0);
    assert_eq!(fixture.pass().await.len(), 1);
    let pod = ("n".to_owned(), "shop-0".to_owned());
    fixture.analyzer.cache.remove_pod(&pod, "shop-0", at(START));
    fixture.script.lock().loads.clear();
    for _ in 0..20 {
        assert_eq!(fixture.pass().await, []);
    }
    let latest = fixture.analyzer.observations.latest();
    let verdict = latest.class(&("n".to_owned(), "shop".to_owned())).unwrap()["f"].requirements[0];
    assert!(matches!(verdict.verdict.state, State::Unknown(_)));
}

#[tokio::test]
async fn stops_when_it_is_told_to() {
    let fixture = Fixture::new();
    let (stop, stopping) = watch::channel(false);
    let observations = Arc::clone(&fixture.analyzer.observations);
    let running = tokio::spawn(fixture.analyzer.run(stopping));
    while observations.latest().observed_at.is_none() {
        tokio::task::yield_now().await;
    }
    stop.send_replace(true);
    running.await.unwrap();
}

/// The number of passes that succeeded, and whether enforcement is frozen.
fn passes(metrics: &Metrics) -> (u32, bool) {
    let text = metrics.text();
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let passes = value(r#"crm_analyzer_pass_duration_seconds_count{result="ok"} "#);
    let frozen = value("crm_enforcement_frozen ") == Some("1");
    (passes.map_or(0, |it| it.parse().unwrap()), frozen)
}

#[tokio::test(start_paused = true)]
async fn freeze_starts_a_pass_at_once() {
    let fixture = Fixture::new();
    let (stop, stopping) = watch::channel(false);
    let metrics = Arc::clone(&fixture.analyzer.metrics);
    let running = tokio::spawn(fixture.analyzer.run(stopping));
    let started = tokio::time::Instant::now();
    for (frozen, expected) in [(false, (1, false)), (true, (2, true)), (false, (3, false))] {
        fixture.freeze.send_if_modified(|before| std::mem::replace(before, frozen) != frozen);
        while passes(&metrics) != expected {
            let elapsed = started.elapsed();
            assert!(elapsed < Duration::from_secs(10), "{:?}, not {expected:?}", passes(&metrics));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    stop.send_replace(true);
    running.await.unwrap();
}

#[test]
fn breaches_are_counted_once() {
    let point = |second, value| Point { at: at(second), value };
    let step = SignedDuration::from_secs(STEP);
    let points = [point(0, 1.0), point(30, 1.0), point(60, 2.0)];
    let (count, until) = integrate(&points, None, step);
    assert!((count - 90.0 - 30.0).abs() > 1.0, "what was before isn't counted");
    assert!((count - 60.0).abs() < 1e-9, "{count}");
    assert_eq!(until, Some(at(60)));
    let (count, _) = integrate(&points, until.as_ref(), step);
    assert!(count.abs() < 1e-9, "{count}");
    let later = [point(40, 2.0), point(70, 3.0), point(1000, 1.0)];
    let (count, until) = integrate(&later, until.as_ref(), step);
    assert!((count - 30.0 - 30.0).abs() < 1e-9, "10 s and, after a gap, one step: {count}");
    assert_eq!(until, Some(at(1000)));
    assert_eq!(integrate(&[], None, step).1, None);
}

#[test]
fn states_have_names() {
    let states = [ComplianceState::Met, ComplianceState::Violated, ComplianceState::Unknown];
    for state in states {
        assert_eq!(json!(state), state.as_str());
    }
}
