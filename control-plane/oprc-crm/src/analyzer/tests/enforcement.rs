//! What enforcement records in status.

use super::*;
use crate::{
    crd::{ClassRuntimeStatus, NFR_ENFORCED},
    kinds::AUTOSCALER,
    reconcile::{ENFORCEMENT, observe::Child},
};

/// A request takes 25 ms of the 500 m that a pod may use: a pod serves 20/s.
const CPU: f64 = 0.025;

pub(super) fn enforced() -> Value {
    json!({
        "nfr_requirements": {"max_latency_ms": 200},
        "nfr": {"enforcement": {"mode": "enforce"}},
    })
}

impl Fixture {
    pub(super) fn set_busy(&self, pod: &str, rate: f64, slow: f64) {
        let load = Load { rate, slow, cpu: rate * CPU, memory: 0.0 };
        self.script.lock().loads.insert(pod.to_owned(), load);
    }

    pub(super) fn status(&self, class: &str) -> ClassRuntimeStatus {
        let key = ("n".to_owned(), class.to_owned());
        self.analyzer.cache.class(&key).unwrap().status.clone().unwrap_or_default()
    }

    fn floor(&self, class: &str) -> Option<f64> {
        let status = self.status(class);
        let applied = status.last_applied_recommendations;
        applied.iter().find(|it| it.component == "f").map(|it| it.target)
    }

    fn recommended(&self, class: &str) -> Option<f64> {
        self.status(class).nfr_recommendations.first().map(|it| it.target)
    }

    pub(super) fn enforcement(&self, class: &str) -> Option<(String, String)> {
        let status = self.status(class);
        let mut conditions = status.conditions.into_iter();
        conditions.find(|it| it.type_ == NFR_ENFORCED).map(|it| (it.status, it.reason))
    }

    /// Forgets what a process remembers.
    pub(super) fn restart(&mut self) {
        self.memory = Memory::default();
        self.analyzer.observations.publish(Observations::default());
    }
}

pub(super) fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[tokio::test]
async fn overload_raises_the_floor_once_and_records_why() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 40.0, 0.9);
    assert_eq!(fixture.pass().await.len(), 1);
    let floor = fixture.floor("shop").unwrap();
    assert!((3.0..=5.0).contains(&floor), "{floor}");
    let status = fixture.status("shop");
    let change = &status.nfr_history[0];
    assert_eq!((change.from, change.to), (1.0, floor));
    assert!(change.basis.contains("40.0 req/s"), "{}", change.basis);
    assert_eq!(status.last_applied_at.as_ref(), Some(&change.at));
    assert_eq!(status.nfr_recommendations, status.last_applied_recommendations);
    let entry = &status.nfr_recommendations[0];
    assert_eq!((entry.min, entry.max, entry.generation), (Some(1.0), Some(50.0), Some(1)));
    assert!(entry.effect.as_ref().unwrap().latency_ms.is_some());
    let events = fixture.events();
    let applied: Vec<_> = events.iter().filter(|it| it.0 == "NFRApplied").collect();
    assert_eq!(applied.len(), 1, "{events:?}");
    assert!(applied[0].1.starts_with(&format!("f: replicas 1 → {floor}: ")), "{events:?}");
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));
    let text = fixture.analyzer.metrics.text();
    let labels = r#"function_key="shop/f",environment="default",dimension="replicas""#;
    for sample in [
        format!(r#"crm_enforcement_actions_total{{{labels},direction="up"}} 1"#),
        format!("crm_enforcement_applied{{{labels}}} {floor:.1}"),
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
    }
    assert!(text.contains(&format!("crm_enforcement_recommended{{{labels}}} ")), "{text}");

    // The new instances serve: nothing more is needed, and nothing is written, even by a new process.
    for number in 1..4 {
        fixture.add_pod("shop", number);
    }
    for pod in 0..4 {
        fixture.set_busy(&format!("shop-{pod}"), 40.0 / 4.0, 0.0);
    }
    fixture.pass().await;
    assert_eq!(fixture.status("shop").nfr_recommendations[0].effect, None, "it is met again");
    let (floor, changes) = (fixture.floor("shop"), fixture.status("shop").nfr_history.len());
    assert!(floor <= Some(4.0), "{floor:?}");
    for _ in 0..10 {
        fixture.restart();
        assert_eq!(fixture.pass().await, []);
    }
    assert_eq!(fixture.floor("shop"), floor);
    assert_eq!(fixture.status("shop").nfr_history.len(), changes);
}

#[tokio::test]
async fn floor_comes_down_in_steps_when_the_load_is_gone() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 60.0, 0.9);
    fixture.pass().await;
    let highest = fixture.floor("shop").unwrap();
    fixture.set_busy("shop-0", 1.0, 0.0);
    let mut floors = vec![highest];
    for _ in 0..40 {
        fixture.pass().await;
        floors.push(fixture.floor("shop").unwrap_or(1.0));
    }
    assert_eq!(floors.last(), Some(&1.0), "{floors:?}");
    for pair in floors.windows(2) {
        assert!(pair[1] <= pair[0] && pair[1] >= (pair[0] * 0.7).floor() - 1e-9, "{floors:?}");
    }
    let changes = fixture.status("shop").nfr_history;
    let at: Vec<_> = changes.iter().rev().map(|it| it.at.0.as_second()).collect();
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 120), "the cooldown: {at:?}");
}

#[tokio::test]
async fn observed_class_gets_recommendations_that_are_not_applied() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &fast());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    assert!(fixture.recommended("shop").unwrap() >= 3.0);
    assert_eq!((fixture.floor("shop"), fixture.enforcement("shop")), (None, None));
    assert!(fixture.status("shop").nfr_history.is_empty());
    assert_eq!(fixture.pass().await.len(), 0, "nothing has changed");
    let events = fixture.events();
    assert!(events.iter().all(|it| it.0 != "NFRApplied"), "{events:?}");
    // Turned on, it starts with what was recommended.
    let recommended = fixture.recommended("shop");
    fixture.edit("shop", |class| {
        class["metadata"]["annotations"] = json!({ENFORCEMENT: "enforce"});
    });
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), recommended);
    // Turned off, nothing is applied any more.
    for mode in ["observe", "off", "no such mode"] {
        fixture.edit("shop", |class| {
            class["metadata"]["annotations"] = json!({ENFORCEMENT: mode});
        });
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), None, "{mode}");
        assert_eq!(fixture.recommended("shop").is_some(), mode != "off", "{mode}");
    }
}

#[tokio::test]
async fn frozen_enforcement_keeps_what_was_applied() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    let floor = fixture.floor("shop");
    fixture.freeze.send_replace(true);
    fixture.set_busy("shop-0", 400.0, 1.0);
    fixture.pass().await;
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "EnforcementFrozen")));
    fixture.set_busy("shop-0", 0.3, 0.0);
    for _ in 0..20 {
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), floor);
    }
    // The setting freezes, too.
    fixture.freeze.send_replace(false);
    fixture.analyzer.options.frozen = true;
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), floor);
    let text = fixture.analyzer.metrics.text();
    let held = r#"crm_enforcement_held{dimension="replicas",reason="EnforcementFrozen"} 1"#;
    assert!(text.lines().any(|line| line == held), "{text}");
    fixture.analyzer.options.frozen = false;
    fixture.pass().await;
    assert!(fixture.floor("shop") < floor);
}

#[tokio::test]
async fn settings_and_the_class_limit_what_is_enforced() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.analyzer.options.enforcement.enabled = false;
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), None);
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "EnforcementDisabled")));
    fixture.analyzer.options.enforcement.enabled = true;
    fixture.edit("shop", |class| {
        class["spec"]["nfr"]["enforcement"]["dimensions"] = json!(["memory"]);
    });
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), None);
    fixture.edit("shop", |class| {
        class["spec"]["nfr"]["enforcement"]["dimensions"] = json!(["replicas"]);
        class["spec"]["functions"][0]["provision"] = json!({"min_scale": 1, "max_scale": 2});
    });
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), Some(2.0), "what the user allows");
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "LimitReached")));
    fixture.analyzer.platform = Arc::new(|| {
        let mut platform = Platform::of(Profile::Dev);
        platform.scaling.max_instances = 1;
        platform
    });
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), None, "what the settings allow");
}

#[tokio::test]
async fn class_with_a_foreign_autoscaler_is_only_advised() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    let autoscaler = json!({
        "metadata": {"name": "theirs", "namespace": "n", "uid": "theirs", "resourceVersion": "1"},
        "spec": {"scaleTargetRef": {
            "kind": "Deployment", "name": oprc_unit::names::function("shop", Some("f")),
        }},
    });
    let mut object: kube::core::DynamicObject = serde_json::from_value(autoscaler).unwrap();
    object.types = None;
    fixture.analyzer.cache.put_child(Child::of(&AUTOSCALER, &object));
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), None);
    assert!(fixture.recommended("shop").unwrap() >= 3.0);
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "ForeignAutoscaler")));
}

#[tokio::test]
async fn unknown_data_changes_no_floor() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    let floor = fixture.floor("shop");
    let healthy = fixture.script.lock().clone();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        fixture.set_busy("shop-0", value, 0.0);
        for _ in 0..10 {
            fixture.pass().await;
            assert_eq!(fixture.floor("shop"), floor, "{value}");
        }
    }
    fixture.script.lock().loads.clear();
    for _ in 0..10 {
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), floor, "empty");
    }
    *fixture.script.lock() = Script { health: Some(QueryError::Timeout), ..healthy.clone() };
    for _ in 0..10 {
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), floor, "unreachable");
    }
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "PrometheusUnavailable")));
    fixture.analyzer.provider = None;
    for _ in 0..3 {
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), floor, "not configured any more");
    }
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "PrometheusDisabled")));
}

#[tokio::test]
async fn clock_jumps_neither_skip_nor_prolong_the_cooldown() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 60.0, 0.9);
    fixture.pass().await;
    let floor = fixture.floor("shop").unwrap();
    fixture.set_busy("shop-0", 1.0, 0.0);
    // An hour back: the change is in the future.
    fixture.now.fetch_sub(3600, Ordering::SeqCst);
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), Some(floor));
    let since = fixture.status("shop").nfr_recommendations[0].since.clone().unwrap();
    assert_eq!(since.0.as_second(), fixture.now.load(Ordering::SeqCst), "it counts from now");
    let mut passes = 0;
    while fixture.floor("shop") == Some(floor) {
        passes += 1;
        assert!(passes < 10, "the cooldown ends");
        fixture.pass().await;
    }
    assert!(passes >= 2, "two minutes");
}

#[tokio::test]
async fn new_specification_keeps_the_floor() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    let floor = fixture.floor("shop");
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["image"] = json!("other");
        class["metadata"]["generation"] = json!(2);
    });
    // The new pods aren't measured yet.
    fixture.script.lock().loads.clear();
    for _ in 0..10 {
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), floor);
    }
    fixture.set_busy("shop-0", 40.0, 0.0);
    fixture.pass().await;
    assert!(fixture.floor("shop") >= floor);
    assert_eq!(fixture.status("shop").nfr_recommendations[0].generation, Some(2));
}

#[tokio::test]
async fn instances_that_do_not_start_are_reported() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 100.0, 0.9);
    for _ in 0..3 {
        fixture.pass().await;
    }
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "InstancesMissing")));
    let floor = fixture.floor("shop");
    for _ in 0..5 {
        fixture.pass().await;
        assert_eq!(fixture.floor("shop"), floor, "more wouldn't start either");
    }
}

#[tokio::test]
async fn basis_is_what_the_number_was_decided_by() {
    let mut fixture = Fixture::new();
    fixture.add("shop", &enforced());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    fixture.add_pod("shop", 1);
    fixture.add_pod("shop", 2);
    for pod in 0..3 {
        fixture.set_busy(&format!("shop-{pod}"), 38.0 / 3.0, 0.0);
    }
    assert_eq!(fixture.pass().await.len(), 1, "met again");
    for _ in 0..3 {
        assert_eq!(fixture.pass().await, [], "another basis alone");
    }
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["provision"] = json!({"max_scale": 9});
        class["metadata"]["generation"] = json!(2);
    });
    assert_eq!(fixture.pass().await.len(), 1);
    let status = fixture.status("shop");
    assert_eq!(status.nfr_recommendations[0].max, Some(9.0));
    for entries in [&status.nfr_recommendations, &status.last_applied_recommendations] {
        let basis = entries[0].basis.as_deref().unwrap();
        assert!(basis.starts_with("40.0 req/s"), "{basis}");
    }
}

#[tokio::test]
async fn instances_of_an_old_recommendation_are_given_time_to_start() {
    let mut fixture = Fixture::new();
    let mut spec = enforced();
    spec["nfr"]["enforcement"]["mode"] = json!("observe");
    fixture.add("shop", &spec);
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass().await;
    assert_eq!(fixture.floor("shop"), None);
    fixture.now.fetch_add(3600, Ordering::SeqCst);
    fixture.edit("shop", |class| class["spec"]["nfr"] = enforced()["nfr"].clone());
    fixture.pass().await;
    assert!(fixture.floor("shop").is_some());
    // The next pass is 15 s later.
    fixture.now.fetch_sub(45, Ordering::SeqCst);
    fixture.pass().await;
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));
}

#[tokio::test]
async fn correction_is_stored_while_the_floor_stays_and_survives_a_restart() {
    let mut fixture = Fixture::new();
    let mut spec = enforced();
    spec["nfr"]["enforcement"]["mode"] = json!("observe");
    fixture.add("shop", &spec);
    let correction = |fixture: &Fixture| {
        let entry = fixture.status("shop").nfr_recommendations[0].clone();
        (entry.target, entry.correction, entry.correction_at.map(|it| it.0.as_second()))
    };
    // By its CPU one pod is enough, and it is.
    fixture.set_busy("shop-0", 4.0, 0.0);
    fixture.pass().await;
    assert_eq!(correction(&fixture), (1.0, None, None));
    // At the same load it is too slow now, for which there are as many instances as there may be.
    fixture
        .edit("shop", |class| class["spec"]["functions"][0]["provision"] = json!({"max_scale": 1}));
    fixture.set_busy("shop-0", 4.0, 0.9);
    fixture.pass().await;
    let (target, factor, at) = correction(&fixture);
    assert_eq!((target, at), (1.0, Some(fixture.now.load(Ordering::SeqCst))));
    assert!(factor > Some(1.1), "{factor:?}");
    for _ in 0..5 {
        fixture.restart();
        fixture.pass().await;
        assert_eq!(correction(&fixture), (target, factor, at));
    }
    // A load that is met says nothing about a higher one.
    fixture.set_busy("shop-0", 1.0, 0.0);
    for _ in 0..5 {
        fixture.restart();
        fixture.pass().await;
        assert_eq!(correction(&fixture), (target, factor, at));
    }
}
