//! A load step, to more than one instance can serve.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod,
};
use kube::{Api, ResourceExt, api::ListParams};
use oprc_crm::{
    crd::{ClassRuntimeStatus, NfrChange},
    kinds::KNATIVE_REVISION,
};
use oprc_tests::{
    TestNamespace,
    class::{
        classes, deploy, hello_with_little_cpu, list, spec_of, url, wait_available, wait_for_status,
    },
    crm::{Crm, Options},
    eventually,
    exclusivity::begin_exclusive,
    fixture::{reach, wait_for_response},
    generator::Generator,
    in_namespace,
    load::{Connection, Target},
    prometheus::Prometheus,
    proof,
    write_cutoff::WriteCutoff,
};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

const TIMEOUT: Duration = Duration::from_mins(3);
/// Bound on the 95th percentile of latency.
pub(super) const BOUND: Duration = Duration::from_millis(500);
/// CPU time of a request. With a limit of 100m an instance serves 20 requests/s.
const BURN_MS: u32 = 5;
pub(super) const LOW: u32 = 8;
pub(super) const HIGH: u32 = 60;
const MAX_INSTANCES: u32 = 10;

/// How the class is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scaling {
    /// By an autoscaler alone, with a target of 70 % CPU.
    Autoscaler,
    /// By enforcement, which sets the minimum of the autoscaler.
    EnforcedAutoscaler,
    /// By enforcement, which sets the replicas.
    EnforcedReplicas,
    /// By enforcement, which sets the minimum of Knative's autoscaler.
    EnforcedKnative,
}

impl Scaling {
    fn is_enforced(self) -> bool {
        self != Self::Autoscaler
    }

    fn is_knative(self) -> bool {
        self == Self::EnforcedKnative
    }

    /// The name of the class.
    fn class(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn spec(self) -> Value {
        let mut busy = hello_with_little_cpu("busy", MAX_INSTANCES);
        // Knative's grace period is the timeout of a call.
        busy["config"] = json!({"timeout_ms": 20000});
        let mut spec = spec_of(&[busy]);
        let template = if self.is_knative() { "knative" } else { "k8s_deployment" };
        spec["selected_template"] = json!(template);
        spec["telemetry"] = json!({"metrics": false});
        spec["nfr_requirements"] = json!({"max_latency_ms": BOUND.as_millis()});
        let mode = if self.is_enforced() { "enforce" } else { "observe" };
        spec["nfr"] = json!({"enforcement": {"mode": mode, "dimensions": ["replicas"]}});
        spec
    }

    /// CRM with the safeguards of production.
    pub(super) fn options(self, measuring: Options) -> Options {
        let autoscaler = self != Self::EnforcedReplicas;
        measuring
            .with("OPRC_CRM_FEATURES_NFR_ENFORCEMENT", "true")
            .with("OPRC_CRM_FEATURES_HPA", &autoscaler.to_string())
            // The next CRM of the test needs no lease.
            .with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false")
    }

    /// Deploys the class and returns how its function is called.
    pub(super) async fn deployed(self, ns: &TestNamespace, crm: &Crm) -> Target {
        deploy(&crm.client, &self.class(), &self.spec()).await.unwrap();
        let status = wait_available(ns, &self.class()).await;
        let mut target = reach(ns, &url(&status, "busy")).await;
        wait_for_response(&target).await;
        target.url = format!("{}/?burn_ms={BURN_MS}", target.url);
        target
    }
}

/// Instances that aren't terminating, be they ready or not.
pub(super) async fn instances(ns: &TestNamespace) -> Vec<String> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let pods = api.list(&ListParams::default()).await.unwrap();
    let stay = pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    stay.map(ResourceExt::name_any).collect()
}

fn is_met(status: &ClassRuntimeStatus) -> bool {
    status.is_true("NfrEnforced")
        && status.nfr_compliance.iter().all(|it| it.state.as_str() == "met")
        && status.phase.as_str() == "Available"
}

/// Short safeguards, under which noise might lower the floor within the test.
const SHORT: [(&str, &str); 2] =
    [("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "20"), ("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "10")];
/// So short that the floor comes down soon.
const SHORTEST: [(&str, &str); 2] =
    [("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "5"), ("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "2")];

fn with(options: Options, variables: &[(&str, &str)]) -> Options {
    variables.iter().fold(options, |options, (name, value)| options.with(name, value))
}

/// Instances without which the high load isn't served in time.
const NEEDED: i32 = 4;

/// The lowest rate of noise is the mean divided by this; the highest is as far above the mean.
const NOISE: u32 = 2;

/// Changes the rate each second, until it is dropped.
pub(super) async fn make_noise(generator: &Generator, mean: u32, mut seed: u64) {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        // A linear congruential generator; its high bits are random enough.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let spread = u64::from(2 * (mean - mean / NOISE) + 1);
        generator.set_rate(mean / NOISE + u32::try_from((seed >> 32) % spread).unwrap());
    }
}

fn decides(body: &Value) -> bool {
    body.pointer("/status/nfr_history").and_then(Value::as_array).is_some_and(|it| !it.is_empty())
}

pub(super) async fn history(ns: &TestNamespace, scaling: Scaling) -> Vec<NfrChange> {
    let class = classes(ns).get(&scaling.class()).await.unwrap();
    class.status.unwrap_or_default().nfr_history
}

/// Runs a class under a low load, then a load step.
///
/// CRM ends while it records its first decision, once before the write and once after it. The floor is
/// set, nothing is lowered by noise or by a deployment, and it comes down in steps after the load. The end
/// after the write and the deployment are left out of samples.
pub(super) async fn floor_follows_a_load_step(scaling: Scaling) {
    in_namespace(async |ns: &TestNamespace| {
        // The load would disturb other tests, and they would disturb it. So would frequent scrapes.
        let exclusive = begin_exclusive().await;
        let prometheus = Prometheus::with_frequent_scrapes().await;
        let options = with(scaling.options(prometheus.frequently_measuring()), &SHORT);
        let lost = WriteCutoff::at_first(decides, false);
        let crm = lost.start(ns, &options).await;
        let target = scaling.deployed(ns, &crm).await;
        let first = instances(ns).await;
        let generator = Generator::start(target, Connection::New, LOW);
        let class = scaling.class();
        wait_for_status(ns, &class, "measurements", TIMEOUT, is_met).await;
        generator.set_rate(HIGH);
        timeout(TIMEOUT, lost.reached()).await.expect("a decision");
        drop(crm);
        assert_eq!(history(ns, scaling).await, []);
        let mut decided = None;
        if proof::whole() {
            let kept = WriteCutoff::at_first(decides, true);
            let crm = kept.start(ns, &options).await;
            timeout(TIMEOUT, kept.reached()).await.expect("a decision");
            drop(crm);
            let recorded = history(ns, scaling).await;
            assert_eq!(recorded.len(), 1, "{recorded:?}");
            decided = recorded.into_iter().next();
        }
        let crm = Crm::start(ns, &options).await;
        tokio::select! {
            () = make_noise(&generator, HIGH, 1) => {}
            () = raise(ns, scaling, &first, decided.as_ref()) => {}
        }
        if proof::whole() {
            tokio::select! {
                () = make_noise(&generator, HIGH, 2) => {}
                () = deploy_under_load(ns, &crm, scaling) => {}
            }
        }
        generator.set_rate(1);
        drop(exclusive);
        crm.stop().await;
        let crm = Crm::start(ns, &with(options, &SHORTEST)).await;
        is_lowered(ns, scaling).await;
        crm.stop().await;
    })
    .await;
}

async fn raise(
    ns: &TestNamespace,
    scaling: Scaling,
    first: &[String],
    decided: Option<&NfrChange>,
) {
    let class = scaling.class();
    let raised = |it: &ClassRuntimeStatus| {
        it.last_applied_recommendations.iter().any(|it| it.target >= f64::from(NEEDED))
    };
    wait_for_status(ns, &class, "a floor", TIMEOUT, raised).await;
    eventually("the instances", TIMEOUT, || async {
        let found = i32::try_from(instances(ns).await.len()).unwrap();
        if found >= NEEDED { Ok(()) } else { Err(format!("{found} instances")) }
    })
    .await;
    let found = wait_for_status(ns, &class, "p95 within its bound", TIMEOUT, is_met).await;
    let now = instances(ns).await;
    assert!(first.iter().all(|pod| now.contains(pod)), "no pod is replaced: {first:?} {now:?}");
    assert_eq!(found.ready.as_deref(), Some("1/1"));
    // The newest is the first. The decision is neither repeated nor forgotten.
    let history = found.nfr_history;
    assert!(decided.is_none_or(|it| history.last() == Some(it)), "{history:?}");
    assert!(history.windows(2).all(|it| (it[0].from - it[1].to).abs() < 0.5), "{history:?}");
    let is_raise: Vec<_> = history.iter().rev().map(|it| it.to > it.from).collect();
    assert!(is_raise.is_sorted_by(|a, b| a >= b), "no raise after a step down: {history:?}");
    assert!(history[0].basis.contains("req/s"), "{history:?}");
}

/// The floor in the object that has it.
async fn floor(ns: &TestNamespace, scaling: Scaling) -> Option<i32> {
    let name = format!("{}--busy", scaling.class());
    match scaling {
        Scaling::EnforcedKnative => {
            let mut revisions = list(ns, &KNATIVE_REVISION).await;
            revisions.sort_by_key(|it| it.metadata.creation_timestamp.clone());
            let newest = revisions.last().unwrap();
            newest.annotations()["autoscaling.knative.dev/min-scale"].parse().ok()
        }
        Scaling::EnforcedReplicas => {
            let api: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
            api.get(&name).await.unwrap().spec.unwrap().replicas
        }
        Scaling::EnforcedAutoscaler => {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(ns.client.clone(), &ns.name);
            api.get(&name).await.unwrap().spec.unwrap().min_replicas
        }
        Scaling::Autoscaler => None,
    }
}

async fn deploy_under_load(ns: &TestNamespace, crm: &Crm, scaling: Scaling) {
    let mut spec = scaling.spec();
    spec["functions"][0]["provision"]["env"][0]["value"] = json!("1");
    let class = scaling.class();
    deploy(&crm.client, &class, &spec).await.unwrap();
    let rolled_out = |it: &ClassRuntimeStatus| it.phase.as_str() == "Available";
    let observed = async {
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            let now = floor(ns, scaling).await;
            assert!(now >= Some(NEEDED), "the floor is {now:?}");
        }
    };
    tokio::select! {
        () = observed => {}
        _ = wait_for_status(ns, &class, "the rollout", TIMEOUT, rolled_out) => {}
    }
}

/// In steps, as far as the floor of the specification. A sample waits for the first two steps.
async fn is_lowered(ns: &TestNamespace, scaling: Scaling) {
    let steps = |it: &ClassRuntimeStatus| {
        it.nfr_history.iter().filter(|change| change.to < change.from).count()
    };
    let lowered = |it: &ClassRuntimeStatus| {
        let is_done = !proof::whole() || it.last_applied_recommendations.is_empty();
        is_done && (steps(it) >= 2 || it.last_applied_recommendations.is_empty())
    };
    let found = wait_for_status(ns, &scaling.class(), "a lower floor", TIMEOUT, lowered).await;
    assert!(steps(&found) >= 2, "in steps: {:?}", found.nfr_history);
}
