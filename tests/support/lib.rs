//! Shared by all suites: the clusters of a test run, a namespace for each test, and helpers that
//! deploy, wait and observe.

// Only tests call this, and a test fails by a panic.
#![allow(clippy::expect_used, clippy::missing_panics_doc, clippy::panic, clippy::unwrap_used)]

pub mod certificate_authority;
pub mod class;
pub mod crm;
pub mod etcd;
pub mod exclusivity;
pub mod fixture;
pub mod generator;
pub mod grid;
pub mod http;
pub mod inventory;
pub mod load;
pub mod manifest;
pub mod objects;
pub mod pm;
pub mod process;
pub mod prometheus;
pub mod proof;
pub mod relay;
pub mod write_cutoff;

use std::{
    future::Future,
    panic::{AssertUnwindSafe, resume_unwind},
    path::PathBuf,
    process::{Command, Output},
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use oprc_sandbox::{Cluster, NodeChoice, Options};
use tokio::sync::OnceCell;

/// The name of the cluster that a test run shares.
pub const SHARED: &str = "test";
/// The name of the second shared cluster.
const SECOND: &str = "test-second";
/// Bound on one attempt of [`eventually`].
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// The label with the pod security standard that a namespace enforces.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The image of the sample function on the nodes.
pub const HELLO: &str = "oprc.local/hello-fn:dev";

/// The cluster that all tests of a run share: a real node with all addons.
pub async fn shared() -> Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let options = Options {
        node: NodeChoice::Real,
        nodes: None,
        prometheus: true,
        knative: true,
        no_fsync: true,
    };
    CLUSTER.get_or_init(|| prepare(SHARED, options)).await.clone()
}

/// The second shared cluster, for tests of several clusters.
pub async fn second() -> Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let options = Options { node: NodeChoice::Real, no_fsync: true, ..Options::default() };
    CLUSTER.get_or_init(|| prepare(SECOND, options)).await.clone()
}

/// Installs what all tests need in a shared cluster, once per process.
async fn prepare(name: &str, options: Options) -> Cluster {
    let cluster = Cluster::up(name, &options).await.expect("a shared cluster");
    cluster.load_image(&hello_archive()).await.expect("loading the sample function");
    cluster.load_image(&archive("oprc-odgm")).await.expect("loading the data grid");
    cluster.load_image(&archive("oprc-proxy")).await.expect("loading the proxy");
    cluster
        .load_image(&archive("sample-fns"))
        .await
        .expect("loading the functions of the examples");
    crm::install_crd(&cluster).await;
    free_volumes(&cluster).await;
    cluster
}

/// Releases volumes of deleted claims, without their data, because the number of volumes is fixed.
async fn free_volumes(cluster: &Cluster) {
    let volumes: Api<PersistentVolume> = Api::all(cluster.client().await.expect("a client"));
    let free = Patch::Merge(serde_json::json!({"spec": {"claimRef": null}}));
    for volume in volumes.list(&ListParams::default()).await.expect("volumes") {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Released") {
            let folder =
                volume.spec.as_ref().and_then(|it| it.host_path.as_ref()).expect("a folder");
            for entry in std::fs::read_dir(&folder.path).expect("a volume").map(Result::unwrap) {
                let path = entry.path();
                let is_folder = entry.file_type().unwrap().is_dir();
                let removed = if is_folder {
                    std::fs::remove_dir_all(&path)
                } else {
                    std::fs::remove_file(&path)
                };
                removed.expect("removing data");
            }
            let freed = volumes.patch(&volume.name_any(), &PatchParams::default(), &free).await;
            freed.expect("releasing a volume");
        }
    }
}

/// Runs a test in a simulated cluster of its own, which is deleted afterwards.
pub async fn with_simulated<T>(name: &str, nodes: u16, test: impl AsyncFnOnce(Cluster) -> T) -> T {
    let options = Options {
        node: NodeChoice::Simulated,
        nodes: Some(nodes),
        no_fsync: true,
        ..Options::default()
    };
    with_cluster(name, &options, test).await
}

/// Runs a test in a cluster of its own, which is deleted afterwards.
pub async fn with_cluster<T>(
    name: &str,
    options: &Options,
    test: impl AsyncFnOnce(Cluster) -> T,
) -> T {
    // Boxed, because the nested futures of a test overflow a thread's stack.
    exclusivity::shared(Box::pin(async {
        let _permit = exclusivity::cluster_permit().await;
        // An interrupted run may have left one.
        let _ = Cluster::down(name).await;
        let run = async {
            test(Cluster::up(name, options).await.expect("creating the test's cluster")).await
        };
        let outcome = AssertUnwindSafe(Box::pin(run)).catch_unwind().await;
        Cluster::down(name).await.expect("deleting the test's cluster");
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }))
    .await
}

/// The namespace of one test.
#[derive(Clone)]
pub struct TestNamespace {
    pub cluster: Cluster,
    /// A client with all permissions.
    pub client: Client,
    pub name: String,
}

/// Runs a test in a namespace of its own in the shared cluster, which is deleted afterwards. It
/// enforces the pod security standard `restricted`.
pub async fn in_namespace(test: impl AsyncFnOnce(&TestNamespace)) {
    let test = async { run_in_namespace(shared().await, "restricted", test).await };
    exclusivity::shared(Box::pin(test)).await;
}

/// Like [`in_namespace`], in another cluster.
pub async fn in_namespace_of(cluster: Cluster, test: impl AsyncFnOnce(&TestNamespace)) {
    exclusivity::shared(Box::pin(run_in_namespace(cluster, "restricted", test))).await;
}

/// Like [`in_namespace`], with the pod security standard `baseline`.
pub async fn in_baseline_namespace(test: impl AsyncFnOnce(&TestNamespace)) {
    let test = async { run_in_namespace(shared().await, "baseline", test).await };
    exclusivity::shared(Box::pin(test)).await;
}

async fn run_in_namespace(cluster: Cluster, pods: &str, test: impl AsyncFnOnce(&TestNamespace)) {
    let client = cluster.client().await.expect("a client");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labels = [(POD_SECURITY.to_owned(), pods.to_owned())];
    let object = Namespace {
        metadata: ObjectMeta {
            generate_name: Some("t-".to_owned()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let created = namespaces.create(&PostParams::default(), &object).await.expect("a namespace");
    let name = created.metadata.name.expect("its name");
    let ns = TestNamespace { cluster, client, name };
    let outcome = AssertUnwindSafe(Box::pin(test(&ns))).catch_unwind().await;
    class::remove_finalizers(&ns).await;
    namespaces.delete(&ns.name, &DeleteParams::default()).await.expect("deleting the namespace");
    // Their grace period would delay the deletion of the namespace.
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), &ns.name);
    let without_grace_period = DeleteParams::default().grace_period(0);
    let _ = pods.delete_collection(&without_grace_period, &ListParams::default()).await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Retries until an attempt succeeds, for conditions that can't be watched.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> F,
) -> T {
    let started = Instant::now();
    loop {
        let result = tokio::time::timeout(ATTEMPT_TIMEOUT, attempt()).await;
        match result.unwrap_or_else(|_| Err("no response".to_owned())) {
            Ok(result) => return result,
            Err(reason) if started.elapsed() > limit => {
                panic!("timed out after {} s waiting for {what}: {reason}", limit.as_secs())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The peak resident memory of a process, in megabytes.
pub fn peak_memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The image archive of the sample function, written by `make image`.
pub fn hello_archive() -> PathBuf {
    archive("hello-fn")
}

/// An image archive written by `make image`.
pub fn archive(image: &str) -> PathBuf {
    let archive = workspace().join(format!("target/{image}.oci.tar"));
    assert!(archive.is_file(), "{} is missing: run `make image` first", archive.display());
    archive
}

pub fn oprc_program() -> PathBuf {
    program("oprc")
}

/// A program from the folder in `PROGRAMS`, or from the build folder of this test.
pub fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("PROGRAMS") {
        return PathBuf::from(folder).join(name);
    }
    let test = std::env::current_exe().expect("this program");
    let found = test.ancestors().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run `make image` first"))
}

pub fn oprc(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(oprc_program());
    command.args(arguments).env_remove(oprc_sandbox::ASSETS).envs(variables.iter().copied());
    command.output().expect("running oprc")
}

/// Kills the supervisor of a cluster, and with it all components.
pub fn kill_supervisor(cluster: &Cluster) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid =
        i32::try_from(cluster.supervisor().pid().expect("a supervisor")).expect("its process");
    kill_process(Pid::from_raw(pid).expect("its process"), Signal::KILL).expect("killing it");
}
