//! Compliance with requirements, measured by the proxy and read from the cluster's Prometheus.

use std::time::Duration;

use k8s_openapi::{
    api::{core::v1::ConfigMap, events::v1::Event},
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use oprc_crm::crd::{ClassRuntimeStatus, ComplianceState};
use oprc_grpc::deployment::{GetDeploymentStatusRequest, NfrCompliance};
use oprc_tests::{
    TestNamespace,
    class::{classes, deploy, hello, spec_of, wait_available, wait_for_status},
    crm::{Crm, Options},
    eventually,
    exclusivity::begin_exclusive,
    fixture::{address, wait_for_response, with_crm},
    generator::{Generator, Outcome, p95},
    http::get_ok,
    in_namespace,
    load::{Connection, Target},
    prometheus::Prometheus,
    shared,
};
use serde_json::{Value, json};

use crate::metrics::{NFR_METRICS, assert_series, of_series, samples};

const TIMEOUT: Duration = Duration::from_mins(3);
/// A pass after this time sees only requests of that time: the rate window, which is four scrapes, and
/// the step that times are rounded down to.
const WARM_UP: SignedDuration = SignedDuration::from_secs(11);
/// The rate window of latency and CPU in CRM with the settings of this test. That of rates is shorter.
const SAMPLE: SignedDuration = SignedDuration::from_secs(8);
/// Passes whose averages are compared.
const PASSES: u32 = 6;
/// Allowed difference, as a fraction.
const TOLERANCE: f64 = 0.1;

/// Requests per second and the 95th percentile of latency in milliseconds, in the [`SAMPLE`] before
/// a time.
fn measured(generator: &Generator, until: Timestamp) -> (f64, f64) {
    let mut latencies = Vec::new();
    for sent in generator.sent() {
        assert_ne!(sent.outcome, Outcome::Failed);
        if let Outcome::Ok(took) = sent.outcome {
            let answered = sent.at + took;
            if answered <= until && answered > until - SAMPLE {
                latencies.push(took);
            }
        }
    }
    let count = u32::try_from(latencies.len()).unwrap();
    let p95 = p95(latencies).unwrap();
    (f64::from(count) / SAMPLE.as_secs_f64(), p95.as_secs_f64() * 1000.0)
}

/// A class with the function `greet`, which exports no metrics of its own.
fn spec(max_latency_ms: u32) -> Value {
    let mut spec = spec_of(&[hello("greet")]);
    spec["selected_template"] = json!("k8s_deployment");
    spec["telemetry"] = json!({"metrics": false});
    spec["nfr_requirements"] = json!({"max_latency_ms": max_latency_ms});
    spec
}

async fn deployed(ns: &TestNamespace, crm: &Crm, name: &str, spec: &Value) -> String {
    deploy(&crm.client, name, spec).await.unwrap();
    wait_available(ns, name).await;
    let url = address(ns, &format!("{name}--greet")).await;
    wait_for_response(&Target::plain(&url)).await;
    url
}

async fn reported(crm: &Crm, name: &str) -> Option<NfrCompliance> {
    let request = GetDeploymentStatusRequest {
        deployment_id: name.to_owned(),
        ..GetDeploymentStatusRequest::default()
    };
    let response = crm.client.clone().get_deployment_status(request).await.unwrap().into_inner();
    let status = response.class_runtime.unwrap().status.unwrap();
    status.functions.into_iter().find(|it| it.key == "greet").unwrap().nfr_compliance
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= expected * TOLERANCE
}

/// CPU time in seconds and memory in bytes that the function itself reports. CRM doesn't read that.
async fn usage(url: &str) -> (f64, f64) {
    let text = get_ok(&format!("{url}/metrics")).await.unwrap();
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {text}")).trim().parse().unwrap()
    };
    (value("process_cpu_seconds_total "), value("process_resident_memory_bytes "))
}

/// Averages of rate, latency and CPU.
#[derive(Debug, Default)]
struct Averages {
    rate: f64,
    p95: f64,
    cpu: f64,
}

impl Averages {
    fn add(&mut self, rate: f64, p95: f64) {
        self.rate += rate / f64::from(PASSES);
        self.p95 += p95 / f64::from(PASSES);
    }
}

/// Waits for a pass that is no earlier than a time.
async fn wait_for_pass(crm: &Crm, name: &str, earliest: Timestamp) {
    eventually("a later pass", TIMEOUT, || async {
        let found = reported(crm, name).await.ok_or("not measured")?;
        let at: Timestamp = found.observed_at.parse().map_err(|_| "not measured")?;
        if at >= earliest { Ok(()) } else { Err(format!("the pass of {at}")) }
    })
    .await;
}

/// What CRM reports in consecutive passes, and what the generator measured in the same times.
async fn compare(crm: &Crm, name: &str, generator: &Generator) -> (Averages, Averages) {
    let (mut by_crm, mut by_generator) = (Averages::default(), Averages::default());
    let mut last = reported(crm, name).await.unwrap().observed_at;
    for _ in 0..PASSES {
        let found = eventually("the next pass", TIMEOUT, || async {
            let found = reported(crm, name).await.ok_or("not measured")?;
            if found.observed_at == last { Err("the same pass".to_owned()) } else { Ok(found) }
        })
        .await;
        by_crm.add(found.throughput_actual.unwrap(), found.latency_p95_ms.unwrap());
        by_crm.cpu += found.cpu_cores.unwrap_or_default() / f64::from(PASSES);
        let (rate, p95) = measured(generator, found.observed_at.parse().unwrap());
        by_generator.add(rate, p95);
        last = found.observed_at;
    }
    println!("{name}: CRM {by_crm:?}, generator {by_generator:?}");
    (by_crm, by_generator)
}

fn has_state(status: &ClassRuntimeStatus, state: ComplianceState) -> bool {
    status.is_true("NfrObserved")
        && status.nfr_compliance.iter().any(|it| it.requirement == "latency" && it.state == state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_what_a_load_generator_measures() {
    in_namespace(async |ns: &TestNamespace| {
        let prometheus = Prometheus::with_frequent_scrapes().await;
        let crm = Crm::start(ns, &prometheus.frequently_measuring()).await;
        compare_with_a_generator(ns, &crm).await;
        crm.stop().await;
    })
    .await;
}

async fn compare_with_a_generator(ns: &TestNamespace, crm: &Crm) {
    // The bound of the first is also one of the histogram.
    let slow = deployed(ns, crm, "measured", &spec(210)).await;
    let mut strict = spec(30);
    strict["constraints"] = json!({"hard_latency_ms": 40});
    let late = deployed(ns, crm, "measured-2", &strict).await;
    // On a busy machine the generator would measure how long it waits for a CPU.
    let _exclusive = begin_exclusive().await;
    let start = |url: &str, rate| Generator::start(Target::plain(url), Connection::Kept, rate);
    let many = start(&format!("{slow}/?sleep_ms=200&burn_ms=5"), 20);
    let few = start(&format!("{late}/?sleep_ms=50"), 5);
    get_ok(&format!("{slow}/?keep_mb=100")).await.unwrap();
    let ((before, _), since) = (usage(&slow).await, Timestamp::now());
    wait_for_pass(crm, "measured", Timestamp::now() + WARM_UP).await;
    let first = compare(crm, "measured", &many);
    let (first, second) = tokio::join!(first, compare(crm, "measured-2", &few));
    let (after, memory) = usage(&slow).await;
    let cpu = (after - before) / Timestamp::now().duration_since(since).as_secs_f64();
    let found = reported(crm, "measured").await.unwrap();
    let by_crm = (first.0.cpu, found.memory_bytes.unwrap());
    println!("CPU and memory: CRM {by_crm:?}, function {:?}", (cpu, memory));
    assert!(near(by_crm.0, cpu) && near(by_crm.1, memory), "{by_crm:?} {cpu} {memory}");
    let (by_crm, by_generator) = first;
    assert!(near(by_crm.rate, by_generator.rate), "{by_crm:?} {by_generator:?}");
    assert!(near(by_crm.p95, by_generator.p95), "{by_crm:?} {by_generator:?}");
    assert_eq!(reported(crm, "measured").await.unwrap().availability_actual, Some(1.0));
    // Its requests aren't mixed with those of the first. There are too few for an exact percentile.
    let (by_crm, by_generator) = second;
    assert!(near(by_crm.rate, by_generator.rate), "{by_crm:?} {by_generator:?}");
    assert!((50.0..150.0).contains(&by_crm.p95), "{by_crm:?} {by_generator:?}");
    let found = reported(crm, "measured-2").await.unwrap();
    assert_eq!(found.requirements[0].requirement, "latency");
    assert_eq!(found.requirements[0].state, "violated");
    assert!(!found.requirements[0].since.is_empty());

    let violated = |it: &ClassRuntimeStatus| has_state(it, ComplianceState::Violated);
    wait_for_status(ns, "measured-2", "a violation", TIMEOUT, violated).await;
    let class = classes(ns).get("measured-2").await.unwrap();
    let managers: Vec<_> =
        class.managed_fields().iter().filter_map(|it| it.manager.as_deref()).collect();
    assert!(managers.contains(&"oprc-crm-nfr"), "{managers:?}");
    let events: Api<Event> = Api::namespaced(ns.client.clone(), &ns.name);
    let events = events.list(&ListParams::default()).await.unwrap();
    let of_second = events.iter().filter(|it| {
        it.reason.as_deref() == Some("NFRViolated")
            && it.note.as_ref().is_some_and(|note| note.starts_with("greet: latency: "))
            && it.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some("measured-2")
    });
    assert_eq!(of_second.count(), 1);
    let samples = samples(crm).await.unwrap();
    for (name, labels) in NFR_METRICS {
        assert_series(&samples, name, labels);
    }
    let second = [("function_key", "measured-2/greet"), ("environment", "default")];
    let of_second = |name: &str, label| of_series(&samples, name, &[second[0], second[1], label]);
    let violations = of_second("crm_nfr_violations_total", ("type", "latency"));
    assert!((violations - 1.0).abs() < f64::EPSILON, "{samples:#?}");
    let breaches = of_second("crm_constraint_breaches_total", ("constraint", "hard_latency"));
    assert!(breaches >= 10.0, "{samples:#?}");
    let first = [("function_key", "measured/greet"), ("environment", "default")];
    let throughput = of_series(&samples, "crm_function_throughput", &first);
    assert!(near(throughput, measured(&many, Timestamp::now()).0), "{samples:#?}");
}

/// The reason of the condition `NfrEnforced`.
fn enforcement(status: &ClassRuntimeStatus) -> Option<&str> {
    let condition = status.conditions.iter().find(|it| it.type_ == "NfrEnforced")?;
    Some(condition.reason.as_str())
}

#[tokio::test]
async fn config_map_freezes_enforcement() {
    let prometheus = shared().await.spec().prometheus_url().unwrap();
    let options = Options::enforcing(&prometheus)
        .with("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "2")
        .with("OPRC_CRM_ANALYZER_INTERVAL_SECS", "2");
    with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
        let mut enforced = spec(500);
        enforced["nfr"] = json!({"enforcement": {"mode": "enforce"}});
        deployed(ns, crm, "frozen", &enforced).await;
        let running = |it: &ClassRuntimeStatus| enforcement(it) == Some("Enforced");
        wait_for_status(ns, "frozen", "enforcement", TIMEOUT, running).await;
        let config_maps: Api<ConfigMap> = Api::namespaced(ns.client.clone(), &ns.name);
        let switch = json!({
            "metadata": {"name": "oprc-crm-enforcement"}, "data": {"frozen": "true"},
        });
        let switch = serde_json::from_value(switch).unwrap();
        config_maps.create(&PostParams::default(), &switch).await.unwrap();
        let frozen = |it: &ClassRuntimeStatus| enforcement(it) == Some("EnforcementFrozen");
        wait_for_status(ns, "frozen", "the freeze", TIMEOUT, frozen).await;
        let reported = samples(crm).await.unwrap();
        let is_frozen = of_series(&reported, "crm_enforcement_frozen", &[]);
        assert!((is_frozen - 1.0).abs() < f64::EPSILON, "{reported:#?}");
        let delete = DeleteParams::default();
        config_maps.delete("oprc-crm-enforcement", &delete).await.unwrap();
        wait_for_status(ns, "frozen", "the end of the freeze", TIMEOUT, running).await;
    })
    .await;
}
