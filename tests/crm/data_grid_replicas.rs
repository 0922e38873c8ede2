//! A data grid of three nodes that CRM operates under load: updates, lost pods, other certificates, other
//! numbers of nodes.

use std::{collections::BTreeSet, fs, time::Duration};

use fastrand::Rng;
use futures::TryStreamExt as _;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use oprc_tests::{
    TestNamespace,
    class::{AVAILABLE_TIMEOUT, deploy, hello, wait_available, wait_for, with_odgm},
    crm::{Crm, Options},
    fixture::{address, with_crm},
    grid::{function::Functions, nemesis::progress, workload::Workload},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::sleep;

const CLASS: &str = "shop";
const GRID: &str = "shop-odgm";
const SERVICE: &str = "shop-odgm-svc";
const OWN_PODS: &str = "oaas.io/owner=shop,oaas.io/component=odgm";
/// Shorter than what makes another node take over.
const PAUSE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// CRM updates the nodes one after the other.
    RollingUpdate,
    /// From three nodes to five and back.
    Scale,
    DeleteAllPods,
    DeletePod,
    Kill,
    Pause,
    RenewCertificate,
}

/// What `make test` runs takes longest to be right on a cluster.
const SAMPLE: [Fault; 3] = [Fault::RollingUpdate, Fault::Scale, Fault::DeleteAllPods];
const ALL: [Fault; 7] = [
    Fault::RollingUpdate,
    Fault::Scale,
    Fault::DeleteAllPods,
    Fault::DeletePod,
    Fault::Kill,
    Fault::Pause,
    Fault::RenewCertificate,
];

/// A class whose grid calls a function in this process.
struct Operated<'a> {
    ns: &'a TestNamespace,
    crm: &'a Crm,
    spec: Value,
    random: Rng,
}

mod proof {
    use oprc_tests::proof;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn operations_on_three_nodes_are_linearizable_while_crm_operates_them() {
        with_crm(&Options::default(), async |ns: &TestNamespace, crm: &Crm| {
            let proof = proof::begin("data grid of three nodes operated by CRM", 1, 20);
            let functions = Functions::start((host(ns), 0).into()).await;
            let mut operated = Operated::deploy(ns, crm, &functions).await;
            let url = format!("{}:8081", address(ns, SERVICE).await);
            let (mut operations, mut increments) = (0, 0);
            for seed in 0..u64::try_from(proof.rounds).unwrap() {
                let workload = Workload::new(seed, vec![url.clone()]);
                operated.random = Rng::with_seed(seed);
                let history = workload
                    .run(functions.calls(), async |history| {
                        for fault in operated.faults() {
                            progress(history, &format!("before {fault:?}")).await;
                            operated.inject(fault).await;
                            progress(history, &format!("after {fault:?}")).await;
                        }
                    })
                    .await;
                history.assert_linearizable(&format!("operated-{seed}"));
                increments += workload.assert_counts(&history);
                operations += history.len();
            }
            proof.held(&format!(
                "{operations} operations; increments to {increments}, each counted once"
            ));
        })
        .await;
    }
}

/// The address of this machine for pods.
fn host(ns: &TestNamespace) -> std::net::IpAddr {
    let url = ns.cluster.spec().api_url();
    let host = url.trim_start_matches("https://").rsplit_once(':').unwrap().0;
    host.parse().unwrap()
}

impl<'a> Operated<'a> {
    async fn deploy(ns: &'a TestNamespace, crm: &'a Crm, functions: &Functions) -> Self {
        let mut spec = with_odgm(&[hello("greet")]);
        spec["odgm_config"]["replicas"] = json!(3);
        spec["odgm_config"]["partition_count"] = json!(6);
        spec["odgm_config"]["invocation_routes"] =
            json!({"increment": {"url": functions.url("increment")}});
        spec["data_retention"] = json!({"on_delete": "delete"});
        let operated = Self { ns, crm, spec, random: Rng::with_seed(0) };
        operated.apply().await;
        operated
    }

    /// Deploys the specification and waits for its rollout.
    async fn apply(&self) {
        deploy(&self.crm.client, CLASS, &self.spec).await.unwrap();
        wait_available(self.ns, CLASS).await;
    }

    fn faults(&mut self) -> Vec<Fault> {
        if !oprc_tests::proof::whole() {
            return SAMPLE.into();
        }
        let mut faults = ALL;
        self.random.shuffle(&mut faults);
        faults.into_iter().take(4).collect()
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.ns.client.clone(), &self.ns.name)
    }

    fn stateful_sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.ns.client.clone(), &self.ns.name)
    }

    async fn inject(&mut self, fault: Fault) {
        let pod = format!("{GRID}-{}", self.random.u8(0..3));
        match fault {
            Fault::RollingUpdate => {
                let version = self.random.u64(..).to_string();
                self.spec["odgm_config"]["env"] = json!([{"name": "VERSION", "value": version}]);
                self.apply().await;
            }
            Fault::Scale => self.scale().await,
            Fault::DeleteAllPods => {
                let (now, own) = (DeleteParams::default().grace_period(0), ListParams::default());
                self.pods().delete_collection(&now, &own.labels(OWN_PODS)).await.unwrap();
                self.ready(3).await;
            }
            Fault::DeletePod => {
                let now = DeleteParams::default().grace_period(0);
                self.pods().delete(&pod, &now).await.unwrap();
                self.ready(3).await;
            }
            Fault::Kill => {
                let pid = self.process(&pod);
                kill_process(pid, Signal::KILL).unwrap();
                self.ready(3).await;
            }
            Fault::Pause => {
                let pid = self.process(&pod);
                kill_process(pid, Signal::STOP).unwrap();
                sleep(PAUSE).await;
                kill_process(pid, Signal::CONT).unwrap();
            }
            Fault::RenewCertificate => {
                self.renew_certificate().await;
                // Nodes that start now, and those that run, recognise each other.
                let now = DeleteParams::default().grace_period(0);
                self.pods().delete(&pod, &now).await.unwrap();
                self.ready(3).await;
            }
        }
    }

    /// Waits until so many nodes are ready, and no more exist.
    async fn ready(&self, nodes: i32) {
        let is_ready = |it: Option<&StatefulSet>| {
            let status = it.and_then(|it| it.status.as_ref());
            status.is_some_and(|it| it.available_replicas == Some(nodes) && it.replicas == nodes)
        };
        let api = self.stateful_sets();
        wait_for(&api, GRID, "its nodes to be ready", AVAILABLE_TIMEOUT, is_ready).await.unwrap();
    }

    /// Each node is removed from the members before it is deleted, so there is one step for each.
    async fn scale(&mut self) {
        self.spec["odgm_config"]["replicas"] = json!(5);
        self.apply().await;
        self.ready(5).await;
        let api = self.stateful_sets();
        let config = watcher::Config::default().fields(&format!("metadata.name={GRID}"));
        let steps = async {
            let changes = watcher::watcher(api, config).default_backoff().applied_objects();
            let mut changes = std::pin::pin!(changes);
            let mut steps = Vec::new();
            while let Some(object) = changes.try_next().await.unwrap() {
                let replicas = object.spec.unwrap().replicas.unwrap();
                if steps.last() != Some(&replicas) {
                    steps.push(replicas);
                }
                if replicas == 3 {
                    break;
                }
            }
            steps
        };
        self.spec["odgm_config"]["replicas"] = json!(3);
        let (steps, ()) = tokio::join!(steps, self.apply());
        assert_eq!(steps, [5, 4, 3]);
        self.ready(3).await;
    }

    async fn renew_certificate(&self) {
        let secrets: Api<Secret> = Api::namespaced(self.ns.client.clone(), &self.ns.name);
        let certificate = |secret: &Secret| secret.data.as_ref().unwrap()["tls.crt"].clone();
        let before = certificate(&secrets.get(GRID).await.unwrap());
        let past =
            json!({"metadata": {"annotations": {"oaas.io/renew-after": "2026-01-01T00:00:00Z"}}});
        secrets.patch(GRID, &PatchParams::default(), &Patch::Merge(past)).await.unwrap();
        let is_other = |it: Option<&Secret>| it.is_some_and(|it| certificate(it) != before);
        let what = "another certificate";
        wait_for(&secrets, GRID, what, AVAILABLE_TIMEOUT, is_other).await.unwrap();
    }

    /// The process of a node on this machine.
    fn process(&self, pod: &str) -> Pid {
        let own = [
            format!("ODGM_NODE_NAME={pod}"),
            format!("ODGM_NODE_ADDR=http://{pod}.shop-odgm-peers.{}.svc:8081", self.ns.name),
        ];
        let processes = fs::read_dir("/proc").unwrap().filter_map(|it| {
            let path = it.unwrap().path();
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            // A process that ends meanwhile isn't the one.
            let name = fs::read_to_string(path.join("comm")).ok()?;
            let environment = fs::read(path.join("environ")).ok()?;
            let variables: BTreeSet<_> = environment.split(|it| *it == 0).collect();
            let is_own = own.iter().all(|it| variables.contains(it.as_bytes()));
            (is_own && name.trim() == "oprc-odgm").then_some(pid)
        });
        let pid = processes.min().unwrap_or_else(|| panic!("{pod} has no process"));
        Pid::from_raw(pid).unwrap()
    }
}
