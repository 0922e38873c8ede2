//! Long suites: a sample in `make test`, all rounds in `make prove`.

use std::hash::{BuildHasher as _, RandomState};

use futures::{StreamExt as _, stream};
use oprc_tests::{etcd::Etcd, proof};

use crate::{
    crash_points::{OPERATIONS, Operation, Round, round},
    killed,
    two_clusters::with_two_clusters,
};

/// PMs that run concurrently.
const AT_ONCE: usize = 4;
/// Bound on the crash points of an operation.
const MAX_POINTS: usize = 40;
/// Fewer than any operation has.
const MIN_POINTS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn converges_when_pm_is_killed_before_or_after_any_write() {
    with_two_clusters(async |east, west| {
        let etcd = Etcd::start();
        let proof = proof::begin("PM killed before and after each write", 5, 50);
        let at = async |operation: Operation, point: usize| {
            (operation, round(&east, &west, &etcd, operation, point).await)
        };
        if !proof::whole() {
            // One point each of some operations.
            let seed = RandomState::new().hash_one(0);
            println!("seed {seed}");
            let byte = |index: usize| usize::from(seed.to_le_bytes()[index]);
            let operations =
                (0..proof.rounds).map(|index| OPERATIONS[(byte(7) + index) % OPERATIONS.len()]);
            let operations = operations
                .enumerate()
                .map(|(index, operation)| at(operation, byte(index) % MIN_POINTS));
            let rounds: Vec<_> = stream::iter(operations).buffer_unordered(AT_ONCE).collect().await;
            let killed = rounds.iter().filter(|(_, round)| *round == Round::Killed).count();
            assert_eq!(killed, proof.rounds, "{rounds:?}");
            return;
        }
        let mut seen = Vec::new();
        for operation in OPERATIONS {
            let rounds =
                stream::iter((0..MAX_POINTS).map(|point| at(operation, point))).buffered(AT_ONCE);
            let killed = rounds.take_while(|(_, round)| {
                let killed = *round == Round::Killed;
                async move { killed }
            });
            let count = killed.count().await;
            assert!(count < MAX_POINTS, "{operation:?} has more points");
            seen.push((operation, count));
        }
        let all: usize = seen.iter().map(|(_, count)| count).sum();
        assert!(all >= proof.rounds, "{seen:?}");
        let counts: Vec<_> =
            seen.iter().map(|(operation, count)| format!("{count} during {operation}")).collect();
        proof.held(&format!(
            "{all} kills, all converged to the expected state: {}",
            counts.join("; ")
        ));
    })
    .await;
}

#[tokio::test]
async fn acknowledged_packages_survive_a_kill() {
    let proof = proof::begin("PM killed during writes", 5, 200);
    let acknowledged = killed::kills(proof.rounds).await;
    assert!(acknowledged >= proof.rounds / 2, "too few writes");
    proof.held(&format!(
        "{acknowledged} pairs of packages acknowledged, all stored, no partial writes"
    ));
}
