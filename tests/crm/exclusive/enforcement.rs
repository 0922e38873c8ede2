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
    exclusivity::exclusively,
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

/// One request.
#[derive(Clone, Copy)]
struct Sent {
    /// Since the generator started.
    at: Duration,
    /// How long it took. None while it is in progress.
    took: Option<Duration>,
}

/// What a failed request counts as.
const FAILED: Option<Duration> = Some(Duration::MAX);

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
                    let slot = Arc::clone(&slots).try_acquire_owned().ok();
                    let number = {
                        let mut kept = kept.lock().unwrap();
                        let took = if slot.is_some() { None } else { FAILED };
                        kept.push(Sent { at, took });
                        kept.len() - 1
                    };
                    let Some(slot) = slot else { continue };
                    tokio::spawn(async move {
                        let sent = Instant::now();
                        let answer = get_by(&client, &url, None).await;
                        let is_ok = answer.is_ok_and(|(status, _)| status == 200);
                        let took = if is_ok { Some(sent.elapsed()) } else { FAILED };
                        kept.lock().unwrap()[number].took = took;
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

    /// The 95th percentile of latency of the requests that were sent in each second. Those without an
    /// answer so far count from when they were sent.
    fn latencies(&self) -> Vec<Option<Duration>> {
        let seconds = usize::try_from(self.started.elapsed().as_secs()).unwrap();
        let mut latencies = vec![Vec::new(); seconds];
        let now = self.started.elapsed();
        for Sent { at, took } in self.sent.lock().unwrap().iter() {
            let second = usize::try_from(at.as_secs()).unwrap();
            if let Some(of_second) = latencies.get_mut(second) {
                of_second.push(took.unwrap_or(now.saturating_sub(*at)));
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
    replicas: Vec<u32>,
}

impl Run {
    fn violation_seconds(&self) -> u32 {
        let violated = self.latencies.iter().flatten().filter(|it| **it > BOUND);
        u32::try_from(violated.count()).unwrap()
    }

    fn replica_seconds(&self) -> u32 {
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
async fn replicas(ns: &TestNamespace, scaling: Scaling) -> u32 {
    let api: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
    let deployment = api.get(&format!("{}--busy", name(scaling))).await.unwrap();
    let replicas = deployment.status.and_then(|it| it.replicas).unwrap_or_default();
    u32::try_from(replicas).unwrap()
}

/// Records the number of instances each second.
async fn record(ns: &TestNamespace, scaling: Scaling, seconds: u32) -> Vec<u32> {
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
        // The load would disturb other tests, and they would disturb it.
        exclusively(step_up_and_down(ns, scaling, url)).await;
    })
    .await;
}

async fn step_up_and_down(ns: &TestNamespace, scaling: Scaling, url: String) {
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
    let raised =
        |it: &ClassRuntimeStatus| it.last_applied_recommendations.iter().any(|it| it.target >= 3.0);
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
}

mod proof {
    use std::fmt::Write as _;

    use oprc_tests::{proof, workspace};

    use super::*;

    /// Seconds under the low load, so that the function is measured.
    const WARM_UP: u32 = 40;
    /// Seconds under the high load.
    const STEP: u32 = 120;
    /// Enforcement may use at most this many times the instances of the autoscaler.
    const MAX_COST: f64 = 1.1;
    const PLOT: &str = "docs/images/load-step.svg";

    /// In full: enforcement and an autoscaler with 70 % CPU in turn, by the safeguards of production.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_step_is_served_better_than_by_an_autoscaler_alone() {
        let proof =
            proof::begin("load step, enforcement beside an autoscaler, in pairs of runs", 1, 3);
        floor_follows_a_load_step(Scaling::EnforcedReplicas).await;
        if !proof::whole() {
            return;
        }
        floor_follows_a_load_step(Scaling::EnforcedAutoscaler).await;
        let (mut alone, mut enforced) = (Vec::new(), Vec::new());
        for _ in 0..proof.rounds {
            alone.push(run(Scaling::Autoscaler).await);
            enforced.push(run(Scaling::EnforcedAutoscaler).await);
        }
        let violated = [&alone, &enforced].map(|runs| median(runs, Run::violation_seconds));
        let cost = [&alone, &enforced].map(|runs| median(runs, Run::replica_seconds));
        let result = format!(
            "p95 above {} ms for {} s with the autoscaler, {} s with enforcement; replica-seconds {} and {} (medians)",
            BOUND.as_millis(),
            violated[0],
            violated[1],
            cost[0],
            cost[1]
        );
        println!("{result}");
        for (run, of) in alone.iter().zip(&enforced) {
            let figures = |run: &Run| (run.violation_seconds(), run.replica_seconds());
            println!("autoscaler {:?}, enforcement {:?}", figures(run), figures(of));
        }
        std::fs::create_dir_all(workspace().join("docs/images")).unwrap();
        let plot = plot(&alone[0], &enforced[0]);
        std::fs::write(workspace().join(PLOT), plot).unwrap();
        assert!(violated[1] < violated[0], "{result}");
        assert!(f64::from(cost[1]) <= MAX_COST * f64::from(cost[0]), "{result}");
        proof.held(&result);
    }

    fn median(runs: &[Run], of: impl Fn(&Run) -> u32) -> u32 {
        let mut all: Vec<_> = runs.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    }

    /// One run in a namespace of its own.
    async fn run(scaling: Scaling) -> Run {
        let options = options(scaling, &[]).await;
        let run = Mutex::new(Run::default());
        with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
            let url = deployed(ns, crm, scaling).await;
            let found = exclusively(async {
                let generator = Generator::start(url, LOW);
                record(ns, scaling, WARM_UP).await;
                generator.set_rate(HIGH);
                let replicas = record(ns, scaling, STEP).await;
                let latencies = generator.latencies();
                let first = usize::try_from(WARM_UP).unwrap();
                Run { latencies: latencies.into_iter().skip(first).collect(), replicas }
            })
            .await;
            *run.lock().unwrap() = found;
        })
        .await;
        run.into_inner().unwrap()
    }

    /// The two runs above each other: latency and instances over time.
    fn plot(alone: &Run, enforced: &Run) -> String {
        let mut svg = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 420\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"720\" height=\"420\" fill=\"white\"/>\n",
        );
        let seconds = |run: &Run| -> Vec<f64> {
            let of = |it: &Option<Duration>| it.map_or(0.0, |it| it.as_secs_f64().min(6.0));
            run.latencies.iter().map(of).collect()
        };
        let instances =
            |run: &Run| -> Vec<f64> { run.replicas.iter().map(|it| f64::from(*it)).collect() };
        panel(
            &mut svg,
            30.0,
            "p95 in seconds (at most 6 are shown)",
            6.0,
            &[
                ("#c0392b", "autoscaler, 70 % CPU", seconds(alone)),
                ("#2471a3", "enforcement", seconds(enforced)),
                ("#999999", "requirement", vec![BOUND.as_secs_f64(); alone.latencies.len()]),
            ],
        );
        panel(
            &mut svg,
            230.0,
            "instances",
            10.0,
            &[
                ("#c0392b", "autoscaler, 70 % CPU", instances(alone)),
                ("#2471a3", "enforcement", instances(enforced)),
            ],
        );
        writeln!(
            svg,
            "<text x=\"60\" y=\"412\">seconds after the load rose from {LOW} to {HIGH} requests/s</text>\n</svg>"
        )
        .unwrap();
        svg
    }

    fn panel(svg: &mut String, top: f64, title: &str, max: f64, lines: &[(&str, &str, Vec<f64>)]) {
        let (left, width, height) = (60.0, 640.0, 150.0);
        let bottom = top + height;
        writeln!(svg, "<text x=\"{left}\" y=\"{}\">{title}</text>", top - 8.0).unwrap();
        for part in 0..=2 {
            let value = max * f64::from(part) / 2.0;
            let y = bottom - height * f64::from(part) / 2.0;
            writeln!(
                svg,
                "<line x1=\"{left}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#dddddd\"/><text x=\"30\" y=\"{}\">{value}</text>",
                left + width,
                y + 4.0
            )
            .unwrap();
        }
        for second in (0..=STEP).step_by(30) {
            let x = left + width * f64::from(second) / f64::from(STEP);
            writeln!(svg, "<text x=\"{x}\" y=\"{}\">{second}</text>", bottom + 15.0).unwrap();
        }
        for (number, (colour, name, values)) in (0_u32..).zip(lines) {
            let mut points = String::new();
            for (second, value) in (0_u32..).zip(values) {
                let x = left + width * f64::from(second) / f64::from(STEP);
                let y = bottom - height * (value / max).min(1.0);
                write!(points, "{x:.1},{y:.1} ").unwrap();
            }
            writeln!(
                svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
                left + width - 180.0,
                top + 12.0 + 14.0 * f64::from(number)
            )
            .unwrap();
        }
    }
}
