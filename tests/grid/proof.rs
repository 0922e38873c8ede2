//! Long suites: a sample with every test run, all rounds with `make prove`.

use std::time::Duration;

use oprc_tests::{
    etcd,
    grid::{nemesis::Fault, nodes::Nodes},
    proof,
};

use crate::{
    events::{Delivered, EventLoad, TRIGGER, check_events},
    linearizability::{Totals, check_history},
};

/// Changes of the suites of events.
const CHANGES: usize = 10_000;
/// Histories on the same nodes, with other objects each.
const HISTORIES_PER_GRID: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_is_linearizable_under_faults() {
    let proof = proof::begin("data grid of one node on redb, linearizable under faults", 1, 50);
    let nodes = Nodes::single(&[]).await;
    let mut totals = Totals::default();
    for seed in 0..u64::try_from(proof.rounds).unwrap() {
        check_history(&nodes, &Fault::SINGLE, seed, &mut totals).await;
    }
    proof.held(&totals.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_loses_no_events_under_faults() {
    let proof = proof::begin("data grid of one node on redb, events under faults", 1, 1);
    let nodes = Nodes::single(&[TRIGGER]).await;
    let delivered = check_events(&nodes, &Fault::SINGLE, &event_load()).await;
    proof.held(&describe(&delivered));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_are_linearizable_under_faults() {
    let proof = proof::begin("data grid of three nodes, linearizable under faults", 2, 200);
    let mut totals = Totals::default();
    let seeds: Vec<_> = (0..u64::try_from(proof.rounds).unwrap()).collect();
    for seeds in seeds.chunks(HISTORIES_PER_GRID) {
        let nodes = Nodes::replicated(3, &[], &etcd::program()).await;
        for seed in seeds {
            check_history(&nodes, &Fault::REPLICATED, *seed, &mut totals).await;
        }
    }
    proof.held(&totals.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_lose_no_events_under_faults() {
    let proof = proof::begin("data grid of three nodes, events under faults", 1, 1);
    let nodes = Nodes::replicated(3, &[TRIGGER], &etcd::program()).await;
    let delivered = check_events(&nodes, &Fault::REPLICATED, &event_load()).await;
    proof.held(&describe(&delivered));
}

fn event_load() -> EventLoad {
    if proof::whole() {
        EventLoad { seed: 1, changes: CHANGES, faults: 20, outage: Duration::from_mins(1) }
    } else {
        EventLoad { seed: 1, changes: 500, faults: 2, outage: Duration::from_secs(2) }
    }
}

fn describe(delivered: &Delivered) -> String {
    let Delivered { events, repeated } = delivered;
    format!("{events} events, all delivered in order, {repeated} of them again")
}
