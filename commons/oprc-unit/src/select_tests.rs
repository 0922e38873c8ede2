//! Selection of templates by scores, constraints and requests.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::class::{Identity, validate};

/// A platform with all features enabled.
fn platform() -> Platform {
    let mut platform = Platform::of(Profile::Full);
    platform.knative = true;
    platform
}

fn class(spec: &Value) -> ValidClass {
    let identity = Identity {
        name: "shop".to_owned(),
        base: "shop".to_owned(),
        namespace: "ns".to_owned(),
        uid: "uid".to_owned(),
        generation: 3,
        deployment_id: "shop".to_owned(),
        environment: None,
    };
    validate(
        platform().profile,
        identity,
        &serde_json::from_value(spec.clone()).unwrap(),
        &platform(),
    )
    .unwrap()
}

fn choose(spec: &Value, platform: &Platform) -> Result<Selection, Rejection> {
    select(&class(spec), platform, None)
}

/// A class with one function with these bounds and requirements.
fn function(provision: &Value, requirements: &Value) -> Value {
    json!({"functions": [
        {"key": "f", "image": "img", "provision": provision, "requirements": requirements},
    ]})
}

/// Scores of knative, k8s_deployment and unified, in this order.
fn scores(selection: &Selection) -> [Option<f64>; 3] {
    ["knative", "k8s_deployment", "unified"].map(|name| {
        let found = selection.scores.iter().find(|it| it.template == name);
        found.unwrap_or_else(|| panic!("{name} is on the sheet")).score
    })
}

fn assert_score(provision: &Value, requirements: &Value, expected: [f64; 3]) {
    let selection = choose(&function(provision, requirements), &platform()).unwrap();
    let what = format!("{provision} {requirements}");
    for (score, expected) in scores(&selection).into_iter().zip(expected) {
        assert!((score.unwrap() - expected).abs() < 1e-9, "{what}: {:?}", selection.scores);
    }
}

#[test]
fn scores_each_criterion() {
    let none = json!({});
    // Throughput: low, high, and the mean between, ends included.
    assert_score(&none, &json!({"min_throughput_rps": 99}), [9.0, 6.0, 8.0]);
    assert_score(&none, &json!({"min_throughput_rps": 1001}), [4.0, 9.0, 7.0]);
    assert_score(&none, &json!({"min_throughput_rps": 100}), [6.5, 7.5, 7.5]);
    assert_score(&none, &json!({"min_throughput_rps": 1000}), [6.5, 7.5, 7.5]);
    // Latency: tight, moderate.
    assert_score(&none, &json!({"max_latency_ms": 49}), [3.0, 9.0, 6.0]);
    assert_score(&none, &json!({"max_latency_ms": 50}), [8.0, 9.0, 8.0]);
    assert_score(&none, &json!({"max_latency_ms": 500}), [8.0, 9.0, 8.0]);
    // Steady: bounds that aren't bursty.
    assert_score(&json!({"min_scale": 2, "max_scale": 7}), &none, [5.0, 9.0, 7.0]);
    assert_score(&json!({"min_scale": 2}), &none, [5.0, 9.0, 7.0]);
    // Burst: four times the floor, which is at least 1.
    assert_score(&json!({"min_scale": 2, "max_scale": 8}), &none, [9.0, 5.0, 8.0]);
    assert_score(&json!({"max_scale": 4}), &none, [9.0, 5.0, 8.0]);
    assert_score(&json!({"max_scale": 3}), &none, [5.0, 9.0, 7.0]);
}

#[test]
fn score_is_the_mean_of_the_criteria() {
    // Cost and burst.
    assert_score(&json!({"min_scale": 0, "max_scale": 4}), &json!({}), [9.0, 4.0, 7.0]);
    // Cost and steady.
    assert_score(&json!({"min_scale": 0, "max_scale": 3}), &json!({}), [7.0, 6.0, 6.5]);
    // Cost, burst, high throughput and tight latency.
    assert_score(
        &json!({"min_scale": 0, "max_scale": 4}),
        &json!({"min_throughput_rps": 5000, "max_latency_ms": 10}),
        [25.0 / 4.0, 26.0 / 4.0, 27.0 / 4.0],
    );
}

#[test]
fn standby_functions_are_scored_by_cost() {
    let mut spec = function(&json!({}), &json!({}));
    spec["standby_functions"] = json!(["f"]);
    let selection = choose(&spec, &platform()).unwrap();
    assert_eq!(scores(&selection), [Some(9.0), Some(3.0), Some(6.0)]);
    assert_eq!(selection.template, Template::Knative);
}

#[test]
fn the_most_demanding_function_determines_the_score() {
    let spec = json!({"functions": [
        {"key": "easy", "image": "i", "requirements": {"min_throughput_rps": 1, "max_latency_ms": 400}},
        {"key": "hard", "image": "i", "requirements": {"min_throughput_rps": 2000, "max_latency_ms": 20}},
    ]});
    let selection = choose(&spec, &platform()).unwrap();
    assert_eq!(scores(&selection), [Some(3.5), Some(9.0), Some(6.5)]);
    assert_eq!(selection.template, Template::K8sDeployment);
}

#[test]
fn functions_inherit_requirements_of_the_class() {
    let mut spec = function(&json!({}), &json!({}));
    spec["nfr_requirements"] = json!({"min_throughput_rps": 10});
    assert_eq!(scores(&choose(&spec, &platform()).unwrap()), [Some(9.0), Some(6.0), Some(8.0)]);
}

#[test]
fn selects_the_best_score() {
    let by = |provision: Value, requirements: Value| {
        choose(&function(&provision, &requirements), &platform()).unwrap().template
    };
    assert_eq!(by(json!({"min_scale": 0, "max_scale": 8}), json!({})), Template::Knative);
    assert_eq!(by(json!({}), json!({"max_latency_ms": 20})), Template::K8sDeployment);
    let both = json!({"min_throughput_rps": 5000, "max_latency_ms": 10});
    assert_eq!(by(json!({"min_scale": 0, "max_scale": 4}), both), Template::Unified);
}

#[test]
fn ties_are_broken_by_the_default_then_by_name() {
    // Between 100 and 1000 requests/s, k8s_deployment and unified have equal scores.
    let spec = function(&json!({}), &json!({"min_throughput_rps": 500}));
    let mut platform = platform();
    assert_eq!(choose(&spec, &platform).unwrap().template, Template::K8sDeployment);
    platform.default_template = Some("unified".to_owned());
    assert_eq!(choose(&spec, &platform).unwrap().template, Template::Unified);
    // Neither is the default: the name decides.
    platform.default_template = Some("knative".to_owned());
    assert_eq!(choose(&spec, &platform).unwrap().template, Template::K8sDeployment);
}

#[test]
fn selects_the_default_if_no_criterion_applies() {
    let spec = function(&json!({}), &json!({"max_latency_ms": 501}));
    let mut platform = platform();
    let selection = choose(&spec, &platform).unwrap();
    assert_eq!(scores(&selection), [None, None, None]);
    assert_eq!(selection.template, Template::K8sDeployment);
    platform.default_template = Some("knative".to_owned());
    assert_eq!(choose(&spec, &platform).unwrap().template, Template::Knative);
    // A default that is rejected is skipped.
    platform.knative = false;
    assert_eq!(choose(&spec, &platform).unwrap().template, Template::K8sDeployment);
}

/// A class with `hard_latency_ms`.
fn hard(limit: i32, template: Option<&str>, provision: &Value) -> Value {
    let mut spec = function(provision, &json!({}));
    spec["constraints"] = json!({"hard_latency_ms": limit});
    if let Some(template) = template {
        spec["selected_template"] = json!(template);
    }
    spec
}

#[test]
fn rejects_templates_that_cannot_guarantee_the_latency() {
    let allowed = |limit, template, provision: Value| {
        choose(&hard(limit, Some(template), &provision), &platform()).is_ok()
    };
    assert!(allowed(1, "k8s_deployment", json!({})));
    // A cold start takes seconds.
    assert!(!allowed(2999, "knative", json!({})));
    assert!(allowed(3000, "knative", json!({})));
    assert!(!allowed(2999, "knative", json!({"min_scale": 0})));
    assert!(allowed(10, "knative", json!({"min_scale": 1})));
    assert!(!allowed(9, "knative", json!({"min_scale": 1})));
    // Unified selects a shape for each function.
    assert!(allowed(1, "unified", json!({"min_scale": 0, "max_scale": 8})));
}

#[test]
fn standby_functions_have_the_cold_start_latency() {
    let mut spec = hard(100, Some("knative"), &json!({"min_scale": 2}));
    spec["standby_functions"] = json!(["f"]);
    assert!(choose(&spec, &platform()).is_err());
}

#[test]
fn constraints_take_precedence_over_scores() {
    let selection = choose(&hard(100, None, &json!({"min_scale": 0, "max_scale": 8})), &platform());
    let selection = selection.unwrap();
    assert_eq!(selection.template, Template::Unified);
    let knative = selection.scores.iter().find(|it| it.template == "knative").unwrap();
    assert!(knative.rejected.as_ref().unwrap().contains("3000 ms"), "{knative:?}");
    assert_eq!(knative.score, Some(9.0), "the sheet says what it would have been worth");
}

#[test]
fn explains_why_no_template_fits() {
    let mut platform = platform();
    platform.floors.k8s_deployment = 5;
    let rejection = choose(&hard(2, None, &json!({})), &platform).unwrap_err();
    assert_eq!(rejection.reason.as_str(), "NoSuitableTemplate");
    assert!(rejection.precondition);
    for name in ["k8s_deployment: ", "knative: ", "unified: "] {
        assert!(rejection.message.contains(name), "{}", rejection.message);
    }
}

fn requesting(template: &str) -> Value {
    // Knative has the best score.
    let mut spec = function(&json!({"min_scale": 0, "max_scale": 8}), &json!({}));
    spec["selected_template"] = json!(template);
    spec
}

#[test]
fn the_requested_template_takes_precedence_over_scores() {
    for (name, template, profile) in [
        ("k8s_deployment", Template::K8sDeployment, Profile::Full),
        ("deployment", Template::K8sDeployment, Profile::Full),
        ("k8s-deployment", Template::K8sDeployment, Profile::Full),
        ("knative", Template::Knative, Profile::Full),
        ("unified", Template::Unified, Profile::Full),
        ("job", Template::Job, Profile::Full),
        ("dev", Template::K8sDeployment, Profile::Dev),
        ("edge", Template::K8sDeployment, Profile::Edge),
        ("full", Template::K8sDeployment, Profile::Full),
        ("prod", Template::K8sDeployment, Profile::Full),
        ("cloud", Template::K8sDeployment, Profile::Full),
    ] {
        let selection = choose(&requesting(name), &platform()).unwrap();
        assert_eq!((selection.template, selection.profile), (template, profile), "{name}");
        assert!(selection.basis.contains(name), "{}", selection.basis);
        assert_eq!(scores(&selection)[0], Some(9.0), "scores are kept");
    }
    let mut hint = requesting("x");
    hint.as_object_mut().unwrap().remove("selected_template");
    hint["template_hint"] = json!("job");
    assert_eq!(choose(&hint, &platform()).unwrap().template, Template::Job);
}

#[test]
fn rejects_unknown_templates() {
    for name in ["Knative", "k8s", "full "] {
        let rejection = choose(&requesting(name), &platform()).unwrap_err();
        assert_eq!(rejection.reason.as_str(), "UnknownTemplate", "{name:?}");
        assert_eq!(rejection.violations[0].field, "selected_template");
        assert!(
            rejection.message.contains("k8s_deployment, knative, unified"),
            "{}",
            rejection.message
        );
    }
}

#[test]
fn rejects_requested_templates_that_do_not_fit() {
    let rejected_message = |spec: &Value, platform: &Platform| {
        let rejection = choose(spec, platform).unwrap_err();
        assert_eq!(rejection.reason.as_str(), "TemplateRejected");
        rejection.message
    };
    let mut without = platform();
    without.knative = false;
    assert!(rejected_message(&requesting("knative"), &without).contains("Knative Serving isn"));
    let mut off = platform();
    off.features.knative = false;
    assert!(rejected_message(&requesting("knative"), &off).contains("features.knative"));

    let mut custom = requesting("job");
    custom["functions"][0]["type"] = json!("CUSTOM");
    assert!(rejected_message(&custom, &platform()).contains("TASK"));

    let mut claim = requesting("knative");
    claim["functions"][0]["provision"]["volume_mounts"] =
        json!([{"mount_path": "/d", "claim": "c"}]);
    assert!(rejected_message(&claim, &platform()).contains("volume claim"));
}

/// Knative's webhook rejects ports and variables that its queue proxy uses.
#[test]
fn functions_with_ports_or_variables_of_knative_do_not_run_there() {
    let bursty = function(&json!({"min_scale": 0, "max_scale": 8}), &json!({}));
    assert_eq!(choose(&bursty, &platform()).unwrap().template, Template::Knative);
    let (mut port, mut variable) = (bursty.clone(), bursty);
    port["functions"][0]["port"] = json!(9090);
    variable["functions"][0]["provision"]["env"] = json!([{"name": "K_SERVICE", "value": "x"}]);
    for (spec, why) in [(port, "port 9090"), (variable, "K_SERVICE")] {
        let chosen = choose(&spec, &platform()).unwrap();
        assert_ne!(chosen.template, Template::Knative);
        let sheet = chosen.scores.iter().find(|it| it.template == "knative").unwrap();
        assert!(sheet.rejected.as_ref().unwrap().contains(why), "{sheet:?}");
        let shape = shape_under(Template::Unified, &class(&spec).functions[0], &platform());
        assert_eq!(shape, Shape::Deployment);
        let mut asked = spec;
        asked["selected_template"] = json!("knative");
        let rejection = choose(&asked, &platform()).unwrap_err();
        assert!(rejection.message.contains(why), "{rejection:?}");
    }
}

/// Knative rejects timeouts above its configured maximum, by default 10 minutes.
#[test]
fn functions_with_longer_timeouts_than_knative_allows_do_not_run_there() {
    let spec = |timeout_ms: i32| {
        let mut spec = function(&json!({"min_scale": 0, "max_scale": 8}), &json!({}));
        spec["functions"][0]["config"] = json!({"timeout_ms": timeout_ms});
        spec
    };
    let shape = |timeout_ms: i32, platform: &Platform| {
        let class = class(&spec(timeout_ms));
        shape_under(Template::Unified, &class.functions[0], platform)
    };
    let fits = choose(&spec(600_000), &platform()).unwrap();
    assert_eq!(fits.template, Template::Knative);
    assert_eq!(shape(600_000, &platform()), Shape::Knative);

    let longer = choose(&spec(600_001), &platform()).unwrap();
    assert_ne!(longer.template, Template::Knative);
    let sheet = longer.scores.iter().find(|it| it.template == "knative").unwrap();
    assert!(sheet.rejected.as_ref().unwrap().contains("knative_max_timeout"), "{sheet:?}");
    assert_eq!(shape(600_001, &platform()), Shape::Deployment);
    let mut asked = spec(600_001);
    asked["selected_template"] = json!("knative");
    assert_eq!(choose(&asked, &platform()).unwrap_err().reason.as_str(), "TemplateRejected");

    let mut patient = platform();
    patient.knative_timeout = std::time::Duration::from_hours(1);
    assert_eq!(choose(&spec(3_600_000), &patient).unwrap().template, Template::Knative);
    assert_eq!(shape(3_600_000, &patient), Shape::Knative);
}

fn previous(template: &str, generation: i64) -> SelectionStatus {
    SelectionStatus {
        template: template.to_owned(),
        profile: "full".to_owned(),
        generation,
        basis: "as before".to_owned(),
        scores: Vec::new(),
    }
}

#[test]
fn a_selection_is_kept_for_its_generation() {
    // Knative is installed after the class was created.
    let class = class(&function(&json!({"min_scale": 0, "max_scale": 8}), &json!({})));
    let with = |before: &SelectionStatus, platform: &Platform| {
        select(&class, platform, Some(before)).unwrap()
    };
    let kept = with(&previous("k8s_deployment", 3), &platform());
    assert_eq!((kept.template, kept.basis.as_str()), (Template::K8sDeployment, "as before"));
    // Another generation gets a new selection.
    assert_eq!(with(&previous("k8s_deployment", 2), &platform()).template, Template::Knative);
    // A template that is rejected by now is replaced.
    let mut without = platform();
    without.knative = false;
    assert_ne!(with(&previous("knative", 3), &without).template, Template::Knative);
    // An unknown template is replaced.
    assert_eq!(with(&previous("nonsense", 3), &platform()).template, Template::Knative);
}

#[test]
fn a_requested_template_replaces_an_earlier_selection() {
    let class = class(&requesting("unified"));
    let selection = select(&class, &platform(), Some(&previous("knative", 3))).unwrap();
    assert_eq!(selection.template, Template::Unified);
}

#[test]
fn unified_selects_a_shape_for_each_function() {
    let shape = |provision: Value, requirements: Value, platform: &Platform| {
        let class = class(&function(&provision, &requirements));
        shape_under(Template::Unified, &class.functions[0], platform)
    };
    let all = platform();
    let bursty = json!({"min_scale": 1, "max_scale": 4});
    assert_eq!(shape(bursty.clone(), json!({}), &all), Shape::Knative);
    assert_eq!(shape(json!({"min_scale": 0}), json!({}), &all), Shape::Knative);
    assert_eq!(shape(bursty.clone(), json!({"max_latency_ms": 49}), &all), Shape::Deployment);
    assert_eq!(shape(bursty.clone(), json!({"max_latency_ms": 50}), &all), Shape::Knative);
    assert_eq!(shape(json!({"min_scale": 2}), json!({}), &all), Shape::Deployment);
    assert_eq!(shape(json!({}), json!({}), &all), Shape::Deployment);
    let mut without = platform();
    without.knative = false;
    assert_eq!(shape(bursty, json!({}), &without), Shape::Deployment);
}

#[test]
fn a_decision_counts_only_where_unified_leaves_a_choice() {
    use Shape::{Deployment, Knative};
    let mut without = platform();
    without.features.knative = false;
    let (steady, bursty) = (json!({"min_scale": 2}), json!({"min_scale": 0, "max_scale": 4}));
    let check = |spec: &Value, platform: &Platform, declared: Shape, may: Option<Shape>| {
        let class = class(spec);
        let function = &class.functions[0];
        assert_eq!(alternative_shape(Template::Unified, function, platform), may, "{spec}");
        for decided in [None, Some(Deployment), Some(Knative), Some(Shape::Job)] {
            let shape = shape_with(Template::Unified, function, platform, decided);
            let expected = if decided == may { decided.unwrap_or(declared) } else { declared };
            assert_eq!(shape, expected, "{decided:?}: {spec}");
        }
        for template in [Template::K8sDeployment, Template::Knative, Template::Job] {
            assert_eq!(alternative_shape(template, function, platform), None);
        }
    };
    let limited = |provision: &Value, latency: i32, hard: i32| {
        let mut spec = function(provision, &json!({"max_latency_ms": latency}));
        spec["functions"][0]["constraints"] = json!({"hard_latency_ms": hard});
        spec
    };
    let plain = |provision: &Value| function(provision, &json!({}));
    check(&plain(&steady), &platform(), Deployment, Some(Knative));
    check(&plain(&bursty), &platform(), Knative, Some(Deployment));
    check(&plain(&steady), &without, Deployment, None);
    check(&plain(&bursty), &without, Deployment, None);
    // Warm, Knative takes 10 ms; from zero 3 s.
    check(&limited(&steady, 50, 3000), &platform(), Deployment, Some(Knative));
    check(&limited(&steady, 49, 3000), &platform(), Deployment, None);
    check(&limited(&json!({}), 3000, 3000), &platform(), Deployment, Some(Knative));
    check(&limited(&json!({}), 2999, 3000), &platform(), Deployment, None);
    check(&limited(&json!({}), 3000, 2999), &platform(), Deployment, None);
    let mut breaker = limited(&steady, 50, 3000);
    breaker["functions"][0]["constraints"]["circuit_breaker"] = json!(true);
    check(&breaker, &platform(), Deployment, None);
    let mut port = plain(&steady);
    port["functions"][0]["port"] = json!(9090);
    check(&port, &platform(), Deployment, None);
}
