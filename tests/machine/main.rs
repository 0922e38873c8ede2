//! Deleted and killed clusters leave nothing behind on the machine. These tests compare the whole
//! machine before and after, so they run one at a time, before the shared cluster exists.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod snapshot;

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    process::Command,
};

use futures::FutureExt as _;
use oprc_sandbox::{Cluster, NodeChoice, Options, Spec};
use oprc_tests::{
    TestNamespace, eventually, hello_archive,
    http::get_ok,
    kill_supervisor,
    objects::{READY_TIMEOUT, deploy_hello},
    program, workspace,
};
use tokio::sync::Mutex;

use self::snapshot::Snapshot;

static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
const NAME: &str = "test-machine";
/// The name that `up` gives to a second cluster.
const SECOND: &str = "test-machine-2";

fn options() -> Options {
    Options { node: NodeChoice::Real, nodes: Some(2), prometheus: true, ..Options::default() }
}

/// Kills the supervisor and every component at once; pods go with their nodes.
async fn kill_all(cluster: &Cluster) {
    use rustix::process::{Pid, Signal, kill_process};
    let components = cluster.supervisor().status().await.unwrap();
    kill_supervisor(cluster);
    for pid in components.iter().filter_map(|component| component.pid) {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        // Some have exited together with others.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Runs a test that deletes its clusters itself. If it fails, they are deleted here.
async fn on_clean_machine(test: impl AsyncFnOnce(Snapshot)) {
    let _guard = ONE_AT_A_TIME.lock().await;
    // An interrupted run may have left clusters.
    delete_clusters().await;
    let outcome = AssertUnwindSafe(test(Snapshot::take())).catch_unwind().await;
    if let Err(panic) = outcome {
        delete_clusters().await;
        resume_unwind(panic);
    }
}

/// Deletes the clusters of these tests, if they exist.
async fn delete_clusters() {
    for name in [NAME, SECOND] {
        let _ = Cluster::down(name).await;
    }
}

/// Runs a target of the Makefile for the test cluster, which must succeed.
fn make(target: &str, contexts: &Path) -> String {
    let mut command = Command::new("make");
    command.arg(target).arg(format!("NAME={NAME}")).current_dir(workspace());
    command.env("OPRC_CONFIG", contexts);
    // Cargo sets variables of the test's package, which would make the build start from scratch.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make {target}: {stdout}{stderr}");
    stdout
}

#[tokio::test]
async fn make_up_calls_the_sample_and_make_down_leaves_nothing_behind() {
    on_clean_machine(async |before| {
        let folder = tempfile::tempdir().unwrap();
        let contexts = folder.path().join("config.yaml");
        for _ in 0..2 {
            let output = make("up", &contexts);
            assert!(output.contains("Hello, you!"), "{output}");
        }
        let status = make("status", &contexts);
        for part in ["kube-apiserver", "pm ", "hello", "RUNNING"] {
            assert!(status.contains(part), "no {part} in {status}");
        }
        let during = Snapshot::take();
        for part in ["processes", "links", "routes", "cgroups"] {
            assert!(!before.added_by(&during, part).is_empty(), "a running cluster adds no {part}");
        }
        make("down", &contexts);
        assert!(!std::fs::read_to_string(&contexts).unwrap().contains(NAME));
        before.assert_same_as_now();
    })
    .await;
}

/// Runs `oprc` for the test clusters, which must succeed.
fn oprc(arguments: &[&str], contexts: &Path) -> String {
    let mut command = Command::new(program("oprc"));
    command.args(arguments).args(["--name", NAME]).env("OPRC_CONFIG", contexts);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn down_deletes_all_clusters_of_up() {
    on_clean_machine(async |before| {
        let folder = tempfile::tempdir().unwrap();
        let contexts = folder.path().join("config.yaml");
        let pm_pid = async || {
            let cluster = Cluster::open(NAME).unwrap();
            cluster.supervisor().component("pm").await.unwrap().pid
        };
        oprc(&["up", "--node", "simulated", "--clusters", "2", "--no-sample"], &contexts);
        let first = pm_pid().await;
        // With fewer clusters, `up` keeps the existing ones. No function runs on simulated nodes.
        let stdout = oprc(&["up", "--node", "simulated"], &contexts);
        assert!(stdout.contains("oprc status hello") && !stdout.contains("invoke"), "{stdout}");
        assert_eq!(pm_pid().await, first, "PM was restarted");
        assert_eq!(Spec::owned_by(NAME).unwrap(), [SECOND]);
        oprc(&["down"], &contexts);
        before.assert_same_as_now();

        // A cluster whose owner is already deleted is deleted, too.
        let options = Options { node: NodeChoice::Simulated, ..Options::default() };
        Cluster::up_owned_by(SECOND, &options, Some(NAME)).await.unwrap();
        oprc(&["down"], &contexts);
        before.assert_same_as_now();
    })
    .await;
}

/// One cluster for both cases, because creating it takes most of the time.
#[tokio::test]
async fn restarts_a_killed_cluster_with_its_data_and_down_cleans_up() {
    on_clean_machine(async |before| {
        let cluster = Cluster::up(NAME, &options()).await.unwrap();
        cluster.load_image(&hello_archive()).await.unwrap();
        let client = cluster.client().await.unwrap();
        let ns = TestNamespace { cluster: cluster.clone(), client, name: "default".to_owned() };
        let url = deploy_hello(&ns, "survivor").await;
        kill_all(&cluster).await;
        let cluster = Cluster::up(NAME, &options()).await.unwrap();
        eventually("a response of the restarted pod", READY_TIMEOUT, || get_ok(&url)).await;

        kill_all(&cluster).await;
        // The stored specification is unreadable, too.
        std::fs::write(cluster.spec().folder().unwrap().join("cluster.json"), "{").unwrap();
        Cluster::down(NAME).await.unwrap();
        before.assert_same_as_now();
    })
    .await;
}
