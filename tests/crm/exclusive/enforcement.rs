//! Enforcement of requirements under load.

mod load_step;
mod plot;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use oprc_tests::{
    TestNamespace,
    crm::{Crm, Options},
    exclusivity::exclusively,
    fixture::with_crm,
    generator::{Generator, p95},
    load::Connection,
    shared, workspace,
};
use tokio::time::interval;

use load_step::{
    BOUND, HIGH, LOW, Scaling, floor_follows_a_load_step, history, instances, make_noise,
};
use plot::plot;

/// Seconds under the low load, so that the function and its usual load are measured.
const WARM_UP: u32 = 75;
/// Seconds under the high load, and after it.
const STEP: u32 = 120;
const AFTER: u32 = 240;
/// Enforcement may use at most this many times the instances of the autoscaler.
const MAX_COST: f64 = 1.1;
const PLOT: &str = "docs/images/load-step.svg";
const NOISY_MINUTES: usize = 15;
/// Changes of direction in the time of the noise.
const MAX_REVERSALS: usize = 2;

/// What a run achieved, second by second.
#[derive(Debug, Default)]
struct Run {
    latencies: Vec<Option<Duration>>,
    instances: Vec<u32>,
}

impl Run {
    fn violation_seconds(&self) -> u32 {
        let violated = self.latencies.iter().flatten().filter(|it| **it > BOUND);
        u32::try_from(violated.count()).unwrap()
    }

    fn instance_seconds(&self) -> u32 {
        self.instances.iter().sum()
    }
}

/// Measures by the cluster's Prometheus.
async fn measuring() -> Options {
    Options::measuring(&shared().await.spec().prometheus_url().unwrap())
}

/// Records the instances of each second, and afterwards the 95th percentile of latency of the requests
/// that were sent in it.
///
/// Each phase has a rate and a number of seconds.
async fn record(ns: &TestNamespace, generator: &Generator, phases: &[(u32, u32)]) -> Run {
    let started = Timestamp::now();
    let mut ticks = interval(Duration::from_secs(1));
    let mut run = Run::default();
    for (rate, seconds) in phases {
        generator.set_rate(*rate);
        for _ in 0..*seconds {
            ticks.tick().await;
            run.instances.push(u32::try_from(instances(ns).await.len()).unwrap());
        }
    }
    let mut latencies = vec![Vec::new(); run.instances.len()];
    for sent in generator.sent() {
        let second = usize::try_from(sent.at.duration_since(started).as_secs());
        if let Some(latencies) = second.ok().and_then(|second| latencies.get_mut(second)) {
            latencies.push(sent.latency());
        }
    }
    run.latencies = latencies.into_iter().map(p95).collect();
    run
}

mod proof {
    use oprc_tests::proof;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_step_raises_the_floor() {
        let every =
            [Scaling::EnforcedReplicas, Scaling::EnforcedAutoscaler, Scaling::EnforcedKnative];
        let proof =
            proof::begin("load step while CRM is killed, in kinds of floor", 1, every.len());
        for scaling in every.into_iter().take(proof.rounds) {
            floor_follows_a_load_step(scaling).await;
        }
        proof.held("each decision made once, instances kept under noise and during a deployment, then fewer in steps");
    }

    /// In turn with autoscalers alone, by the safeguards of production.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_step_is_served_better_than_by_an_autoscaler_alone() {
        let proof =
            proof::begin("load step, enforcement beside an autoscaler, in rounds of runs", 0, 3);
        if !proof::whole() {
            return;
        }
        let order = [Scaling::Autoscaler, Scaling::EnforcedAutoscaler, Scaling::EnforcedReplicas];
        let runs = compare(order, proof.rounds).await;
        std::fs::create_dir_all(workspace().join("docs/images")).unwrap();
        std::fs::write(workspace().join(PLOT), plot(&runs[0][0], &runs[1][0])).unwrap();
        let [alone, by_minimum, by_replicas] = is_better(&runs);
        proof.held(&format!(
            "p95 above {} ms for {alone} with an autoscaler of 70 % CPU; with enforcement {by_minimum} by its minimum, {by_replicas} by replicas; in parentheses instance-seconds; medians",
            BOUND.as_millis(),
        ));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_step_on_knative_is_served_better_than_by_an_autoscaler_alone() {
        let proof =
            proof::begin("load step on Knative beside an autoscaler, in rounds of runs", 0, 3);
        if !proof::whole() {
            return;
        }
        let order = [Scaling::Autoscaler, Scaling::EnforcedKnative];
        let [alone, on_knative] = is_better(&compare(order, proof.rounds).await);
        proof.held(&format!(
            "p95 above {} ms for {alone} with an autoscaler of 70 % CPU, {on_knative} with enforcement on Knative; in parentheses instance-seconds; medians",
            BOUND.as_millis(),
        ));
    }

    /// Alternating runs.
    async fn compare<const KINDS: usize>(
        order: [Scaling; KINDS],
        rounds: usize,
    ) -> [Vec<Run>; KINDS] {
        let mut runs = order.map(|scaling| (scaling, Vec::new()));
        for _ in 0..rounds {
            for (scaling, runs) in &mut runs {
                let run = run(*scaling).await;
                println!("{scaling:?}: {} s, {}", run.violation_seconds(), run.instance_seconds());
                runs.push(run);
            }
        }
        runs.map(|(_, runs)| runs)
    }

    /// Asserts that all are better than the first, and formats their medians.
    fn is_better<const KINDS: usize>(runs: &[Vec<Run>; KINDS]) -> [String; KINDS] {
        let medians = runs.each_ref().map(|runs| {
            (median(runs, Run::violation_seconds), median(runs, Run::instance_seconds))
        });
        let (violated, cost) = medians[0];
        for enforced in &medians[1..] {
            assert!(enforced.0 < violated, "{medians:?}");
            assert!(f64::from(enforced.1) <= MAX_COST * f64::from(cost), "{medians:?}");
        }
        medians.map(|(violated, cost)| format!("{violated} s ({cost})"))
    }

    fn median(runs: &[Run], of: impl Fn(&Run) -> u32) -> u32 {
        let mut all: Vec<_> = runs.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    }

    /// One run in a namespace of its own: a load step, and the time until an autoscaler has lowered the
    /// number of instances.
    async fn run(scaling: Scaling) -> Run {
        let options = scaling.options(measuring().await);
        let mut result = Run::default();
        with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
            let target = scaling.deployed(ns, crm).await;
            result = exclusively(async {
                let generator = Generator::start(target, Connection::New, LOW);
                record(ns, &generator, &[(LOW, WARM_UP)]).await;
                record(ns, &generator, &[(HIGH, STEP), (LOW, AFTER)]).await
            })
            .await;
        })
        .await;
        result
    }

    /// A sample of noise is in the test of a load step.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn noise_causes_no_flapping() {
        let proof = proof::begin("noisy load, in minutes", 0, NOISY_MINUTES);
        if !proof::whole() {
            return;
        }
        let scaling = Scaling::EnforcedAutoscaler;
        let seconds = u32::try_from(60 * proof.rounds).unwrap();
        let (mut run, mut changes) = (Run::default(), Vec::new());
        with_crm(&scaling.options(measuring().await), async |ns: &TestNamespace, crm: &Crm| {
            let target = scaling.deployed(ns, crm).await;
            exclusively(async {
                let generator = Generator::start(target, Connection::New, HIGH / 2);
                let phases = [(HIGH / 2, seconds)];
                run = tokio::select! {
                    () = make_noise(&generator, HIGH / 2, 3) => unreachable!("noise doesn't end"),
                    run = record(ns, &generator, &phases) => run,
                };
                changes = history(ns, scaling).await;
            })
            .await;
        })
        .await;
        let is_raise: Vec<_> = changes.iter().map(|it| it.to > it.from).collect();
        let reversals = is_raise.windows(2).filter(|it| it[0] != it[1]).count();
        let result = format!(
            "{} changes of the floor, {reversals} of them in the other direction than the one before; p95 above {} ms for {} s, {} instances at most",
            changes.len(),
            BOUND.as_millis(),
            run.violation_seconds(),
            run.instances.iter().max().unwrap(),
        );
        println!("{result}: {changes:?}");
        assert!(is_raise.contains(&true) && reversals <= MAX_REVERSALS, "{result}");
        proof.held(&result);
    }
}
