//! Long suites: a sample in `make test`, all rounds in `make prove`.

use std::hash::{BuildHasher as _, RandomState};

use futures::{StreamExt as _, stream};
use oprc_tests::{etcd::Etcd, proof};

use crate::{
    crash_points::{ACTS, Act, Round, round},
    killed,
    two_clusters::with_two_clusters,
};

/// PMs that run concurrently.
const AT_ONCE: usize = 4;
/// Bound on the crash points of an act.
const POINTS: usize = 40;
/// Fewer than any act has.
const LEAST: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn converges_when_pm_is_killed_before_or_after_any_write() {
    with_two_clusters(async |east, west| {
        let etcd = Etcd::start();
        let proof = proof::begin("PM killed before and after each write", 5, 50);
        let at = async |act: Act, point: usize| (act, round(&east, &west, &etcd, act, point).await);
        if !proof::whole() {
            // One point each of some acts.
            let seed = RandomState::new().hash_one(0);
            println!("seed {seed}");
            let byte = |index: usize| usize::from(seed.to_le_bytes()[index]);
            let acts = (0..proof.rounds).map(|index| ACTS[(byte(7) + index) % ACTS.len()]);
            let acts = acts.enumerate().map(|(index, act)| at(act, byte(index) % LEAST));
            let rounds: Vec<_> = stream::iter(acts).buffer_unordered(AT_ONCE).collect().await;
            let killed = rounds.iter().filter(|(_, round)| *round == Round::Killed).count();
            assert_eq!(killed, proof.rounds, "{rounds:?}");
            return;
        }
        let mut seen = Vec::new();
        for act in ACTS {
            let rounds = stream::iter((0..POINTS).map(|point| at(act, point))).buffered(AT_ONCE);
            let killed = rounds.take_while(|(_, round)| {
                let killed = *round == Round::Killed;
                async move { killed }
            });
            let count = killed.count().await;
            assert!(count < POINTS, "{act:?} has more points");
            seen.push((act, count));
        }
        let all: usize = seen.iter().map(|(_, count)| count).sum();
        assert!(all >= proof.rounds, "{seen:?}");
        let told: Vec<_> = seen.iter().map(|(act, count)| format!("{act:?} {count}")).collect();
        proof.held(&format!("{all} kills, all converged: {}", told.join(", ")));
    })
    .await;
}

#[tokio::test]
async fn acknowledged_packages_survive_a_kill() {
    let proof = proof::begin("PM killed during writes", 5, 200);
    let acknowledged = killed::kills(proof.rounds).await;
    assert!(acknowledged >= proof.rounds / 2, "too few writes");
    proof.held(&format!(
        "{acknowledged} pairs of packages acknowledged, all stored, none partially"
    ));
}
