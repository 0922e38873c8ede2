//! Enforcement of requirements under load.

mod load_step;
mod plot;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use oprc_crm::crd::ClassRuntimeStatus;
use oprc_tests::{
    TestNamespace,
    class::{deploy, hello_with_little_cpu, spec_of, url, wait_available},
    crm::{Crm, Options},
    eventually,
    fixture::{reach, wait_for_response},
    load::Target,
    shared,
};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_mins(3);
/// Bound on the 95th percentile of latency.
const BOUND: Duration = Duration::from_millis(500);
/// CPU time of a request. With a limit of 100m an instance serves 20 requests/s.
const BURN_MS: u32 = 5;
const LOW: u32 = 8;
const HIGH: u32 = 60;
const MAX_INSTANCES: u32 = 10;

/// How the class is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scaling {
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

    /// A CRM with the safeguards of production, unless `variables` say otherwise.
    async fn options(self, variables: &[(&str, &str)]) -> Options {
        let autoscaler = self != Self::EnforcedReplicas;
        let prometheus = shared().await.spec().prometheus_url().unwrap();
        let options = Options::enforcing(&prometheus)
            .with("OPRC_CRM_FEATURES_HPA", &autoscaler.to_string())
            // The next CRM of the test needs no lease.
            .with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false");
        variables.iter().fold(options, |options, (name, value)| options.with(name, value))
    }

    /// Deploys the class and returns how its function is called.
    async fn deployed(self, ns: &TestNamespace, crm: &Crm) -> Target {
        deploy(&crm.client, &self.class(), &self.spec()).await.unwrap();
        let status = wait_available(ns, &self.class()).await;
        let mut target = reach(ns, &url(&status, "busy")).await;
        wait_for_response(&target).await;
        target.url = format!("{}/?burn_ms={BURN_MS}", target.url);
        target
    }
}

/// What a run achieved, second by second.
#[derive(Debug, Default)]
struct Run {
    latencies: Vec<Option<Duration>>,
    instances: Vec<u32>,
}

impl Run {
    fn violation_seconds(&self) -> u32 {
        let violated = self.latencies.iter().flatten().filter(|it| **it > BOUND);
        u32::try_from(violated.count()).unwrap()
    }

    fn instance_seconds(&self) -> u32 {
        self.instances.iter().sum()
    }
}

/// Instances that aren't terminating, be they ready or not.
async fn instances(ns: &TestNamespace) -> Vec<String> {
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
