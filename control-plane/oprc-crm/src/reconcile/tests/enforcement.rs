//! What enforcement decided is rendered, and nothing else changes by it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{cluster::Cluster, specs};
use crate::{
    crd::{AVAILABLE, Phase},
    kinds::{AUTOSCALER, DEPLOYMENT, KNATIVE_SERVICE, Kind},
    reconcile::revision_scale::RevisionScale,
};

const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";

impl Cluster {
    fn set_floor(&mut self, target: f64) {
        self.edit_status(|status| {
            status["last_applied_recommendations"] =
                json!([{"component": "alpha", "dimension": "replicas", "target": target}]);
        });
        self.converge();
    }

    fn only(&self, kind: &Kind) -> &Value {
        let keys = self.own_keys();
        let key = keys.iter().find(|(of, _)| of == kind).unwrap();
        self.object(key).unwrap()
    }
}

fn with_bounds(template: &str, bounds: &Value) -> Value {
    let mut spec = specs::one(template);
    spec["functions"][0]["provision"] = bounds.clone();
    spec
}

#[test]
fn floor_is_the_number_of_replicas_without_an_autoscaler() {
    let mut cluster = Cluster::with(&with_bounds("k8s_deployment", &json!({"min_scale": 2})));
    let template = cluster.only(&DEPLOYMENT)["spec"]["template"].clone();
    for (floor, replicas) in [(5.0, 5), (7.0, 7), (1.0, 2), (1e9, 50), (-3.0, 2)] {
        cluster.set_floor(floor);
        let deployment = cluster.only(&DEPLOYMENT);
        assert_eq!(deployment["spec"]["replicas"], json!(replicas), "{floor}");
        assert_eq!(deployment["spec"]["template"], template, "no pod is replaced");
        assert_eq!(cluster.phase().0, Phase::Available);
    }
}

#[test]
fn floor_is_the_minimum_of_an_autoscaler() {
    let bounds = json!({"min_scale": 1, "max_scale": 6});
    let mut cluster = Cluster::new();
    cluster.environment.features.hpa = true;
    cluster.set_spec(&with_bounds("k8s_deployment", &bounds));
    cluster.converge();
    for (floor, min) in [(4.0, 4), (9.0, 6), (2.0, 2)] {
        cluster.set_floor(floor);
        let spec = &cluster.only(&AUTOSCALER)["spec"];
        assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(min), &json!(6)));
    }
}

#[test]
fn class_is_available_without_what_enforcement_adds() {
    let mut cluster = Cluster::with(&specs::one("k8s_deployment"));
    // The cluster has no room for more.
    cluster.stopped.insert(DEPLOYMENT);
    let before = cluster.only(&DEPLOYMENT)["status"].clone();
    cluster.set_floor(5.0);
    let deployment = cluster.own_keys().into_iter().find(|it| it.0 == DEPLOYMENT).unwrap();
    cluster.edit(&deployment, "kube-controller-manager", |it| {
        it["status"] = before;
        it["status"]["observedGeneration"] = it["metadata"]["generation"].clone();
    });
    cluster.converge();
    assert_eq!(cluster.only(&DEPLOYMENT)["spec"]["replicas"], json!(5));
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn floor_outlives_a_change_of_the_specification() {
    let mut cluster = Cluster::with(&specs::one("k8s_deployment"));
    cluster.set_floor(4.0);
    let mut spec = specs::one("k8s_deployment");
    spec["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(cluster.only(&DEPLOYMENT)["spec"]["replicas"], json!(4));
}

#[test]
fn floor_of_knative_changes_the_revision_and_not_the_template() {
    let mut cluster = Cluster::with(&with_bounds("knative", &json!({"min_scale": 1})));
    let template = |cluster: &Cluster| cluster.only(&KNATIVE_SERVICE)["spec"]["template"].clone();
    let first = template(&cluster);
    assert_eq!(first["metadata"]["annotations"][MIN_SCALE], "1");
    let revision = |cluster: &Cluster| {
        let status = &cluster.only(&KNATIVE_SERVICE)["status"];
        status["latestReadyRevisionName"].as_str().unwrap().to_owned()
    };
    for floor in ["4", "2", "1"] {
        cluster.set_floor(floor.parse().unwrap());
        assert_eq!(template(&cluster), first, "no new revision");
        let expected = RevisionScale { revision: revision(&cluster), min_scale: floor.to_owned() };
        assert_eq!(std::mem::take(&mut cluster.revision_scales), [expected]);
        cluster.converge();
        assert_eq!(cluster.revision_scales, [], "once");
    }
    // A new revision starts with the floor.
    cluster.set_floor(3.0);
    let mut spec = with_bounds("knative", &json!({"min_scale": 1}));
    spec["functions"][0]["image"] = json!("img:2");
    cluster.revision_scales.clear();
    cluster.set_spec(&spec);
    cluster.converge();
    assert_eq!(template(&cluster)["metadata"]["annotations"][MIN_SCALE], "3");
    assert_eq!(cluster.revision_scales, []);
}

#[test]
fn decision_on_the_template_switches_the_workload_and_keeps_the_floor() {
    let spec = |template: &str| with_bounds(template, &json!({"min_scale": 1}));
    let mut cluster = Cluster::with(&spec("unified"));
    cluster.edit_status(|status| {
        status["last_applied_recommendations"] = json!([
            {"component": "alpha", "dimension": "replicas", "target": 3},
            {"component": "alpha", "dimension": "template", "target": 1, "template": "knative"},
        ]);
    });
    cluster.stopped.insert(KNATIVE_SERVICE);
    for _ in 0..3 {
        cluster.reconcile();
        cluster.run_controllers();
        cluster.advance(Duration::from_secs(30));
    }
    assert_eq!(cluster.only(&DEPLOYMENT)["spec"]["replicas"], json!(1), "it serves as before");
    assert_eq!(cluster.status().functions[0].runs_as.as_deref(), Some("k8s_deployment"));
    assert!(cluster.status().is_true(AVAILABLE), "the former workload serves");
    cluster.stopped.clear();
    cluster.converge();
    assert_eq!(cluster.names(), ["KnativeService shop--alpha-kn"]);
    assert_eq!(cluster.phase().0, Phase::Available);
    let template = &cluster.only(&KNATIVE_SERVICE)["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"][MIN_SCALE], "3");
    // Without a choice, the decision doesn't count.
    cluster.set_spec(&spec("k8s_deployment"));
    cluster.converge();
    assert_eq!(cluster.only(&DEPLOYMENT)["spec"]["replicas"], json!(3));
    cluster.set_spec(&spec("unified"));
    cluster.converge();
    assert_eq!(cluster.names(), ["KnativeService shop--alpha-kn"]);
    cluster.environment.features.knative = false;
    cluster.converge();
    assert_eq!(cluster.only(&DEPLOYMENT)["spec"]["replicas"], json!(3));
}
