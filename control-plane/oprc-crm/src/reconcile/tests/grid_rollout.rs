//! Updates of a replicated data grid whose nodes aren't all ready.

use serde_json::{Value, json};

use super::{
    super::{Action, observe::GridPod},
    cluster::{Cluster, Key},
};
use crate::{crd::Phase, kinds::STATEFUL_SET};

fn spec(version: &str) -> Value {
    json!({
        "functions": [{"key": "alpha", "image": "img:1", "provision": {"min_scale": 1}}],
        "addons": ["odgm"],
        "odgm_config": {
            "replicas": 3, "collections": ["things"],
            "env": [{"name": "VERSION", "value": version}],
        },
    })
}

fn grid() -> Key {
    (STATEFUL_SET, "shop-odgm".to_owned())
}

/// A class with three nodes that are ready. Its StatefulSet controller doesn't run, and keeps others if it has
/// `maxUnavailable`.
fn running(max_unavailable: Option<i32>) -> Cluster {
    let mut cluster = Cluster::with(&spec("1"));
    cluster.stopped.insert(STATEFUL_SET);
    if let Some(most) = max_unavailable {
        let mut object = cluster.object(&grid()).unwrap().clone();
        object["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(most);
        cluster.put(&grid(), object);
    }
    set_nodes(&mut cluster, "AAA", "a", "a");
    cluster
}

/// The letter of each node's revision, in upper case if it is ready; the complete and the latest revision. Nodes
/// of revision x report a problem.
fn set_nodes(cluster: &mut Cluster, nodes: &str, complete: &str, latest: &str) {
    let pod = |(ordinal, it): (usize, char)| {
        let revision = Some(it.to_ascii_lowercase().to_string());
        let (ready, has_problem) = (it.is_ascii_uppercase(), it == 'x');
        (format!("shop-odgm-{ordinal}"), GridPod { ready, revision, has_problem })
    };
    cluster.grid_pods = nodes.chars().enumerate().map(pod).collect();
    let ready = nodes.chars().filter(char::is_ascii_uppercase).count();
    let updated = nodes.chars().filter(|it| it.to_ascii_lowercase().to_string() == latest).count();
    let mut object = cluster.object(&grid()).unwrap().clone();
    object["status"] = json!({
        "observedGeneration": object["metadata"]["generation"], "replicas": 3,
        "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": updated,
        "currentRevision": complete, "updateRevision": latest,
    });
    cluster.put(&grid(), object);
    cluster.reconcile();
}

fn partition(cluster: &Cluster) -> Option<i64> {
    let object = cluster.object(&grid()).unwrap();
    object["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64()
}

/// Whether the second version is applied.
fn is_updated(cluster: &Cluster) -> bool {
    cluster.child(&grid()).unwrap().mentions("\"2\"")
}

#[test]
fn a_rollout_proceeds_node_by_node_while_all_are_ready() {
    let mut cluster = running(None);
    assert_eq!(partition(&cluster), None);
    cluster.set_spec(&spec("2"));
    cluster.reconcile();
    assert!(is_updated(&cluster));
    assert_eq!(partition(&cluster), Some(2));
    // The controller hasn't seen it yet.
    cluster.reconcile();
    assert_eq!(partition(&cluster), Some(2));
    for (nodes, expected) in
        [("AAa", Some(2)), ("AAb", Some(2)), ("AAB", Some(1)), ("AbB", Some(1)), ("ABB", None)]
    {
        set_nodes(&mut cluster, nodes, "a", "b");
        assert_eq!(partition(&cluster), expected, "{nodes}");
        assert_eq!(cluster.phase(), (Phase::Progressing, "Progressing".to_owned()), "{nodes}");
    }
    set_nodes(&mut cluster, "BBB", "b", "b");
    assert_eq!(cluster.phase().0, Phase::Available);
    let actions = cluster.reconcile().actions;
    assert!(!actions.iter().any(|it| matches!(it, Action::Apply(_))), "{actions:?}");
}

#[test]
fn an_update_waits_for_a_lost_node_and_says_so() {
    for (max_unavailable, held, proceeding) in [(None, Some(3), Some(2)), (Some(1), None, None)] {
        let mut cluster = running(max_unavailable);
        set_nodes(&mut cluster, "aAA", "a", "a");
        assert_eq!(cluster.phase().1, "Progressing", "no update waits yet");
        cluster.set_spec(&spec("2"));
        cluster.reconcile();
        for _ in 0..2 {
            assert!(is_updated(&cluster));
            assert_eq!(partition(&cluster), held);
            let status = cluster.status();
            assert_eq!(status.phase, Phase::Progressing);
            assert_eq!(status.reason.as_deref(), Some("WaitingForGridNodes"));
            assert!(status.message.unwrap().contains("shop-odgm-0"));
            let odgm = status.odgm.unwrap();
            assert_eq!(odgm.reason.as_deref(), Some("WaitingForGridNodes"));
            set_nodes(&mut cluster, "aAA", "a", "b");
        }
        set_nodes(&mut cluster, "AAA", "a", "b");
        assert_eq!(partition(&cluster), proceeding);
        assert_eq!(cluster.phase().1, "Progressing");
    }
}

#[test]
fn an_update_that_waits_too_long_is_degraded_with_the_nodes() {
    let mut cluster = running(Some(1));
    set_nodes(&mut cluster, "aAA", "a", "a");
    cluster.set_spec(&spec("2"));
    cluster.reconcile();
    set_nodes(&mut cluster, "aAA", "a", "b");
    cluster.advance(std::time::Duration::from_hours(1));
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "WaitingForGridNodes".to_owned()));
    assert!(cluster.status().message.unwrap().contains("shop-odgm-0"));
}

#[test]
fn a_grid_of_which_no_node_ever_ran_is_created_anew_by_the_next_update() {
    for (max_unavailable, is_recreated) in [(None, true), (Some(1), false)] {
        let mut cluster = running(max_unavailable);
        set_nodes(&mut cluster, "xxx", "x", "x");
        let uid = cluster.child(&grid()).unwrap().uid.clone();
        cluster.set_spec(&spec("2"));
        cluster.reconcile();
        assert_eq!(cluster.child(&grid()).unwrap().deleting, is_recreated);
        cluster.grid_pods.clear();
        cluster.stopped.clear();
        cluster.converge();
        assert_eq!(cluster.phase().0, Phase::Available);
        assert_eq!(cluster.child(&grid()).unwrap().uid != uid, is_recreated);
    }
}

/// A webhook that changes the template doesn't make each reconcile a new rollout.
#[test]
fn a_template_that_a_webhook_changes_is_not_new() {
    let mut cluster = running(None);
    cluster.admission = Some(|object| {
        if let Some(image) = object.pointer_mut("/spec/template/spec/containers/0/image") {
            *image = json!("mirror/image");
        }
    });
    cluster.set_spec(&spec("2"));
    cluster.reconcile();
    assert_eq!(partition(&cluster), Some(2));
    set_nodes(&mut cluster, "AAB", "a", "b");
    assert_eq!(partition(&cluster), Some(1));
    set_nodes(&mut cluster, "ABB", "a", "b");
    set_nodes(&mut cluster, "BBB", "b", "b");
    assert_eq!(partition(&cluster), None);
    let actions = cluster.reconcile().actions;
    assert!(!actions.iter().any(|it| matches!(it, Action::Apply(_))), "{actions:?}");
}
