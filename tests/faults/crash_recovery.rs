//! CRM stops during its work, and another one continues: the final state is the same.

use std::{collections::VecDeque, time::Duration};

use oprc_crm::crd::Phase;
use oprc_tests::{
    TestNamespace,
    class::{AVAILABLE_TIMEOUT, deploy, hello, spec_of, wait_available, wait_for_status},
    crm::{Crm, CrmProcess, Options},
    proof as proofs,
    write_cutoff::WriteCutoff,
};
use rustix::process::Signal;
use serde_json::json;

use crate::{
    in_shared_cluster,
    lifecycle_stages::{
        Baseline, STAGES, children, generation, record_baseline, repeat_request, request_stage,
        wait_for_stage, wait_for_state,
    },
    request_counts::writes_of,
};

/// Attempts for a stage that ended with fewer writes than the baseline.
const TRIES: u32 = 3;
/// The seed for the sample of `make test`.
const SEED: u64 = 20_261_116;

fn options() -> Options {
    Options::default().with("OPRC_CRM_FEATURES_LEADER_ELECTION", "false")
}

/// The write at which CRM stops, and whether it is executed.
#[derive(Clone, Copy, Debug)]
struct Point {
    write: u64,
    carried_out: bool,
    tries: u32,
}

/// Before and after every write of a stage.
fn points(writes: u64) -> VecDeque<Point> {
    let both = |write| [false, true].map(|carried_out| Point { write, carried_out, tries: 0 });
    (1..=writes).flat_map(both).collect()
}

fn sample(all: &VecDeque<Point>, random: u64) -> VecDeque<Point> {
    let chosen = random % u64::try_from(all.len()).unwrap();
    VecDeque::from([all[usize::try_from(chosen).unwrap()]])
}

/// A deterministic random generator (SplitMix64).
fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Runs a stage with a CRM that stops. If it ends before, the error is its number of writes.
async fn stop_stage(ns: &TestNamespace, stage: usize, point: Point) -> Result<(), u64> {
    let before = generation(ns).await;
    let cut = WriteCutoff::at(point.write, point.carried_out);
    let crm = cut.start(ns, &options()).await;
    let client = crm.client.clone();
    let call = tokio::spawn(async move { request_stage(&client, stage).await });
    let ended = async {
        wait_for_stage(ns, stage, before).await;
        cut.quiet().await;
    };
    let outcome = tokio::select! {
        () = cut.reached() => Ok(()),
        () = ended => Err(cut.writes()),
    };
    call.abort();
    outcome
}

/// Repeats all stages until CRM has stopped at each point, and returns how often it did.
async fn stop_everywhere(
    ns: &TestNamespace,
    stages: &[Baseline],
    mut plan: Vec<VecDeque<Point>>,
) -> usize {
    let mut cuts = 0;
    while plan.iter().any(|points| !points.is_empty()) {
        for (stage, (ended, points)) in stages.iter().zip(&mut plan).enumerate() {
            let before = generation(ns).await;
            let point = points.pop_front();
            if let Some(mut point) = point {
                match Box::pin(stop_stage(ns, stage, point)).await {
                    Ok(()) => cuts += 1,
                    Err(writes) => {
                        point.tries += 1;
                        assert!(point.tries < TRIES, "stage {stage} never reaches {point:?}");
                        // A busy machine may have caused one more status write in the baseline: the
                        // last write replaces it.
                        if point.tries + 1 == TRIES {
                            println!("stage {stage} has {writes} writes, and no {}", point.write);
                            point.write = writes.max(1);
                        }
                        points.push_back(point);
                    }
                }
            }
            let crm = Crm::start(ns, &options()).await;
            repeat_request(&crm.client, stage).await;
            wait_for_stage(ns, stage, before).await;
            wait_for_state(ns, &format!("stage {stage}, {point:?}"), &ended.state).await;
        }
    }
    cuts
}

mod proof {
    use super::*;

    #[tokio::test]
    async fn converges_when_stopped_before_or_after_any_write() {
        let mut proof = proofs::begin("CRM stopped before and after each write", 0, 0);
        in_shared_cluster(async |ns: &TestNamespace| {
            let stages = Box::pin(record_baseline(ns, &options())).await;
            let writes: Vec<_> = stages.iter().map(|stage| stage.writes).collect();
            assert!(writes.iter().all(|count| *count > 0), "{writes:?}");
            let mut plan: Vec<_> = writes.iter().map(|count| points(*count)).collect();
            if !proofs::whole() {
                let mut random = numbers(SEED);
                plan = plan.iter().map(|points| sample(points, random())).collect();
            }
            let planned: usize = plan.iter().map(VecDeque::len).sum();
            assert!(planned >= STAGES, "{planned}");
            let cuts = Box::pin(stop_everywhere(ns, &stages, plan)).await;
            assert_eq!(cuts, planned);
            proof.rounds = planned;
            let each: Vec<_> = writes.iter().map(u64::to_string).collect();
            proof.held(&format!(
                "{cuts} stops in stages of {} writes; all converged to the same state",
                each.join(", ")
            ));
        })
        .await;
    }

    #[tokio::test]
    async fn converges_when_killed_at_any_time() {
        let proof = proofs::begin("CRM killed during a rollout", 1, 10);
        let rounds = proof.rounds;
        in_shared_cluster(async |ns: &TestNamespace| {
            let stages = Box::pin(record_baseline(ns, &options())).await;
            let mut found_work = 0;
            for round in 0..rounds {
                for (stage, ended) in stages.iter().enumerate() {
                    let before = generation(ns).await;
                    let crm = CrmProcess::start(ns, &options()).await;
                    request_stage(&crm.client, stage).await.unwrap();
                    // From before the first write to after the last.
                    let pause = 15 * u64::try_from(round + stage).unwrap();
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    crm.signal(Signal::KILL);
                    drop(crm);
                    let crm = CrmProcess::start(ns, &options()).await;
                    wait_for_stage(ns, stage, before).await;
                    let what = format!("stage {stage}, killed after {pause} ms");
                    wait_for_state(ns, &what, &ended.state).await;
                    found_work += usize::from(writes_of(&crm.url).await > 0);
                }
            }
            assert!(found_work > 0, "every kill came after the last write");
            proof.held(&format!(
                "{} kills, {found_work} of them before the last write; all converged to the \
                 same state",
                rounds * STAGES
            ));
        })
        .await;
    }
}

#[tokio::test]
async fn changes_nothing_while_paused() {
    in_shared_cluster(async |ns: &TestNamespace| {
        let crm = Crm::start(ns, &options()).await;
        let mut spec = spec_of(&[hello("a")]);
        deploy(&crm.client, "class", &spec).await.unwrap();
        wait_available(ns, "class").await;
        let before = children(ns).await;
        spec["functions"][0]["config"] = json!({"env": {"CHANGED": "yes"}});
        spec["paused"] = json!(true);
        deploy(&crm.client, "class", &spec).await.unwrap();
        wait_for_status(ns, "class", "the pause to be reported", AVAILABLE_TIMEOUT, |status| {
            status.conditions.iter().any(|it| it.reason == "Paused")
        })
        .await;
        assert_eq!(children(ns).await, before);
        spec["paused"] = json!(false);
        deploy(&crm.client, "class", &spec).await.unwrap();
        let status = wait_available(ns, "class").await;
        assert_eq!(status.phase, Phase::Available);
        assert_ne!(children(ns).await, before);
    })
    .await;
}
