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
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use oprc_crm::crd::ClassRuntime;
use oprc_tests::{
    TestNamespace,
    class::{AVAILABLE_TIMEOUT, classes, deploy, hello, wait_available, wait_for, with_odgm},
    crm::{Crm, Options},
    fixture::{address, with_crm},
    grid::{function::Functions, nemesis::progress, node::children, workload::Workload},
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
    /// CRM updates the nodes while one isn't ready.
    UpdateWithoutNode,
    /// An update whose image doesn't exist, and the next one.
    BrokenUpdate,
    /// From three nodes to five and back.
    Scale,
    DeleteAllPods,
    DeletePod,
    Kill,
    Pause,
    RenewCertificate,
}

/// What `make test` runs takes longest to be right on a cluster.
const SAMPLE: [Fault; 3] = [Fault::UpdateWithoutNode, Fault::Scale, Fault::DeleteAllPods];
const ALL: [Fault; 9] = [
    Fault::RollingUpdate,
    Fault::UpdateWithoutNode,
    Fault::BrokenUpdate,
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

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut ready = conditions.into_iter().flatten().filter(|it| it.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|it| it.status == "True")
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
                self.change_version();
                self.keeping_majority(self.apply()).await;
            }
            Fault::UpdateWithoutNode => {
                self.change_version();
                self.keeping_majority(self.update_without_node()).await;
            }
            Fault::BrokenUpdate => self.broken_update().await,
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

    /// A change that replaces all pods.
    fn change_version(&mut self) {
        let version = self.random.u64(..).to_string();
        self.spec["odgm_config"]["env"] = json!([{"name": "VERSION", "value": version}]);
    }

    /// Asserts that at least two nodes are ready at any time.
    async fn keeping_majority(&self, operation: impl Future<Output = ()>) {
        let config = watcher::Config::default().labels(OWN_PODS);
        let watch = async {
            let mut pods = std::pin::pin!(watcher::watcher(self.pods(), config).default_backoff());
            let (mut ready, mut is_complete) = (BTreeSet::new(), false);
            while let Some(event) = pods.try_next().await.unwrap() {
                match event {
                    Event::Init => ready.clear(),
                    Event::InitDone => is_complete = true,
                    Event::InitApply(pod) | Event::Apply(pod) if is_ready(&pod) => {
                        ready.insert(pod.name_any());
                    }
                    Event::InitApply(pod) | Event::Apply(pod) | Event::Delete(pod) => {
                        ready.remove(&pod.name_any());
                    }
                }
                assert!(!is_complete || ready.len() >= 2, "only {ready:?} are ready");
            }
        };
        tokio::select! {
            () = operation => {}
            () = watch => panic!("the watch has ended"),
        }
    }

    /// The other nodes are replaced when the first is ready again, and the class says what it waits for.
    async fn update_without_node(&self) {
        let first = format!("{GRID}-0");
        let etcd = children(self.process(&first));
        for it in &etcd {
            kill_process(*it, Signal::STOP).unwrap();
        }
        let is_missing = |it: Option<&Pod>| it.is_some_and(|it| !is_ready(it));
        let what = "the node to be unready";
        wait_for(&self.pods(), &first, what, AVAILABLE_TIMEOUT, is_missing).await.unwrap();
        let before = self.other_pods().await;
        let waits = |it: Option<&ClassRuntime>| {
            let status = it.and_then(|it| it.status.as_ref());
            let message = status.and_then(|it| it.message.as_ref());
            message.is_some_and(|it| it.contains(&first))
        };
        let api = classes(self.ns);
        let what = "the class to wait for the node";
        let (waiting, deployed) = tokio::join!(
            wait_for(&api, CLASS, what, AVAILABLE_TIMEOUT, waits),
            deploy(&self.crm.client, CLASS, &self.spec),
        );
        let status = waiting.unwrap().unwrap().status.unwrap();
        assert_eq!(status.reason.as_deref(), Some("WaitingForGridNodes"), "{status:?}");
        deployed.unwrap();
        assert_eq!(self.other_pods().await, before);
        for process in etcd {
            // It may have ended with its pod.
            let _ = kill_process(process, Signal::CONT);
        }
        wait_available(self.ns, CLASS).await;
    }

    /// Uids of the pods of all nodes but the first.
    async fn other_pods(&self) -> BTreeSet<Option<String>> {
        let pods = self.pods().list(&ListParams::default().labels(OWN_PODS)).await.unwrap();
        let others = pods.iter().filter(|it| it.name_any() != format!("{GRID}-0"));
        others.map(ResourceExt::uid).collect()
    }

    /// One node can't start with the image, and the next update replaces it first.
    async fn broken_update(&mut self) {
        self.change_version();
        let mut broken = self.spec.clone();
        broken["odgm_config"]["image"] = json!("oprc.local/missing:none");
        let fails = |it: Option<&ClassRuntime>| {
            let status = it.and_then(|it| it.status.as_ref());
            status.is_some_and(|it| it.reason.as_deref() == Some("ImagePullFailed"))
        };
        self.keeping_majority(async {
            deploy(&self.crm.client, CLASS, &broken).await.unwrap();
            let (api, what) = (classes(self.ns), "the image to be reported");
            wait_for(&api, CLASS, what, AVAILABLE_TIMEOUT, fails).await.unwrap();
            self.apply().await;
        })
        .await;
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
