//! Tables, and all states that a grid of three nodes can reach with the controllers of Kubernetes.

mod model;

use self::model::{Controller, Model};
use super::*;

/// The first revision, a second one and a third one.
const REVISIONS: [&str; 3] = ["a", "b", "c"];

fn revisions(complete: &str, latest: &str, partition: i32, keeps_others: bool) -> Revisions {
    let [complete, latest] = [complete, latest].map(str::to_owned);
    Revisions { complete, latest, partition, keeps_others }
}

/// Nodes by ordinal: the letter of the revision, in upper case if the node is ready, `-` if it has no pod. Nodes
/// of revision b report a problem if they aren't ready.
fn pods(nodes: &str) -> Vec<Option<GridPod>> {
    let pod = |it: char| {
        let revision = Some(it.to_ascii_lowercase().to_string());
        let (ready, has_problem) = (it.is_ascii_uppercase(), it == 'b');
        (it != '-').then_some(GridPod { ready, revision, has_problem })
    };
    nodes.chars().map(pod).collect()
}

fn plan(nodes: &str, revisions: &Revisions, is_new: bool) -> GridRollout {
    let pods = pods(nodes);
    plan_rollout(&ObservedRollout { pods: &pods, revisions, is_current: true, is_new })
}

#[test]
fn a_partition_lets_one_node_be_replaced_while_all_others_are_ready() {
    // The former revision is a, and b is rolled out, or about to be.
    for (nodes, is_new, partition, waits_for) in [
        ("AAA", true, 2, vec![]),
        ("AAA", false, 2, vec![]),
        ("AAa", false, 2, vec![]),
        ("AAb", false, 2, vec![]),
        ("AAB", false, 1, vec![]),
        ("AbB", false, 1, vec![]),
        ("ABB", false, 0, vec![]),
        ("BBB", false, 0, vec![]),
        // A node is lost before the rollout, or while it runs.
        ("aAA", true, 3, vec![0]),
        ("-AA", true, 3, vec![0]),
        ("aAA", false, 3, vec![0]),
        ("AaA", true, 3, vec![1]),
        ("aAB", false, 2, vec![0]),
        ("aAb", false, 2, vec![0]),
        ("ABb", false, 1, vec![]),
        // The lost node is the next one.
        ("AAa", true, 2, vec![]),
        ("AaB", false, 1, vec![]),
        ("aaAAA", true, 5, vec![0, 1]),
        // Nothing serves.
        ("aaa", true, 0, vec![]),
        // New nodes come with the new revision.
        ("AAA--", true, 3, vec![]),
        ("AAAbb", false, 3, vec![]),
        ("AAABB", false, 2, vec![]),
    ] {
        let before = revisions("a", if is_new { "a" } else { "b" }, 0, false);
        let expected = GridRollout { partition, waits_for, must_restart: false };
        assert_eq!(plan(nodes, &before, is_new), expected, "{nodes} {is_new}");
    }
}

/// Revision b fails while it is rolled out, and c replaces it.
#[test]
fn a_failed_rollout_can_be_replaced() {
    for (nodes, is_new, partition) in [
        ("AAb", true, 2),
        ("AAb", false, 2),
        ("AAc", false, 2),
        ("AAC", false, 1),
        ("AbB", true, 1),
        ("AbB", false, 1),
        ("bBB", true, 0),
        // Without a problem, it may still become ready.
        ("AdD", true, 3),
        ("ADd", true, 2),
    ] {
        let before = revisions("a", if is_new { "b" } else { "c" }, 0, false);
        assert_eq!(plan(nodes, &before, is_new).partition, partition, "{nodes} {is_new}");
    }
}

#[test]
fn a_controller_that_keeps_others_is_not_held_back_but_reported() {
    for (nodes, waits_for) in [("AAA", vec![]), ("aAA", vec![0]), ("AAa", vec![])] {
        let before = revisions("a", "a", 0, true);
        let expected = GridRollout { waits_for, ..GridRollout::default() };
        assert_eq!(plan(nodes, &before, true), expected, "{nodes}");
    }
    // The controller has replaced the lost node first.
    let rollout = plan("bAA", &revisions("a", "b", 0, true), false);
    assert_eq!(rollout.waits_for, [0]);
}

#[test]
fn the_partition_stays_until_the_controller_has_seen_the_latest_write() {
    let observed = ObservedRollout {
        pods: &pods("AAA"),
        revisions: &revisions("a", "a", 2, false),
        is_current: false,
        is_new: false,
    };
    assert_eq!(plan_rollout(&observed).partition, 2);
}

#[test]
fn all_nodes_are_restarted_only_if_none_is_ready_and_one_has_a_problem() {
    for (nodes, keeps_others, is_new, must_restart) in [
        ("bbb", false, true, true),
        ("aab", false, true, true),
        ("aaa", false, true, false),
        ("bbb", false, false, false),
        ("aAB", false, true, false),
        ("bbb", true, true, false),
    ] {
        let rollout = plan(nodes, &revisions("b", "b", 0, keeps_others), is_new);
        assert_eq!(rollout.must_restart, must_restart, "{nodes}");
    }
}

#[test]
fn no_reachable_state_replaces_a_node_that_is_ready_while_another_is_not() {
    for controller in [Controller::HighestFirst, Controller::UnavailableFirst] {
        for broken in [None, Some(0), Some(1)] {
            let reached = Model::new(controller, broken).explore(Model::assert_majority_is_kept);
            assert!(reached > 100, "{controller:?}: {reached} states");
        }
    }
}

#[test]
fn every_reachable_rollout_ends_when_all_nodes_are_back() {
    for controller in [Controller::HighestFirst, Controller::UnavailableFirst] {
        for broken in [None, Some(0), Some(1)] {
            Model::new(controller, broken).explore(Model::assert_ends);
        }
    }
}
