//! Rollback to the specification that was Available last, if the class wants it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{super::Action, cluster::Cluster};
use crate::{
    crd::Phase,
    kinds::{DEPLOYMENT, STATEFUL_SET},
    reason::Reason,
};

fn spec(image: &str, rollback: bool) -> Value {
    json!({
        "selected_template": "dev",
        "functions": [{"key": "alpha", "image": image}],
        "rollout": {"rollback": rollback, "progress_deadline_seconds": 60},
    })
}

fn image(cluster: &Cluster, name: &str) -> String {
    let object = cluster.object(&(DEPLOYMENT, name.to_owned())).unwrap();
    object["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

fn condition(cluster: &Cluster, name: &str) -> (String, String) {
    let all = cluster.status().conditions;
    let found = all.iter().find(|it| it.type_ == name).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn an_update_that_never_becomes_ready_is_rolled_back() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.set_spec(&spec("broken", true));
    cluster.reconcile();
    cluster.run_controllers();
    cluster.advance(Duration::from_secs(50));
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Progressing, "there is time left");
    assert_eq!(image(&cluster, "shop--alpha"), "broken");

    cluster.advance(Duration::from_secs(20));
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(cluster.status().rolled_back, Some(2), "stored before it is done");
    assert_eq!(image(&cluster, "shop--alpha"), "broken");

    cluster.reconcile();
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(condition(&cluster, "Available"), pair("True", "Available"), "the old pods serve");

    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(condition(&cluster, "Available"), pair("True", "RolledBack"));
    assert_eq!(condition(&cluster, "Degraded"), pair("True", "RolledBack"));
    assert_eq!(cluster.status().observed_generation, Some(2));
    assert!(cluster.events.iter().any(|it| it.warning && it.reason == Reason::RolledBack));
}

/// A second function would need an object that the quota has no room for.
#[test]
fn an_update_that_waits_for_a_quota_too_long_is_rolled_back() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    let mut more = spec("img:1", true);
    let mut function = more["functions"][0].clone();
    function["key"] = "beta".into();
    more["functions"].as_array_mut().unwrap().push(function);
    cluster.over_quota.insert(DEPLOYMENT);
    cluster.set_spec(&more);
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Applying, "QuotaExceeded".to_owned()));
    cluster.advance(Duration::from_secs(70));
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "QuotaExceeded".to_owned()));
    assert_eq!(cluster.status().rolled_back, Some(2));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(condition(&cluster, "Available"), pair("True", "RolledBack"));
}

#[test]
fn a_newer_specification_is_tried_again() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.set_spec(&spec("broken", true));
    cluster.converge();
    cluster.set_spec(&spec("img:3", true));
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(image(&cluster, "shop--alpha"), "img:3");
    assert_eq!(cluster.status().rolled_back, None);
    assert_eq!(condition(&cluster, "Degraded").0, "False");

    // The next rollback is to this one.
    cluster.set_spec(&spec("broken", true));
    cluster.converge();
    assert_eq!(image(&cluster, "shop--alpha"), "img:3");
}

#[test]
fn nothing_is_rolled_back_unless_the_class_wants_it() {
    let mut cluster = Cluster::with(&spec("img:1", false));
    cluster.set_spec(&spec("broken", false));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(image(&cluster, "shop--alpha"), "broken");
}

#[test]
fn a_class_that_was_never_available_is_not_rolled_back() {
    let mut cluster = Cluster::with(&spec("broken", true));
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(cluster.status().rolled_back, None);
    // The next specification is tried.
    cluster.set_spec(&spec("img:1", true));
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_rollback_deletes_what_was_added_and_restores_what_was_changed() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    let mut more = spec("img:2", true);
    let beta = json!({"key": "beta", "image": "broken"});
    more["functions"].as_array_mut().unwrap().push(beta);
    cluster.set_spec(&more);
    let mut back = false;
    for _ in 0..60 {
        cluster.run_controllers();
        let decision = cluster.reconcile();
        back |= cluster.status().rolled_back.is_some();
        let heals = decision.actions.iter().any(|it| matches!(it, Action::Apply(_)));
        if back && heals {
            // It is only just applied.
            assert_ne!(condition(&cluster, "Available").0, "True");
        }
        cluster.advance(decision.requeue_after.unwrap_or_default());
    }
    assert!(back);
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(cluster.names(), ["Service shop--alpha", "Deployment shop--alpha"]);
}

/// The objects of the former shape still exist.
#[test]
fn a_change_of_template_is_rolled_back() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    let converged = cluster.outcome();
    let mut other = spec("broken", true);
    other["selected_template"] = json!("knative");
    cluster.set_spec(&other);
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(cluster.outcome()["objects"], converged["objects"]);
    assert_eq!(cluster.status().functions, {
        cluster.set_spec(&spec("img:1", true));
        cluster.converge();
        cluster.status().functions
    });
}

/// The rollback is stored in the status, so that the next process continues it.
#[test]
fn a_crash_at_any_point_of_a_rollback_changes_nothing() {
    let mut converged = Cluster::with(&spec("img:1", true));
    converged.set_spec(&spec("broken", true));
    let interrupted = converged.clone();
    converged.converge();
    for cut in 0..6 {
        let mut cluster = interrupted.clone();
        for _ in 0..12 {
            cluster.run_controllers();
            let decision = cluster.reconcile_on(&cluster.view(), cut);
            cluster.advance(decision.requeue_after.unwrap_or_default());
        }
        cluster.converge();
        assert_eq!(cluster.outcome(), converged.outcome(), "cut after {cut}");
    }
}

#[test]
fn drift_is_restored_after_a_rollback() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.set_spec(&spec("broken", true));
    cluster.converge();
    assert_eq!(cluster.reconcile().actions, []);
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    cluster.edit(&key, "kubectl-edit", |it| it["spec"]["replicas"] = json!(0));
    cluster.converge();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 1);
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
}

#[test]
fn a_rollback_does_not_run_a_completed_job_again() {
    let job = |image: &str| {
        let mut spec = spec(image, true);
        spec["selected_template"] = json!("job");
        spec
    };
    let mut cluster = Cluster::with(&job("img:1"));
    cluster.set_spec(&job("broken"));
    let mut runs = Vec::new();
    for _ in 0..60 {
        cluster.run_controllers();
        let decision = cluster.reconcile();
        runs.extend(decision.actions.iter().filter_map(|it| match it {
            Action::Apply(write) => Some(write.desired.name.clone()),
            _ => None,
        }));
        cluster.advance(decision.requeue_after.unwrap_or_default());
    }
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(runs, ["shop--alpha-g2"]);
    assert_eq!(cluster.names(), [""; 0]);
}

/// A class with one persistent collection.
fn grid(image: &str, nodes: i32, partitions: i32) -> Value {
    let mut spec = spec(image, true);
    spec["addons"] = json!(["odgm"]);
    spec["odgm_config"] = json!({"replicas": nodes, "collections": [{
        "name": "things", "partition_count": partitions, "persistence_mode": "persistent",
    }]});
    spec
}

fn nodes(cluster: &Cluster) -> i64 {
    let grid = cluster.object(&(STATEFUL_SET, "shop-odgm".to_owned())).unwrap();
    grid["spec"]["replicas"].as_i64().unwrap()
}

/// Nodes that were added since may hold data.
#[test]
fn a_rollback_keeps_the_nodes_of_the_data_grid() {
    let mut cluster = Cluster::with(&grid("img:1", 3, 4));
    cluster.set_spec(&grid("broken", 5, 4));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(nodes(&cluster), 5);
}

#[test]
fn a_rollback_that_would_lose_data_is_not_done_and_reported() {
    let mut cluster = Cluster::with(&grid("img:1", 1, 4));
    let mut other = grid("broken", 1, 8);
    other["data_retention"] = json!({"allow_data_loss": true});
    cluster.set_spec(&other);
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    let message = cluster.status().message.unwrap();
    assert!(
        message.contains("rollback to generation 1 isn't possible: the partition"),
        "{message}"
    );
    assert_eq!(cluster.status().rolled_back, None);
    assert_eq!(image(&cluster, "shop--alpha"), "broken");
    assert_eq!(cluster.status().odgm.unwrap().collections[0].partition_count, 8);

    // The next specification is tried.
    other["functions"][0]["image"] = json!("img:3");
    cluster.set_spec(&other);
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

/// The API server returns 99 for 99.0.
#[test]
fn the_kept_specification_is_written_once() {
    let mut spec = spec("img:1", true);
    spec["nfr_requirements"] = json!({"availability_pct": 99.0});
    let mut cluster = Cluster::with(&spec);
    assert_eq!(cluster.reconcile().actions, []);
    assert_eq!(cluster.status().last_available.unwrap().generation, 1);
}

#[test]
fn a_specification_that_is_too_large_is_not_kept() {
    let mut spec = spec("img:1", true);
    let env: Vec<Value> =
        (0..20).map(|at| json!({"name": format!("V{at}"), "value": "x".repeat(30_000)})).collect();
    spec["functions"][0]["provision"] = json!({"env": env});
    let cluster = Cluster::with(&spec);
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.status().last_available, None);
}

/// A class that asks for no template, and moves to Knative for its bursts.
fn free(image: &str, provision: &Value) -> Value {
    let mut spec = spec(image, true);
    spec.as_object_mut().unwrap().remove("selected_template");
    spec["functions"][0]["provision"] = provision.clone();
    spec
}

/// Knative is installed and CRM gets another profile before the rollback.
#[test]
fn a_rollback_restores_template_and_profile() {
    let bursty = json!({"min_scale": 0, "max_scale": 8});
    let mut cluster = Cluster::new();
    cluster.environment.knative = false;
    cluster.set_spec(&free("img:1", &bursty));
    cluster.converge();
    let converged = cluster.outcome();
    assert_eq!(converged["status"]["template"][0], "unified");
    assert_eq!(converged["status"]["template"][1], "full");

    cluster.environment = oprc_unit::Platform::of(oprc_unit::Profile::Dev);
    cluster.environment.features.hpa = true;
    cluster.environment.knative = true;
    cluster.set_spec(&free("broken", &json!({"min_scale": 1})));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    let selection = cluster.status().selection.unwrap();
    assert_eq!((selection.template.as_str(), selection.profile.as_str()), ("unified", "full"));
    assert_eq!(selection.generation, 1);
    assert_eq!(cluster.reconcile().actions, []);
}

fn unknown(image: &str) -> Value {
    let mut spec = spec(image, true);
    spec["selected_template"] = json!("unheard-of");
    spec
}

#[test]
fn a_rejected_update_keeps_the_previous_specification_in_force() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.set_spec(&unknown("img:2"));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(condition(&cluster, "Available"), pair("True", "RolledBack"));
    let status = cluster.status();
    let message = status.message.unwrap();
    assert!(message.contains("UnknownTemplate") && message.contains("generation 1 runs"));
    assert_eq!((status.observed_generation, status.rolled_back), (Some(2), None));
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(cluster.reconcile().actions, []);

    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    cluster.remove(&key);
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "UnknownTemplate".to_owned()));
    cluster.converge();
    assert!(cluster.object(&key).is_some());
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
}

/// It gets its full deadline.
#[test]
fn a_rejected_specification_is_tried_when_the_cluster_supports_it() {
    let mut cluster = Cluster::new();
    cluster.environment.knative = false;
    cluster.set_spec(&spec("img:1", true));
    cluster.converge();
    let mut other = spec("img:2", true);
    other["selected_template"] = json!("knative");
    cluster.set_spec(&other);
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    cluster.advance(Duration::from_hours(1));
    cluster.environment.knative = true;
    cluster.stopped.insert(crate::kinds::KNATIVE_SERVICE);
    cluster.reconcile();
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Progressing, "nothing of it runs yet");
    cluster.stopped.clear();
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.names(), ["KnativeService shop--alpha-kn"]);
}

#[test]
fn the_status_of_a_rejected_class_follows_its_objects() {
    let mut cluster = Cluster::with(&spec("img:1", false));
    let mut other = unknown("img:2");
    other["rollout"]["rollback"] = json!(false);
    cluster.set_spec(&other);
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "UnknownTemplate".to_owned()));
    let readiness = |cluster: &Cluster| {
        let status = cluster.status();
        (status.ready.unwrap(), status.functions[0].ready, status.stable_since.len())
    };
    assert_eq!(readiness(&cluster), ("1/1".to_owned(), true, 1));

    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    let running = cluster.object(&key).unwrap().clone();
    cluster.remove(&key);
    cluster.converge();
    assert_eq!(readiness(&cluster), ("0/1".to_owned(), false, 0));
    assert_eq!(cluster.phase(), (Phase::Degraded, "UnknownTemplate".to_owned()));
    cluster.put(&key, running);
    cluster.converge();
    assert_eq!(readiness(&cluster), ("1/1".to_owned(), true, 0));
}
