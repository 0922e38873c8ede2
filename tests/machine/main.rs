//! A cluster leaves nothing behind on the machine, however it ends. These tests compare the whole
//! machine before and after, so they run one after the other, before the shared cluster exists.

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
/// What `up` calls a second one.
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
        // Some die by the death of others before it is their turn.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Runs a test that ends the cluster itself, and ends it for one that fails.
async fn on_a_machine(test: impl AsyncFnOnce(Snapshot)) {
    let _turn = ONE_AT_A_TIME.lock().await;
    // What a run that was interrupted left.
    end().await;
    let outcome = AssertUnwindSafe(test(Snapshot::take())).catch_unwind().await;
    if let Err(panic) = outcome {
        end().await;
        resume_unwind(panic);
    }
}

/// Ends what there is; mostly there is nothing.
async fn end() {
    for name in [NAME, SECOND] {
        let _ = Cluster::down(name).await;
    }
}

/// Runs a target of the Makefile for a cluster of that name, which must succeed.
fn make(target: &str, contexts: &Path) -> String {
    let mut command = Command::new("make");
    command.arg(target).arg(format!("NAME={NAME}")).current_dir(workspace());
    command.env("OPRC_CONFIG", contexts);
    // Cargo tells a test which package it belongs to. A build that heard of it would begin anew.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_") {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make {target}: {said}{told}");
    said
}

#[tokio::test]
async fn make_up_calls_the_sample_and_make_down_leaves_nothing_behind() {
    on_a_machine(async |before| {
        let folder = tempfile::tempdir().unwrap();
        let contexts = folder.path().join("config.yaml");
        for _ in 0..2 {
            let said = make("up", &contexts);
            assert!(said.contains("Hello, you!"), "{said}");
        }
        let told = make("status", &contexts);
        for part in ["kube-apiserver", "pm ", "hello", "RUNNING"] {
            assert!(told.contains(part), "no {part} in {told}");
        }
        let during = Snapshot::take();
        for part in ["processes", "links", "routes", "cgroups"] {
            assert!(
                !before.added_by(&during, part).is_empty(),
                "a running cluster shows no {part}"
            );
        }
        make("down", &contexts);
        assert!(!std::fs::read_to_string(&contexts).unwrap().contains(NAME));
        before.assert_same_as_now();
    })
    .await;
}

/// Runs `oprc` for clusters of that name, which must succeed.
fn oprc(arguments: &[&str], contexts: &Path) -> String {
    let mut command = Command::new(program("oprc"));
    command.args(arguments).args(["--name", NAME]).env("OPRC_CONFIG", contexts);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn down_deletes_all_clusters_of_up() {
    on_a_machine(async |before| {
        let folder = tempfile::tempdir().unwrap();
        let contexts = folder.path().join("config.yaml");
        let process = async || {
            let cluster = Cluster::open(NAME).unwrap();
            cluster.supervisor().component("pm").await.unwrap().pid
        };
        oprc(&["up", "--node", "simulated", "--clusters", "2", "--no-sample"], &contexts);
        let first = process().await;
        // With fewer than there are it changes nothing. Nothing runs there that could be called.
        let said = oprc(&["up", "--node", "simulated"], &contexts);
        assert!(said.contains("oprc status hello") && !said.contains("invoke"), "{said}");
        assert_eq!(process().await, first, "the package manager was started again");
        assert_eq!(Spec::owned_by(NAME).unwrap(), [SECOND]);
        oprc(&["down"], &contexts);
        before.assert_same_as_now();

        // One that is left when the first is gone is found all the same.
        let options = Options { node: NodeChoice::Simulated, ..Options::default() };
        Cluster::up_owned_by(SECOND, &options, Some(NAME)).await.unwrap();
        oprc(&["down"], &contexts);
        before.assert_same_as_now();
    })
    .await;
}

/// One cluster for both, since it takes most of the time to make one.
#[tokio::test]
async fn restarts_a_killed_cluster_with_its_data_and_down_cleans_up() {
    on_a_machine(async |before| {
        let cluster = Cluster::up(NAME, &options()).await.unwrap();
        cluster.load_image(&hello_archive()).await.unwrap();
        let client = cluster.client().await.unwrap();
        let ns = TestNamespace { cluster: cluster.clone(), client, name: "default".to_owned() };
        let url = deploy_hello(&ns, "survivor").await;
        kill_all(&cluster).await;
        let cluster = Cluster::up(NAME, &options()).await.unwrap();
        eventually("the answer of what ran before", READY_TIMEOUT, || get_ok(&url)).await;

        kill_all(&cluster).await;
        // Not even what it was can be read any more.
        std::fs::write(cluster.spec().folder().unwrap().join("cluster.json"), "{").unwrap();
        Cluster::down(NAME).await.unwrap();
        before.assert_same_as_now();
    })
    .await;
}
