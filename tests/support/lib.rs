//! What the suites share: one cluster for a test run, a namespace for each test, and ways to ask
//! the world how it is.

// Only tests call any of this: here a panic is how a test fails.
#![allow(clippy::expect_used, clippy::missing_panics_doc, clippy::panic, clippy::unwrap_used)]

pub mod certificate_authority;
pub mod class;
pub mod crm;
pub mod etcd;
pub mod http;
pub mod inventory;
pub mod load;
pub mod manifest;
pub mod objects;
pub mod pm;
pub mod proof;
pub mod relay;
pub mod fixture;
pub mod exclusivity;

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
/// The name of the second one.
const SECOND: &str = "test-second";
/// How long one answer may take that [`eventually`] asks for.
const ANSWERED: Duration = Duration::from_secs(30);
/// What says which pods a namespace takes.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";
/// The image of the sample function, as it is known on the nodes.
pub const HELLO: &str = "oprc.local/hello-fn:dev";

/// The cluster that all tests of a run share: a real node with everything there is.
pub async fn shared() -> Cluster {
    static READY: OnceCell<Cluster> = OnceCell::const_new();
    let options = Options {
        node: NodeChoice::Real,
        nodes: None,
        prometheus: true,
        knative: true,
        no_fsync: true,
    };
    READY.get_or_init(|| prepare(SHARED, options)).await.clone()
}

/// A second one, for tests about several clusters.
pub async fn second() -> Cluster {
    static READY: OnceCell<Cluster> = OnceCell::const_new();
    let bare = Options { node: NodeChoice::Real, no_fsync: true, ..Options::default() };
    READY.get_or_init(|| prepare(SECOND, bare)).await.clone()
}

/// Brings what all tests need into a shared cluster, once in a process.
async fn prepare(name: &str, options: Options) -> Cluster {
    let cluster = Cluster::up(name, &options).await.expect("a shared cluster");
    cluster.load_image(&hello_archive()).await.expect("loading the sample function");
    cluster.load_image(&archive("odgm-stand-in")).await.expect("loading the stand-in");
    crm::define(&cluster).await;
    free_volumes(&cluster).await;
    cluster
}

/// Lets volumes be used again whose claims are gone: there are only so many, and nobody else does.
async fn free_volumes(cluster: &Cluster) {
    let volumes: Api<PersistentVolume> = Api::all(cluster.client().await.expect("a client"));
    let free = Patch::Merge(serde_json::json!({"spec": {"claimRef": null}}));
    for volume in volumes.list(&ListParams::default()).await.expect("volumes") {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Released") {
            let freed = volumes.patch(&volume.name_any(), &PatchParams::default(), &free).await;
            freed.expect("a volume that is free");
        }
    }
}

/// A simulated cluster of a test's own, gone when the test is over.
pub async fn with_simulated<T>(name: &str, nodes: u16, test: impl AsyncFnOnce(Cluster) -> T) -> T {
    let options = Options {
        node: NodeChoice::Simulated,
        nodes: Some(nodes),
        no_fsync: true,
        ..Options::default()
    };
    with_cluster(name, &options, test).await
}

/// A cluster of a test's own, gone when the test is over.
pub async fn with_cluster<T>(
    name: &str,
    options: &Options,
    test: impl AsyncFnOnce(Cluster) -> T,
) -> T {
    // On the heap, as all that tests are wrapped in: a thread's stack has no room for all of it.
    exclusivity::beside_others(Box::pin(async {
        let _turn = exclusivity::cluster().await;
        // One that a run before this has left isn't as it was made.
        let _ = Cluster::down(name).await;
        let run = async {
            test(Cluster::up(name, options).await.expect("a cluster of the test's own")).await
        };
        let outcome = AssertUnwindSafe(Box::pin(run)).catch_unwind().await;
        Cluster::down(name).await.expect("ending the test's cluster");
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }))
    .await
}

/// A namespace of a test's own.
#[derive(Clone)]
pub struct Place {
    /// The cluster that it is in.
    pub cluster: Cluster,
    /// A client that may do everything.
    pub client: Client,
    /// Its name.
    pub namespace: String,
}

/// Runs a test in a namespace of its own in the shared cluster, which is deleted afterwards. It takes
/// only pods that keep to the pod security standard `restricted`, as all of ours are to.
pub async fn in_namespace(test: impl AsyncFnOnce(&Place)) {
    let test = async { in_namespace_now(shared().await, "restricted", test).await };
    exclusivity::beside_others(Box::pin(test)).await;
}

/// The same in another cluster.
pub async fn in_namespace_of(cluster: Cluster, test: impl AsyncFnOnce(&Place)) {
    exclusivity::beside_others(Box::pin(in_namespace_now(cluster, "restricted", test))).await;
}

/// The same in one that takes pods of the pod security standard `baseline`, too, for tests about
/// images that need more than others.
pub async fn in_baseline_namespace(test: impl AsyncFnOnce(&Place)) {
    let test = async { in_namespace_now(shared().await, "baseline", test).await };
    exclusivity::beside_others(Box::pin(test)).await;
}

async fn in_namespace_now(cluster: Cluster, pods: &str, test: impl AsyncFnOnce(&Place)) {
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
    let made = namespaces.create(&PostParams::default(), &object).await.expect("a namespace");
    let namespace = made.metadata.name.expect("its name");
    let place = Place { cluster, client, namespace };
    let outcome = AssertUnwindSafe(Box::pin(test(&place))).catch_unwind().await;
    class::remove_finalizers(&place).await;
    namespaces
        .delete(&place.namespace, &DeleteParams::default())
        .await
        .expect("deleting the namespace");
    // Nobody calls its pods any more: what they take to end others would have to wait for.
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
    let at_once = DeleteParams::default().grace_period(0);
    let _ = pods.delete_collection(&at_once, &ListParams::default()).await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Asks again and again until there is an answer, for what can't be watched.
pub async fn eventually<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        // One answer that doesn't come must not keep others from being asked for.
        let answer = tokio::time::timeout(ANSWERED, ask()).await;
        match answer.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(answer) => return answer,
            Err(reason) if begun.elapsed() > limit => {
                panic!("{what} not within {} s: {reason}", limit.as_secs())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The most memory that a process has had resident so far, in megabytes.
pub fn most_resident(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The sample function's image, as `make image` writes it.
pub fn hello_archive() -> PathBuf {
    archive("hello-fn")
}

/// An image of ours, as `make image` writes it.
pub fn archive(image: &str) -> PathBuf {
    let archive = workspace().join(format!("target/{image}.oci.tar"));
    assert!(archive.is_file(), "{} is missing: run `make image` first", archive.display());
    archive
}

/// The `oprc` program that was built beside this test.
pub fn oprc_program() -> PathBuf {
    program("oprc")
}

/// A program that was built beside this test, or in the folder that `PROGRAMS` names.
pub fn program(name: &str) -> PathBuf {
    if let Some(folder) = std::env::var_os("PROGRAMS") {
        return PathBuf::from(folder).join(name);
    }
    let test = std::env::current_exe().expect("this program");
    let found = test.ancestors().map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run `make image` first"))
}

/// Runs `oprc` and gives what it said, whether it succeeded or not.
pub fn oprc(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(oprc_program());
    command.args(arguments).env_remove(oprc_sandbox::ASSETS).envs(variables.iter().copied());
    command.output().expect("running oprc")
}

/// Kills the supervisor of a cluster: its components die with it.
pub fn kill_supervisor(cluster: &Cluster) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid =
        i32::try_from(cluster.supervisor().pid().expect("a supervisor")).expect("its process");
    kill_process(Pid::from_raw(pid).expect("its process"), Signal::KILL).expect("killing it");
}
