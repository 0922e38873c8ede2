//! Enforcement of requirements under a load step: more than one instance can serve.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};
use oprc_crm::crd::ClassRuntimeStatus;
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello, spec_of, wait_available, wait_for_status},
    crm::{Crm, Options},
    eventually,
    fixture::{address, with_crm},
    http::{client_with_idle_timeout, get_by, get_ok},
    shared,
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};

const TIMEOUT: Duration = Duration::from_mins(3);
/// Bound on the 95th percentile of latency.
const BOUND: Duration = Duration::from_millis(500);
/// CPU time of a request. With a limit of 100m an instance serves 20 requests/s.
const BURN_MS: u32 = 5;
const LOW: u32 = 8;
const HIGH: u32 = 60;
/// Bound on concurrent requests; further ones count as lost.
const MAX_CONCURRENT: usize = 600;

/// How the class is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scaling {
    /// By an autoscaler alone.
    Autoscaler,
    /// By enforcement, which sets the minimum of the autoscaler.
    EnforcedAutoscaler,
    /// By enforcement, which sets the replicas.
    EnforcedReplicas,
}

impl Scaling {
    fn is_enforced(self) -> bool {
        self != Self::Autoscaler
    }
}

fn spec(scaling: Scaling) -> Value {
    let mut busy = hello("busy");
    let provision = &mut busy["provision"];
    provision["requests"] = json!({"cpu": "100m", "memory": "16Mi"});
    provision["limits"] = json!({"cpu": "100m", "memory": "64Mi"});
    provision["min_scale"] = json!(1);
    provision["max_scale"] = json!(10);
    let mut spec = spec_of(&[busy]);
    spec["selected_template"] = json!("k8s_deployment");
    spec["telemetry"] = json!({"metrics": false});
    spec["nfr_requirements"] = json!({"max_latency_ms": BOUND.as_millis()});
    let mode = if scaling.is_enforced() { "enforce" } else { "observe" };
    spec["nfr"] = json!({"enforcement": {"mode": mode, "dimensions": ["replicas"]}});
    spec
}

/// A CRM with the safeguards of production, unless `variables` say otherwise.
async fn options(scaling: Scaling, variables: &[(&str, &str)]) -> Options {
    let autoscaler = scaling != Scaling::EnforcedReplicas;
    let options = Options::default()
        .with("OPRC_CRM_FEATURES_PROMETHEUS", "true")
        .with("OPRC_CRM_FEATURES_NFR_ENFORCEMENT", "true")
        .with("OPRC_CRM_FEATURES_HPA", &autoscaler.to_string())
        .with("OPRC_CRM_PROM_URL", &shared().await.spec().prometheus_url().unwrap())
        .with("OPRC_CRM_PROM_SCRAPE_INTERVAL", "5s");
    variables.iter().fold(options, |options, (name, value)| options.with(name, value))
}

/// One request: when it was sent, and how long it took; none if it failed.
type Sent = (Duration, Option<Duration>);

/// Requests at a rate that can be changed, whether or not earlier ones were answered.
struct Generator {
    started: Instant,
    sent: Arc<Mutex<Vec<Sent>>>,
    task: JoinHandle<()>,
    rate: tokio::sync::watch::Sender<u32>,
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Generator {
    fn start(url: String, rate: u32) -> Self {
        let started = Instant::now();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (rate, mut rates) = tokio::sync::watch::channel(rate);
        let kept = Arc::clone(&sent);
        let task = tokio::spawn(async move {
            // New connections, which reach all instances.
            let client = client_with_idle_timeout(Duration::from_millis(1));
            let slots = Arc::new(Semaphore::new(MAX_CONCURRENT));
            loop {
                let mut ticks = interval(Duration::from_secs(1) / *rates.borrow_and_update());
                ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                loop {
                    tokio::select! {
                        changed = rates.changed() => match changed {
                            Ok(()) => break,
                            Err(_) => return,
                        },
                        _ = ticks.tick() => {}
                    }
                    let at = started.elapsed();
                    let (client, url, kept) = (client.clone(), url.clone(), Arc::clone(&kept));
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                        kept.lock().unwrap().push((at, None));
                        continue;
                    };
                    tokio::spawn(async move {
                        let sent = Instant::now();
                        let answer = get_by(&client, &url, None).await;
                        let is_ok = answer.is_ok_and(|(status, _)| status == 200);
                        kept.lock().unwrap().push((at, is_ok.then(|| sent.elapsed())));
                        drop(slot);
                    });
                }
            }
        });
        Self { started, sent, task, rate }
    }

    fn set_rate(&self, rate: u32) {
        self.rate.send_replace(rate);
    }

    /// The 95th percentile of latency of the requests that were sent in each second.
    fn latencies(&self) -> Vec<Option<Duration>> {
        let seconds = usize::try_from(self.started.elapsed().as_secs()).unwrap();
        let mut latencies = vec![Vec::new(); seconds];
        for (at, latency) in self.sent.lock().unwrap().iter() {
            let second = usize::try_from(at.as_secs()).unwrap();
            if let Some(of_second) = latencies.get_mut(second) {
                of_second.push(latency.unwrap_or(Duration::MAX));
            }
        }
        let p95 = |mut all: Vec<Duration>| {
            all.sort();
            all.get(all.len() * 95 / 100).copied()
        };
        latencies.into_iter().map(p95).collect()
    }
}

/// What a run achieved, second by second.
#[derive(Debug, Default)]
struct Run {
    latencies: Vec<Option<Duration>>,
    replicas: Vec<i32>,
}

impl Run {
    fn violation_seconds(&self) -> usize {
        self.latencies.iter().flatten().filter(|it| **it > BOUND).count()
    }

    fn replica_seconds(&self) -> i32 {
        self.replicas.iter().sum()
    }
}

fn name(scaling: Scaling) -> String {
    format!("{scaling:?}").to_lowercase()
}

/// Deploys the class and returns the URL of its function.
async fn deployed(ns: &TestNamespace, crm: &Crm, scaling: Scaling) -> String {
    let name = name(scaling);
    deploy(&crm.client, &name, &spec(scaling)).await.unwrap();
    wait_available(ns, &name).await;
    let url = address(ns, &format!("{name}--busy")).await;
    // kube-proxy doesn't report when it has programmed the pods.
    eventually("a response", TIMEOUT, || get_ok(&url)).await;
    format!("{url}/?burn_ms={BURN_MS}")
}

/// Instances that exist, be they ready or not.
async fn replicas(ns: &TestNamespace, scaling: Scaling) -> i32 {
    let api: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
    let deployment = api.get(&format!("{}--busy", name(scaling))).await.unwrap();
    deployment.status.and_then(|it| it.replicas).unwrap_or_default()
}

/// Records the number of instances each second.
async fn record(ns: &TestNamespace, scaling: Scaling, seconds: u32) -> Vec<i32> {
    let mut ticks = interval(Duration::from_secs(1));
    let mut all = Vec::new();
    for _ in 0..seconds {
        ticks.tick().await;
        all.push(replicas(ns, scaling).await);
    }
    all
}

async fn pods(ns: &TestNamespace) -> Vec<String> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let pods = api.list(&ListParams::default()).await.unwrap();
    pods.iter().map(ResourceExt::name_any).collect()
}

/// A load step, with short safeguards so that the floor comes down within the test.
async fn floor_follows_a_load_step(scaling: Scaling) {
    let short = [
        ("OPRC_CRM_PROM_STEP", "5s"),
        ("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "5"),
        ("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "20"),
        ("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "10"),
    ];
    let options = options(scaling, &short).await;
    with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
        let url = deployed(ns, crm, scaling).await;
        let name = name(scaling);
        let first = pods(ns).await;
        let generator = Generator::start(url, LOW);
        let met = |it: &ClassRuntimeStatus| {
            it.is_true("NfrEnforced")
                && it.nfr_compliance.iter().all(|it| it.state.as_str() == "met")
                && it.phase.as_str() == "Available"
        };
        wait_for_status(ns, &name, "measurements", TIMEOUT, met).await;
        generator.set_rate(HIGH);
        let raised = |it: &ClassRuntimeStatus| {
            it.last_applied_recommendations.iter().any(|it| it.target >= 3.0)
        };
        wait_for_status(ns, &name, "a floor", TIMEOUT, raised).await;
        eventually("the instances", TIMEOUT, || async {
            let found = replicas(ns, scaling).await;
            if found >= 3 { Ok(()) } else { Err(format!("{found} instances")) }
        })
        .await;
        let found = wait_for_status(ns, &name, "p95 within its bound", TIMEOUT, met).await;
        let now = pods(ns).await;
        assert!(first.iter().all(|pod| now.contains(pod)), "no pod is replaced: {first:?} {now:?}");
        let change = found.nfr_history.last().unwrap();
        assert!(change.basis.contains("req/s"), "{change:?}");
        assert_eq!(found.ready.as_deref(), Some("1/1"));

        generator.set_rate(1);
        let lowered =
            |it: &oprc_crm::crd::ClassRuntimeStatus| it.last_applied_recommendations.is_empty();
        let found =
            wait_for_status(ns, &name, "the floor of the specification", TIMEOUT, lowered).await;
        let down = found.nfr_history.iter().filter(|it| it.to < it.from).count();
        assert!(down >= 2, "in steps: {:?}", found.nfr_history);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floor_of_an_autoscaler_follows_a_load_step() {
    floor_follows_a_load_step(Scaling::EnforcedAutoscaler).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_a_load_step() {
    floor_follows_a_load_step(Scaling::EnforcedReplicas).await;
}
