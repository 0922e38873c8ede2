//! What enforcement does about CPU and memory.

use oprc_nfr::Stopped;

use super::{
    enforcement::{enforced, is},
    *,
};
use crate::{crd::Recommendation, observations::LiveDecision};

const MIB: f64 = 1024.0 * 1024.0;
const DAYS: i64 = 86_400;

/// An instance of a function.
struct Instance {
    image: &'static str,
    /// Seconds since its creation.
    age: i64,
    /// In MiB.
    limit: u32,
    /// Seconds since it was last out of memory.
    killed: Option<i64>,
    /// Whether it is a node of the data grid.
    is_grid: bool,
    /// The number at the end of its name.
    index: usize,
}

const INSTANCE: Instance =
    Instance { image: "i", age: 2 * DAYS, limit: 512, killed: None, is_grid: false, index: 0 };

impl Fixture {
    fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Adds an instance of a class, or replaces its state.
    fn put_instance(&self, class: &str, instance: &Instance) {
        let ago = |seconds: i64| at(self.now() - seconds).to_string();
        let last_state = instance.killed.map(|seconds| {
            json!({"terminated": {
                "exitCode": 137, "reason": "OOMKilled", "finishedAt": ago(seconds),
            }})
        });
        let name = format!("{class}-{}", instance.index);
        let (labels, container) = if instance.is_grid {
            (json!({"oaas.io/owner": class, "oaas.io/component": "odgm"}), "odgm")
        } else {
            (json!({"oaas.io/owner": class, "oaas.io/function": "f"}), "function")
        };
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": name,
                "creationTimestamp": ago(instance.age),
                "labels": labels,
            },
            "spec": {"containers": [{
                "name": container, "image": instance.image,
                "resources": {"limits": {"memory": format!("{}Mi", instance.limit)}},
            }]},
            "status": {
                "conditions": [{
                    "type": "Ready", "status": "True",
                    "lastTransitionTime": ago(instance.age - 10),
                }],
                "containerStatuses": [{
                    "name": container, "image": "", "imageID": "", "ready": true,
                    "restartCount": 1, "lastState": last_state.unwrap_or(json!({})),
                }],
            },
        });
        let pod = PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap();
        self.analyzer.cache.put_pod(pod, None, at(START));
    }

    /// Adds an instance that no node has room for.
    fn put_unschedulable(&self, class: &str) {
        let name = format!("{class}-1");
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": name,
                "creationTimestamp": at(self.now()).to_string(),
                "labels": {"oaas.io/owner": class, "oaas.io/function": "f"},
            },
            "status": {"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            ]},
        });
        let pod = PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap();
        self.analyzer.cache.put_pod(pod, None, at(START));
    }

    fn use_resources(&self, class: &str, cpu: f64, memory: f64) {
        let load = Load { rate: 1.0, slow: 0.0, cpu, memory: memory * MIB };
        self.script.lock().loads.insert(format!("{class}-0"), load);
    }

    fn recommendation(&self, class: &str, dimension: &str) -> Option<Recommendation> {
        let all = self.status(class).nfr_recommendations;
        all.into_iter().find(|it| it.dimension == dimension)
    }

    fn applied(&self, class: &str, dimension: &str) -> Option<Recommendation> {
        let all = self.status(class).last_applied_recommendations;
        all.into_iter().find(|it| it.dimension == dimension)
    }

    /// Request and limit that enforcement applies, in MiB.
    fn memory(&self, class: &str) -> Option<(f64, f64)> {
        let entry = self.applied(class, "memory")?;
        Some((entry.target / MIB, entry.limit.unwrap() / MIB))
    }

    fn decision(&self, class: &str, dimension: Dimension) -> LiveDecision {
        let latest = self.analyzer.observations.latest();
        let key = ("n".to_owned(), class.to_owned());
        let decisions = &latest.class(&key).unwrap()["f"].decisions;
        decisions.iter().find(|it| it.dimension == dimension).unwrap().clone()
    }

    fn events_about(&self, reason: &str) -> Vec<String> {
        let events = self.events().into_iter();
        events.filter(|it| it.0 == reason).map(|it| it.1).collect()
    }
}

/// A class whose only instance was just out of memory.
fn killed() -> Fixture {
    let fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.put_instance("shop", &Instance { killed: Some(0), ..INSTANCE });
    fixture.use_resources("shop", 0.0, 300.0);
    fixture
}

#[tokio::test]
async fn out_of_memory_kill_raises_the_limit_and_is_reported_once() {
    let mut fixture = killed();
    fixture.pass().await;
    assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)), "twice the request of 256 MiB");
    let status = fixture.status("shop");
    let kills = &status.oom_kills[0];
    assert_eq!((kills.function.as_str(), kills.count, kills.at.0), ("f", 1, at(START)));
    assert_eq!(kills.limit, Some(512.0 * MIB));
    let entry = fixture.applied("shop", "memory").unwrap();
    assert_eq!(fixture.recommendation("shop", "memory"), Some(entry.clone()));
    assert!(entry.basis.unwrap().starts_with("out of memory once at 512 MiB"));
    assert_eq!(entry.max, Some(4096.0 * MIB));
    let change = &status.nfr_history[0];
    assert_eq!((change.from, change.to), (256.0 * MIB, 512.0 * MIB));
    let events = fixture.events();
    let notes = |reason: &str| -> Vec<_> {
        events.iter().filter(|it| it.0 == reason).map(|it| it.1.as_str()).collect()
    };
    let killed = format!("f: pod shop-0 was out of memory at {} (limit 512 MiB)", at(START));
    assert_eq!(notes("OOMKilled"), [killed]);
    let [applied] = notes("NFRApplied")[..] else { panic!("{events:?}") };
    assert!(applied.starts_with("f: memory 256 MiB → 512 MiB: out of memory once"), "{applied}");
    // The status of the pod stays as it is; a new process reads it again.
    for _ in 0..12 {
        fixture.restart();
        fixture.pass().await;
        assert_eq!(fixture.status("shop").nfr_history.len(), 1);
    }
    assert_eq!(fixture.events_about("OOMKilled"), [""; 0]);
    fixture.put_instance("shop", &Instance { killed: Some(0), ..INSTANCE });
    fixture.pass().await;
    assert_eq!(fixture.events_about("OOMKilled").len(), 1);
    assert_eq!(fixture.status("shop").oom_kills[0].count, 2);
}

#[tokio::test]
async fn memory_is_raised_before_a_leak_reaches_the_limit() {
    let mut fixture = Fixture::new();
    fixture.analyzer.options.range = Duration::from_mins(10);
    fixture.add("shop", &enforced());
    fixture.put_instance("shop", &INSTANCE);
    fixture.use_resources("shop", 0.0, 200.0);
    fixture.script.lock().leak = 10.0 * MIB / 60.0;
    // 512 MiB are in use after 31 minutes.
    let mut minutes = 0;
    while fixture.memory("shop").is_none_or(|(_, limit)| limit <= 512.0) {
        fixture.pass().await;
        minutes += 1;
        assert!(minutes < 30, "{:?}", fixture.decision("shop", Dimension::Memory));
    }
    let basis = fixture.applied("shop", "memory").unwrap().basis.unwrap();
    assert!(basis.starts_with("grows by 10 MiB/min"), "{basis}");
    assert!(fixture.status("shop").oom_kills.is_empty());
}

#[tokio::test]
async fn settings_bound_the_memory() {
    let mut fixture = killed();
    fixture.analyzer.platform = Arc::new(|| {
        let mut platform = Platform::of(Profile::Dev);
        platform.scaling.max_memory_bytes = 600 << 20;
        platform
    });
    for minutes in 0..30 {
        fixture.pass().await;
        let (request, limit) = fixture.memory("shop").unwrap();
        assert!(request <= 600.0 && limit <= 600.0 && limit > 512.0, "{request} {limit}");
        if minutes % 5 == 4 {
            let instance = Instance { killed: Some(0), limit: 600, ..INSTANCE };
            fixture.put_instance("shop", &instance);
        }
    }
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "LimitReached")));
}

#[tokio::test]
async fn memory_that_does_not_prevent_kills_is_not_raised_further() {
    let mut fixture = killed();
    let mut limits = Vec::new();
    for _ in 0..10 {
        fixture.pass().await;
        let (_, limit) = fixture.memory("shop").unwrap();
        limits.push(limit);
        // New instances with the new limit are killed as well.
        fixture.now.fetch_add(120, Ordering::SeqCst);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let limit = limit as u32;
        fixture.put_instance("shop", &Instance { killed: Some(0), limit, ..INSTANCE });
    }
    limits.dedup();
    assert_eq!(limits, [1024.0, 2048.0], "two raises");
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "NoEffect")));
    let effect = fixture.recommendation("shop", "memory").unwrap().effect.unwrap();
    assert_eq!((effect.ineffective, effect.reason()), (2, Some(Stopped::KilledAgain)));
    let decision = fixture.decision("shop", Dimension::Memory);
    assert_eq!(decision.waits_for, Some(Stopped::KilledAgain.to_string()));
    // A day without kills.
    fixture.now.fetch_add(DAYS, Ordering::SeqCst);
    fixture.pass().await;
    assert_eq!(fixture.recommendation("shop", "memory").unwrap().effect, None);
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));
}

#[tokio::test]
async fn raise_that_cannot_be_scheduled_is_reverted_once() {
    let mut fixture = killed();
    fixture.pass().await;
    assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    fixture.put_unschedulable("shop");
    let mut minutes = 0;
    while fixture.memory("shop").is_some() {
        // The old instance is out of memory again, which would be worth another raise.
        fixture.put_instance("shop", &Instance { killed: Some(0), ..INSTANCE });
        fixture.restart();
        fixture.pass().await;
        minutes += 1;
        assert!(minutes <= 5, "{:?}", fixture.memory("shop"));
    }
    assert_eq!(minutes, 5, "half of the effect window");
    let entry = fixture.recommendation("shop", "memory").unwrap();
    assert_eq!((entry.target, entry.limit), (256.0 * MIB, Some(512.0 * MIB)));
    assert_eq!(entry.effect.unwrap().reason(), Some(Stopped::Unschedulable));
    let change = fixture.status("shop").nfr_history[0].clone();
    assert_eq!((change.from, change.to), (512.0 * MIB, 256.0 * MIB));
    assert_eq!(change.basis, "instances with 512 MiB could not be scheduled for 5 min");
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "Unschedulable")));
    fixture.analyzer.cache.remove_pod(&("n".into(), "shop-1".into()), "shop-1", at(START));
    for _ in 0..30 {
        fixture.put_instance("shop", &Instance { killed: Some(0), ..INSTANCE });
        fixture.restart();
        fixture.pass().await;
        assert_eq!(fixture.memory("shop"), None);
    }
    assert_eq!(fixture.status("shop").nfr_history.len(), 2);
    assert_eq!(
        fixture.decision("shop", Dimension::Memory).waits_for,
        Some(Stopped::Unschedulable.to_string())
    );
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "Unschedulable")));
    // Another image starts anew.
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["image"] = json!("i:2");
        class["metadata"]["generation"] = json!(2);
    });
    let instance = Instance { image: "i:2", age: 60, killed: Some(0), ..INSTANCE };
    fixture.put_instance("shop", &instance);
    fixture.pass().await;
    assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));
}

#[tokio::test]
async fn revert_restores_the_last_value_that_was_rolled_out() {
    let mut fixture = killed();
    fixture.pass().await;
    assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    // It is rolled out, and an hour later the new instance is out of memory as well.
    fixture.now.fetch_add(3600, Ordering::SeqCst);
    let instance = Instance { age: 3600, limit: 1024, killed: Some(0), ..INSTANCE };
    fixture.put_instance("shop", &instance);
    fixture.pass().await;
    assert_eq!(fixture.memory("shop"), Some((1024.0, 2048.0)));
    fixture.put_unschedulable("shop");
    for _ in 0..30 {
        fixture.pass().await;
    }
    assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    assert_eq!(fixture.status("shop").nfr_history.len(), 3);
}

#[tokio::test]
async fn unschedulable_instance_after_the_rollout_only_holds_raises() {
    let mut fixture = killed();
    fixture.pass().await;
    fixture.now.fetch_add(3600, Ordering::SeqCst);
    fixture.put_instance("shop", &Instance { age: 3600, limit: 1024, ..INSTANCE });
    fixture.put_unschedulable("shop");
    for _ in 0..30 {
        fixture.put_instance(
            "shop",
            &Instance { age: 3600, limit: 1024, killed: Some(0), ..INSTANCE },
        );
        fixture.pass().await;
        assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    }
    let waits_for = fixture.decision("shop", Dimension::Memory).waits_for;
    assert_eq!(waits_for.as_deref(), Some("instances that can't be scheduled"));
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));
}

#[tokio::test]
async fn raise_is_kept_while_there_is_no_earlier_instance() {
    let mut fixture = killed();
    fixture.pass().await;
    fixture.now.fetch_add(3600, Ordering::SeqCst);
    // Its node was drained, and there is no other.
    fixture.analyzer.cache.remove_pod(&("n".into(), "shop-0".into()), "shop-0", at(START));
    fixture.put_unschedulable("shop");
    for _ in 0..30 {
        fixture.pass().await;
        assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    }
}

#[tokio::test]
async fn what_the_user_wrote_is_only_advised_to_be_lowered() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    let sizes = json!({"cpu": "400m", "memory": "1Gi"});
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["provision"] = json!({"requests": sizes, "limits": sizes});
    });
    fixture.put_instance("shop", &INSTANCE);
    fixture.use_resources("shop", 0.02, 100.0);
    for _ in 0..60 {
        fixture.pass().await;
    }
    for (dimension, expected) in [("memory", 200.0 * MIB), ("cpu", 0.1)] {
        let advice = fixture.recommendation("shop", dimension).unwrap();
        assert!(advice.target < expected, "{advice:?}");
        assert_eq!(fixture.applied("shop", dimension), None);
    }
    assert!(fixture.status("shop").nfr_history.is_empty());
    let decision = fixture.decision("shop", Dimension::Memory);
    assert!((decision.current - 1024.0 * MIB).abs() < 1.0, "{decision:?}");
    assert!(decision.waits_for.unwrap().starts_with("request is set in the specification"));
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));
    // Without it, the same recommendation is applied in steps.
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["provision"] = json!({});
    });
    for _ in 0..60 {
        fixture.pass().await;
    }
    let (request, limit) = fixture.memory("shop").unwrap();
    assert!((115.0..=180.0).contains(&request) && limit >= 115.0, "{request} {limit}");
    let history = fixture.status("shop").nfr_history;
    let own: Vec<_> = history.iter().filter(|it| it.dimension == "memory").collect();
    for pair in own.windows(2) {
        assert!(pair[0].at.0.duration_since(pair[1].at.0) >= SignedDuration::from_mins(10));
        assert!(pair[0].to >= pair[1].to * 0.7 - 1.0, "{history:?}");
    }
}

#[tokio::test]
async fn short_history_lowers_nothing() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.put_instance("shop", &Instance { age: 12 * 3600, ..INSTANCE });
    fixture.use_resources("shop", 0.01, 20.0);
    for _ in 0..30 {
        fixture.pass().await;
    }
    assert_eq!(fixture.recommendation("shop", "memory"), None);
    let decision = fixture.decision("shop", Dimension::Memory);
    assert!(decision.target < decision.current, "{decision:?}");
}

#[tokio::test]
async fn busy_instances_get_more_cpu() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.put_instance("shop", &INSTANCE);
    fixture.use_resources("shop", 0.4, 0.0);
    fixture.pass().await;
    let entry = fixture.applied("shop", "cpu").unwrap();
    assert!((entry.target - 0.4).abs() < 1e-9, "at most twice the 200m: {entry:?}");
    assert_eq!(entry.limit, Some(0.5), "the limit stays");
    assert_eq!(fixture.applied("shop", "memory"), None, "unknown");
    assert!(entry.confidence.unwrap() >= 0.5);
    let events = fixture.events_about("NFRApplied");
    let is_own = |it: &&String| it.starts_with("f: cpu 200m → 400m: p90 of ");
    assert_eq!(events.iter().filter(is_own).count(), 1, "{events:?}");
    fixture.edit("shop", |class| {
        class["spec"]["nfr"]["enforcement"]["dimensions"] = json!(["memory"]);
    });
    fixture.pass().await;
    assert_eq!(fixture.applied("shop", "cpu"), None);
    assert!(fixture.recommendation("shop", "cpu").is_some());
}

#[tokio::test]
async fn new_image_drops_the_decision() {
    let mut fixture = killed();
    fixture.pass().await;
    assert!(fixture.memory("shop").is_some());
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["provision"] = json!({"min_scale": 1, "max_scale": 9});
        class["metadata"]["generation"] = json!(2);
    });
    fixture.pass().await;
    assert!(fixture.memory("shop").is_some(), "the number of instances doesn't matter");
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["image"] = json!("i:2");
        class["metadata"]["generation"] = json!(3);
    });
    for _ in 0..10 {
        fixture.pass().await;
        assert_eq!(fixture.memory("shop"), None);
        assert_eq!(fixture.recommendation("shop", "memory"), None);
    }
    fixture.events();
    // The new version is out of memory, too.
    fixture.put_instance("shop", &Instance { image: "i:2", age: 60, killed: Some(1), ..INSTANCE });
    fixture.pass().await;
    assert_eq!(fixture.memory("shop"), Some((512.0, 1024.0)));
    assert_eq!(fixture.status("shop").oom_kills[0].count, 1);
    assert_eq!(fixture.events_about("OOMKilled").len(), 1);
}

#[tokio::test]
async fn frozen_enforcement_keeps_applied_resources() {
    let mut fixture = killed();
    fixture.pass().await;
    let before = fixture.memory("shop");
    fixture.analyzer.options.frozen = true;
    fixture.put_instance("shop", &Instance { killed: Some(0), limit: 1024, ..INSTANCE });
    for _ in 0..10 {
        fixture.pass().await;
        assert_eq!(fixture.memory("shop"), before);
    }
    let waits_for = fixture.decision("shop", Dimension::Memory).waits_for;
    assert_eq!(waits_for.as_deref(), Some("the end of the freeze"));
    fixture.analyzer.options.frozen = false;
    fixture.pass().await;
    assert!(fixture.memory("shop") > before);
}

#[tokio::test]
async fn observed_class_is_only_advised() {
    let mut fixture = Fixture::new();
    let observe = json!({"nfr": {"enforcement": {"mode": "observe"}}});
    for (name, spec) in [("shop", fast()), ("explicit", observe), ("silent", json!({}))] {
        fixture.add(name, &spec);
        fixture.put_instance(name, &Instance { killed: Some(0), ..INSTANCE });
        fixture.use_resources(name, 0.0, 300.0);
    }
    for _ in 0..5 {
        fixture.pass().await;
    }
    for name in ["shop", "explicit"] {
        assert!(fixture.recommendation(name, "memory").is_some(), "{name}");
        assert_eq!((fixture.memory(name), fixture.enforcement(name)), (None, None), "{name}");
        assert_eq!(fixture.decision(name, Dimension::Memory).mode, EnforcementMode::Observe);
    }
    assert_eq!(fixture.recommendation("silent", "memory"), None, "it says nothing about it");
    assert_eq!(fixture.events_about("OOMKilled").len(), 2);
    // Turned on, it starts with what was recommended.
    let recommended = fixture.recommendation("shop", "memory").unwrap();
    fixture.edit("shop", |class| {
        class["spec"]["nfr"] = json!({"enforcement": {"mode": "enforce"}});
    });
    fixture.pass().await;
    let applied = fixture.applied("shop", "memory").unwrap();
    assert_eq!((applied.target, applied.limit), (recommended.target, recommended.limit));
    assert_eq!(applied.since.unwrap().0, at(fixture.now()), "the cooldown starts");
}

#[tokio::test]
async fn unknown_usage_changes_no_resources() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.put_instance("shop", &INSTANCE);
    for value in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        fixture.use_resources("shop", value, value);
        for _ in 0..6 {
            fixture.pass().await;
        }
        assert_eq!(fixture.recommendation("shop", "memory"), None, "{value}");
        assert_eq!(fixture.recommendation("shop", "cpu"), None, "{value}");
    }
    fixture.use_resources("shop", 0.4, 400.0);
    fixture.script.lock().partial = true;
    for _ in 0..6 {
        fixture.pass().await;
    }
    assert_eq!(fixture.recommendation("shop", "cpu"), None);
}

#[tokio::test]
async fn usage_is_read_once_in_five_intervals() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    for _ in 0..11 {
        fixture.pass().await;
    }
    assert_eq!(fixture.script.lock().usage_queries, 3 * 2, "at the first, sixth and eleventh pass");
}

/// Nodes of a replicated grid are replaced one after the other. A single one would lose its state, or
/// interrupt calls.
#[tokio::test]
async fn data_grid_gets_memory_if_it_is_replicated() {
    for nodes in [1, 3_usize] {
        let mut fixture = Fixture::new();
        fixture.analyzer.platform = Arc::new(|| {
            let mut platform = Platform::of(Profile::Dev);
            platform.features.odgm = true;
            platform
        });
        let mut spec = enforced();
        spec["addons"] = json!(["odgm"]);
        spec["odgm_config"] = json!({
            "replicas": nodes, "image": "g",
            "requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi"},
        });
        fixture.add("shop", &spec);
        let node = Instance { image: "g", is_grid: true, ..INSTANCE };
        fixture.put_instance("shop", &Instance { killed: Some(0), ..node });
        fixture.use_resources("shop", 0.0, 300.0);
        fixture.pass().await;
        if nodes > 1 {
            assert_eq!(fixture.applied("shop", "memory"), None, "nodes are missing");
        }
        for index in 1..nodes {
            fixture.put_instance("shop", &Instance { index, ..node });
        }
        fixture.pass().await;
        let status = fixture.status("shop");
        assert_eq!(status.oom_kills[0].function, "addon:odgm");
        let entry = fixture.recommendation("shop", "memory").unwrap();
        assert_eq!(entry.component, "addon:odgm");
        assert_eq!((entry.target / MIB, entry.limit.unwrap() / MIB), (512.0, 1024.0));
        assert_eq!(fixture.applied("shop", "memory"), (nodes == 3).then_some(entry));
    }
}
