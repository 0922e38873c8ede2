//! What enforcement decides about functions of template `unified`.

use oprc_nfr::Stopped;

use super::{enforcement::is, *};
use crate::crd::Recommendation;

/// The bounds of the function lead to Knative.
fn unified(mode: &str) -> Value {
    json!({
        "selected_template": "unified",
        "nfr_requirements": {"max_latency_ms": 200},
        "nfr": {"enforcement": {"mode": mode, "dimensions": ["template"]}},
    })
}

impl Fixture {
    fn with_unified(mode: &str) -> Self {
        let mut fixture = Self::new();
        fixture.analyzer.options.range = Duration::from_mins(10);
        fixture.analyzer.platform = Arc::new(|| {
            let mut platform = Platform::of(Profile::Full);
            platform.knative = true;
            platform
        });
        fixture.add("shop", &unified(mode));
        fixture.edit("shop", |class| {
            class["spec"]["functions"][0]["provision"] = json!({"min_scale": 0, "max_scale": 8});
        });
        fixture.set_busy("shop-0", 40.0, 0.0);
        fixture
    }

    /// One pass, after the reconciler reported what runs.
    async fn pass_with(&mut self, runs_as: &str) -> Vec<(String, Value)> {
        self.edit("shop", |class| {
            class["status"]["phase"] = json!("Available");
            class["status"]["observedGeneration"] = class["metadata"]["generation"].clone();
            class["status"]["functions"] = json!([{"key": "f", "runs_as": runs_as, "ready": true}]);
        });
        self.pass().await
    }

    fn entry(&self) -> Option<Recommendation> {
        let mut all = self.status("shop").nfr_recommendations.into_iter();
        all.find(|it| it.dimension == "template")
    }

    fn stopped(&self) -> Option<Stopped> {
        self.entry().unwrap().effect.unwrap().reason()
    }

    fn recommended_template(&self) -> Option<String> {
        self.entry()?.template
    }

    fn applied_template(&self) -> Option<String> {
        let mut all = self.status("shop").last_applied_recommendations.into_iter();
        all.find(|it| it.dimension == "template")?.template
    }
}

fn deployment() -> String {
    "k8s_deployment".to_owned()
}

#[tokio::test]
async fn steady_load_is_recommended_a_deployment_and_then_migrated() {
    let mut fixture = Fixture::with_unified("observe");
    fixture.pass_with("knative").await;
    assert_eq!(
        (fixture.recommended_template(), fixture.applied_template()),
        (Some(deployment()), None)
    );
    let live = fixture.analyzer.observations.latest();
    let class = &live.class(&("n".to_owned(), "shop".to_owned())).unwrap()["f"];
    let decision = class.decisions.iter().find(|it| it.dimension == Dimension::Template).unwrap();
    assert_eq!((decision.current, decision.target), (1.0, 0.0));

    fixture.edit("shop", |class| class["spec"]["nfr"] = unified("enforce")["nfr"].clone());
    fixture.pass_with("knative").await;
    assert_eq!(fixture.applied_template(), Some(deployment()));
    let (status, entry) = (fixture.status("shop"), fixture.entry());
    let change = &status.nfr_history[0];
    assert_eq!((change.from, change.to), (1.0, 0.0));
    assert_eq!(status.last_applied_at.as_ref(), Some(&change.at));
    let basis = "40.0 to 40.0 req/s all the 10 min, 2.0 instances always busy → k8s_deployment";
    let events = fixture.events();
    let event = format!("f: template knative → k8s_deployment: {basis}");
    assert!(events.contains(&is("NFRApplied", &event)), "{events:?}");
    assert_eq!(fixture.enforcement("shop"), Some(is("True", "Enforced")));

    for _ in 0..5 {
        fixture.restart();
        fixture.pass_with("k8s_deployment").await;
        assert_eq!(fixture.status("shop").nfr_history, status.nfr_history);
        assert_eq!(fixture.entry(), entry);
    }
    // Idle, it returns to what it is declared as, but only after the cooldown.
    fixture.set_busy("shop-0", 0.0, 0.0);
    fixture.pass_with("k8s_deployment").await;
    assert_eq!(fixture.applied_template(), Some(deployment()));
    let text = fixture.analyzer.metrics.text();
    let held = r#"crm_enforcement_held{dimension="template",reason="Cooldown"} 1"#;
    assert!(text.lines().any(|line| line == held), "{text}");
    fixture.now.fetch_add(3600, Ordering::SeqCst);
    fixture.pass_with("k8s_deployment").await;
    assert_eq!(fixture.applied_template(), None);
    assert_eq!(fixture.recommended_template().as_deref(), Some("knative"));
    assert_eq!(fixture.status("shop").nfr_history.len(), 2);
}

#[tokio::test]
async fn one_instance_is_no_floor_of_a_function_that_scales_to_zero() {
    let mut fixture = Fixture::with_unified("enforce");
    fixture.edit("shop", |class| {
        class["spec"]["nfr"]["enforcement"]["dimensions"] = json!(["replicas"]);
    });
    fixture.set_busy("shop-0", 1.0, 0.0);
    for _ in 0..3 {
        fixture.pass_with("knative").await;
    }
    let status = fixture.status("shop");
    assert!(status.nfr_recommendations.iter().any(|it| it.dimension == "replicas"), "{status:?}");
    assert_eq!((status.last_applied_recommendations, status.nfr_history), Default::default());
    fixture.set_busy("shop-0", 40.0, 0.9);
    fixture.pass_with("knative").await;
    let status = fixture.status("shop");
    assert!(status.last_applied_recommendations[0].target >= 3.0, "{status:?}");
    assert_eq!((status.nfr_history.len(), status.nfr_history[0].from), (1, 0.0));
}

#[tokio::test]
async fn migration_that_violates_a_requirement_is_undone_and_not_repeated() {
    let mut fixture = Fixture::with_unified("enforce");
    fixture.pass_with("knative").await;
    assert_eq!(fixture.applied_template(), Some(deployment()));
    fixture.script.lock().slow_from = fixture.now.load(Ordering::SeqCst) + 30;
    fixture.set_busy("shop-0", 40.0, 0.9);
    for _ in 0..5 {
        fixture.pass_with("k8s_deployment").await;
    }
    assert_eq!(fixture.applied_template(), None);
    assert_eq!(fixture.status("shop").nfr_history.len(), 2);
    assert_eq!(fixture.stopped(), Some(Stopped::Violated));
    fixture.set_busy("shop-0", 40.0, 0.0);
    for _ in 0..5 {
        fixture.now.fetch_add(40_000, Ordering::SeqCst);
        fixture.pass_with("knative").await;
        assert_eq!(fixture.applied_template(), None);
    }
    assert_eq!(fixture.enforcement("shop"), Some(is("False", "NoEffect")));
    // A new specification may behave differently.
    fixture.edit("shop", |class| {
        class["spec"]["functions"][0]["image"] = json!("other");
        class["metadata"]["generation"] = json!(2);
    });
    fixture.pass_with("knative").await;
    assert_eq!(fixture.applied_template(), Some(deployment()));
}

#[tokio::test]
async fn migration_that_does_not_become_ready_is_undone() {
    let mut fixture = Fixture::with_unified("enforce");
    for minute in 1..=12 {
        fixture.pass_with("knative").await;
        let expected = if minute <= 11 { Some(deployment()) } else { None };
        assert_eq!(fixture.applied_template(), expected, "{minute}");
    }
    assert_eq!(fixture.stopped(), Some(Stopped::NotReady));
}

#[tokio::test]
async fn function_without_a_choice_or_metrics_is_not_migrated() {
    let mut fixture = Fixture::with_unified("enforce");
    // Not Available.
    fixture.pass().await;
    assert_eq!(fixture.recommended_template(), None);
    let loads = std::mem::take(&mut fixture.script.lock().loads);
    fixture.pass_with("knative").await;
    assert_eq!(fixture.recommended_template(), None);
    fixture.script.lock().loads = loads;
    fixture.pass_with("knative").await;
    assert_eq!(fixture.applied_template(), Some(deployment()));
    fixture.script.lock().loads.clear();
    for _ in 0..20 {
        fixture.pass_with("k8s_deployment").await;
        assert_eq!(fixture.applied_template(), Some(deployment()), "unknown changes nothing");
    }
    fixture.edit("shop", |class| {
        class["spec"]["selected_template"] = json!("knative");
        class["metadata"]["generation"] = json!(2);
    });
    fixture.pass_with("knative").await;
    assert_eq!((fixture.applied_template(), fixture.recommended_template()), (None, None));
}
