//! A load step, to more than one instance can serve, and a noisy load.

use k8s_openapi::{
    api::{apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler},
    jiff::Timestamp,
};
use kube::api::Api;
use oprc_crm::{crd::NfrChange, kinds::KNATIVE_REVISION};
use oprc_tests::{
    class::{classes, list, wait_for_status},
    exclusivity::exclusively,
    generator::{Generator, p95},
    in_namespace,
    load::Connection,
    write_cutoff::WriteCutoff,
};
use tokio::time::{interval, timeout};

use super::*;

/// Short safeguards, so that the floor comes down within the test.
const SHORT: [(&str, &str); 4] = [
    ("OPRC_CRM_PROM_STEP", "5s"),
    ("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "5"),
    ("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "20"),
    ("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "10"),
];

/// The lowest rate of noise is the mean divided by this; the highest is as far above the mean.
const NOISE: u32 = 2;

/// Records the instances of each second, and afterwards the 95th percentile of latency of the requests
/// that were sent in it.
async fn record(ns: &TestNamespace, generator: &Generator, seconds: u32) -> Run {
    let started = Timestamp::now();
    let mut ticks = interval(Duration::from_secs(1));
    let mut run = Run::default();
    for _ in 0..seconds {
        ticks.tick().await;
        run.instances.push(u32::try_from(instances(ns).await.len()).unwrap());
    }
    let mut latencies = vec![Vec::new(); usize::try_from(seconds).unwrap()];
    for sent in generator.sent() {
        let second = usize::try_from(sent.at.duration_since(started).as_secs());
        if let Some(latencies) = second.ok().and_then(|second| latencies.get_mut(second)) {
            latencies.push(sent.latency());
        }
    }
    run.latencies = latencies.into_iter().map(p95).collect();
    run
}

/// Changes the rate each second, until it is dropped.
async fn make_noise(generator: &Generator, mean: u32, mut seed: u64) {
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        // A linear congruential generator; its high bits are random enough.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let spread = u64::from(2 * (mean - mean / NOISE) + 1);
        generator.set_rate(mean / NOISE + u32::try_from((seed >> 32) % spread).unwrap());
    }
}

fn decides(body: &Value) -> bool {
    body.pointer("/status/nfr_history").and_then(Value::as_array).is_some_and(|it| !it.is_empty())
}

async fn history(ns: &TestNamespace, scaling: Scaling) -> Vec<NfrChange> {
    let class = classes(ns).get(&scaling.class()).await.unwrap();
    class.status.unwrap_or_default().nfr_history
}

/// Runs a class under a low load, then a load step.
///
/// CRM ends while it records its first decision, once before the write and once after it. The floor is
/// set, nothing is lowered by noise or by a deployment, and it comes down in steps after the load.
async fn floor_follows_a_load_step(scaling: Scaling) {
    let options = scaling.options(&SHORT).await;
    in_namespace(async |ns: &TestNamespace| {
        let lost = WriteCutoff::at_first(decides, false);
        let crm = lost.start(ns, &options).await;
        let target = scaling.deployed(ns, &crm).await;
        // The load would disturb other tests, and they would disturb it.
        exclusively(async {
            let first = instances(ns).await;
            let generator = Generator::start(target, Connection::New, LOW);
            let class = scaling.class();
            wait_for_status(ns, &class, "measurements", TIMEOUT, is_met).await;
            generator.set_rate(HIGH);
            timeout(TIMEOUT, lost.reached()).await.expect("a decision");
            drop(crm);
            assert_eq!(history(ns, scaling).await, []);
            let kept = WriteCutoff::at_first(decides, true);
            let crm = kept.start(ns, &options).await;
            timeout(TIMEOUT, kept.reached()).await.expect("a decision");
            drop(crm);
            let decided = history(ns, scaling).await;
            assert_eq!(decided.len(), 1, "{decided:?}");
            let crm = Crm::start(ns, &options).await;
            tokio::select! {
                () = make_noise(&generator, HIGH, 1) => {}
                () = raise(ns, scaling, &first, &decided[0]) => {}
            }
            tokio::select! {
                () = make_noise(&generator, HIGH, 2) => {}
                () = deploy_under_load(ns, &crm, scaling) => {}
            }
            lower(ns, scaling, &generator).await;
            crm.stop().await;
        })
        .await;
    })
    .await;
}

async fn raise(ns: &TestNamespace, scaling: Scaling, first: &[String], decided: &NfrChange) {
    let class = scaling.class();
    let raised =
        |it: &ClassRuntimeStatus| it.last_applied_recommendations.iter().any(|it| it.target >= 3.0);
    wait_for_status(ns, &class, "a floor", TIMEOUT, raised).await;
    eventually("the instances", TIMEOUT, || async {
        let found = instances(ns).await.len();
        if found >= 3 { Ok(()) } else { Err(format!("{found} instances")) }
    })
    .await;
    let found = wait_for_status(ns, &class, "p95 within its bound", TIMEOUT, is_met).await;
    let now = instances(ns).await;
    assert!(first.iter().all(|pod| now.contains(pod)), "no pod is replaced: {first:?} {now:?}");
    assert_eq!(found.ready.as_deref(), Some("1/1"));
    // The newest is the first. The decision is neither repeated nor forgotten.
    let history = found.nfr_history;
    assert_eq!(history.last(), Some(decided), "{history:?}");
    assert!(history.windows(2).all(|it| (it[0].from - it[1].to).abs() < 0.5), "{history:?}");
    let is_raise: Vec<_> = history.iter().rev().map(|it| it.to > it.from).collect();
    assert!(is_raise.is_sorted_by(|a, b| a >= b), "no raise after a step down: {history:?}");
    assert!(history[0].basis.contains("req/s"), "{history:?}");
}

/// The floor in the object that has it.
async fn floor(ns: &TestNamespace, scaling: Scaling) -> Option<i32> {
    let name = format!("{}--busy", scaling.class());
    match scaling {
        Scaling::EnforcedKnative => {
            let mut revisions = list(ns, &KNATIVE_REVISION).await;
            revisions.sort_by_key(|it| it.metadata.creation_timestamp.clone());
            let newest = revisions.last().unwrap();
            newest.annotations()["autoscaling.knative.dev/min-scale"].parse().ok()
        }
        Scaling::EnforcedReplicas => {
            let api: Api<Deployment> = Api::namespaced(ns.client.clone(), &ns.name);
            api.get(&name).await.unwrap().spec.unwrap().replicas
        }
        Scaling::EnforcedAutoscaler => {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(ns.client.clone(), &ns.name);
            api.get(&name).await.unwrap().spec.unwrap().min_replicas
        }
        Scaling::Autoscaler => None,
    }
}

async fn deploy_under_load(ns: &TestNamespace, crm: &Crm, scaling: Scaling) {
    let before = floor(ns, scaling).await;
    let mut spec = scaling.spec();
    spec["functions"][0]["provision"]["env"][0]["value"] = json!("1");
    let class = scaling.class();
    deploy(&crm.client, &class, &spec).await.unwrap();
    let rolled_out = |it: &ClassRuntimeStatus| it.phase.as_str() == "Available";
    let observed = async {
        let mut ticks = interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            let now = floor(ns, scaling).await;
            assert!(now >= before, "the floor was {before:?} and is {now:?}");
        }
    };
    tokio::select! {
        () = observed => {}
        _ = wait_for_status(ns, &class, "the rollout", TIMEOUT, rolled_out) => {}
    }
}

async fn lower(ns: &TestNamespace, scaling: Scaling, generator: &Generator) {
    generator.set_rate(1);
    let lowered = |it: &ClassRuntimeStatus| it.last_applied_recommendations.is_empty();
    let what = "the floor of the specification";
    let found = wait_for_status(ns, &scaling.class(), what, TIMEOUT, lowered).await;
    let down = found.nfr_history.iter().filter(|it| it.to < it.from).count();
    assert!(down >= 2, "in steps: {:?}", found.nfr_history);
}

mod proof {
    use oprc_tests::{fixture::with_crm, proof, workspace};

    use super::{super::plot::plot, *};

    /// Seconds under the low load, so that the function and its usual load are measured.
    const WARM_UP: u32 = 100;
    /// Seconds under the high load, and after it.
    const STEP: u32 = 120;
    const AFTER: u32 = 240;
    /// Enforcement may use at most this many times the instances of the autoscaler.
    const MAX_COST: f64 = 1.1;
    const PLOT: &str = "docs/images/load-step.svg";
    const NOISY_MINUTES: usize = 15;
    /// Changes of direction in the time of the noise.
    const MAX_REVERSALS: usize = 2;

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

    /// By the safeguards of production, in turn with autoscalers alone.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn load_step_is_served_better_than_by_an_autoscaler_alone() {
        let proof =
            proof::begin("load step, enforcement beside an autoscaler, in rounds of runs", 0, 3);
        if !proof::whole() {
            return;
        }
        let order = [
            Scaling::Autoscaler,
            Scaling::EnforcedAutoscaler,
            Scaling::EnforcedReplicas,
            Scaling::EnforcedKnative,
        ];
        let mut runs = order.map(|scaling| (scaling, Vec::new()));
        for _ in 0..proof.rounds {
            for (scaling, runs) in &mut runs {
                let run = run(*scaling).await;
                println!("{scaling:?}: {} s, {}", run.violation_seconds(), run.instance_seconds());
                runs.push(run);
            }
        }
        std::fs::create_dir_all(workspace().join("docs/images")).unwrap();
        let plot = plot(&runs[0].1[0], &runs[1].1[0]);
        std::fs::write(workspace().join(PLOT), plot).unwrap();
        let medians = runs.map(|(scaling, runs)| {
            let violated = median(&runs, Run::violation_seconds);
            (scaling, violated, median(&runs, Run::instance_seconds))
        });
        let [alone, enforced @ ..] = medians;
        for enforced in enforced {
            assert!(enforced.1 < alone.1, "{medians:?}");
            assert!(f64::from(enforced.2) <= MAX_COST * f64::from(alone.2), "{medians:?}");
        }
        let figures = medians.map(|(_, violated, cost)| format!("{violated} s ({cost})"));
        let [alone, by_minimum, by_replicas, on_knative] = figures;
        proof.held(&format!(
            "p95 above {} ms for {alone} with an autoscaler of 70 % CPU; with enforcement {by_minimum} by its minimum, {by_replicas} by replicas, {on_knative} on Knative; in parentheses instance-seconds; medians",
            BOUND.as_millis(),
        ));
    }

    fn median(runs: &[Run], of: impl Fn(&Run) -> u32) -> u32 {
        let mut all: Vec<_> = runs.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    }

    async fn step(generator: &Generator) {
        generator.set_rate(HIGH);
        tokio::time::sleep(Duration::from_secs(STEP.into())).await;
        generator.set_rate(LOW);
        std::future::pending::<()>().await;
    }

    /// One run in a namespace of its own: a load step, and the time until an autoscaler has lowered the
    /// number of instances.
    async fn run(scaling: Scaling) -> Run {
        let options = scaling.options(&[]).await;
        let mut result = Run::default();
        with_crm(&options, async |ns: &TestNamespace, crm: &Crm| {
            let target = scaling.deployed(ns, crm).await;
            result = exclusively(async {
                let generator = Generator::start(target, Connection::New, LOW);
                record(ns, &generator, WARM_UP).await;
                tokio::select! {
                    run = record(ns, &generator, STEP + AFTER) => run,
                    () = step(&generator) => unreachable!("the load stays"),
                }
            })
            .await;
        })
        .await;
        result
    }

    /// The sample of noise is in the load step.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn noise_causes_no_flapping() {
        let proof = proof::begin("noisy load, in minutes", 0, NOISY_MINUTES);
        if !proof::whole() {
            return;
        }
        let scaling = Scaling::EnforcedAutoscaler;
        let seconds = u32::try_from(60 * proof.rounds).unwrap();
        let (mut run, mut changes) = (Run::default(), Vec::new());
        with_crm(&scaling.options(&[]).await, async |ns: &TestNamespace, crm: &Crm| {
            let target = scaling.deployed(ns, crm).await;
            exclusively(async {
                let generator = Generator::start(target, Connection::New, HIGH / 2);
                run = tokio::select! {
                    () = make_noise(&generator, HIGH / 2, 3) => unreachable!("noise doesn't end"),
                    run = record(ns, &generator, seconds) => run,
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
