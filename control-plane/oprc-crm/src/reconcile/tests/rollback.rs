//! An update that misses its deadline goes back to what was Available last, where the class says so.

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
fn an_update_that_never_gets_ready_is_taken_back() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.ask(&spec("broken", true));
    cluster.pass();
    cluster.settle();
    cluster.wait(Duration::from_secs(50));
    cluster.pass();
    assert_eq!(cluster.phase().0, Phase::Progressing, "there is time left");
    assert_eq!(image(&cluster, "shop--alpha"), "broken");

    cluster.wait(Duration::from_secs(20));
    cluster.pass();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(cluster.status().rolled_back, Some(2), "told before it is done");
    assert_eq!(image(&cluster, "shop--alpha"), "broken");

    cluster.pass();
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(condition(&cluster, "Available"), pair("True", "Available"), "the old pods serve");

    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(condition(&cluster, "Available"), pair("True", "RolledBack"));
    assert_eq!(condition(&cluster, "Degraded"), pair("True", "RolledBack"));
    assert_eq!(cluster.status().observed_generation, Some(2));
    assert!(cluster.events.iter().any(|it| it.warning && it.reason == Reason::RolledBack));
}

#[test]
fn a_newer_specification_is_tried_again() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.ask(&spec("broken", true));
    cluster.rest();
    cluster.ask(&spec("img:3", true));
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(image(&cluster, "shop--alpha"), "img:3");
    assert_eq!(cluster.status().rolled_back, None);
    assert_eq!(condition(&cluster, "Degraded").0, "False");

    // And from here it goes back to this one.
    cluster.ask(&spec("broken", true));
    cluster.rest();
    assert_eq!(image(&cluster, "shop--alpha"), "img:3");
}

#[test]
fn without_being_asked_nothing_is_taken_back() {
    let mut cluster = Cluster::with(&spec("img:1", false));
    cluster.ask(&spec("broken", false));
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(image(&cluster, "shop--alpha"), "broken");
}

#[test]
fn a_class_that_never_ran_has_nothing_to_go_back_to() {
    let mut cluster = Cluster::with(&spec("broken", true));
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(cluster.status().rolled_back, None);
    // It isn't given up either.
    cluster.ask(&spec("img:1", true));
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn what_was_added_goes_and_what_was_changed_comes_back() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    let mut more = spec("img:2", true);
    let beta = json!({"key": "beta", "image": "broken"});
    more["functions"].as_array_mut().unwrap().push(beta);
    cluster.ask(&more);
    let mut back = false;
    for _ in 0..60 {
        cluster.settle();
        let decision = cluster.pass();
        back |= cluster.status().rolled_back.is_some();
        let heals = decision.actions.iter().any(|it| matches!(it, Action::Apply(_)));
        if back && heals {
            // It has only just been written.
            assert_ne!(condition(&cluster, "Available").0, "True");
        }
        cluster.wait(decision.requeue_after.unwrap_or_default());
    }
    assert!(back);
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(cluster.names(), ["Service shop--alpha", "Deployment shop--alpha"]);
}

/// The old template's objects are still there: nothing has to be made.
#[test]
fn a_change_of_template_is_taken_back_too() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    let calm = cluster.outcome();
    let mut other = spec("broken", true);
    other["selected_template"] = json!("knative");
    cluster.ask(&other);
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(cluster.outcome()["objects"], calm["objects"]);
    assert_eq!(cluster.status().functions, {
        cluster.ask(&spec("img:1", true));
        cluster.rest();
        cluster.status().functions
    });
}

/// Told in the status, so whoever comes after goes on with it.
#[test]
fn an_end_at_any_point_of_it_changes_nothing() {
    let mut calm = Cluster::with(&spec("img:1", true));
    calm.ask(&spec("broken", true));
    let interrupted = calm.clone();
    calm.rest();
    for cut in 0..6 {
        let mut cluster = interrupted.clone();
        for _ in 0..12 {
            cluster.settle();
            let decision = cluster.pass_on(&cluster.look(), cut);
            cluster.wait(decision.requeue_after.unwrap_or_default());
        }
        cluster.rest();
        assert_eq!(cluster.outcome(), calm.outcome(), "cut after {cut}");
    }
}

/// Drift of what it went back to is healed like any other.
#[test]
fn what_it_went_back_to_is_kept() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.ask(&spec("broken", true));
    cluster.rest();
    assert_eq!(cluster.pass().actions, []);
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    cluster.edit(&key, "kubectl-edit", |it| it["spec"]["replicas"] = json!(0));
    cluster.rest();
    assert_eq!(cluster.object(&key).unwrap()["spec"]["replicas"], 1);
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
}

/// What has run once isn't run again because something else failed.
#[test]
fn a_finished_run_stays_finished() {
    let job = |image: &str| {
        let mut spec = spec(image, true);
        spec["selected_template"] = json!("job");
        spec
    };
    let mut cluster = Cluster::with(&job("img:1"));
    cluster.ask(&job("broken"));
    let mut runs = Vec::new();
    for _ in 0..60 {
        cluster.settle();
        let decision = cluster.pass();
        runs.extend(decision.actions.iter().filter_map(|it| match it {
            Action::Apply(write) => Some(write.desired.name.clone()),
            _ => None,
        }));
        cluster.wait(decision.requeue_after.unwrap_or_default());
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
        "name": "things", "partition_count": partitions, "replica_count": 1,
        "shard_type": "basic", "persistence_mode": "persistent",
    }]});
    spec
}

fn nodes(cluster: &Cluster) -> i64 {
    let grid = cluster.object(&(STATEFUL_SET, "shop-odgm".to_owned())).unwrap();
    grid["spec"]["replicas"].as_i64().unwrap()
}

/// Nodes that have come since may hold data: they stay, and everything else goes back.
#[test]
fn going_back_gives_up_no_nodes() {
    let mut cluster = Cluster::with(&grid("img:1", 1, 4));
    cluster.ask(&grid("broken", 3, 4));
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(nodes(&cluster), 3);
}

/// Where going back would cost data, it isn't done, and the class says so.
#[test]
fn what_cant_be_taken_back_goes_on() {
    let mut cluster = Cluster::with(&grid("img:1", 1, 4));
    let mut other = grid("broken", 1, 8);
    other["data_retention"] = json!({"allow_data_loss": true});
    cluster.ask(&other);
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    let message = cluster.status().message.unwrap();
    assert!(
        message.contains("rollback to generation 1 isn't possible: the partition"),
        "{message}"
    );
    assert_eq!(cluster.status().rolled_back, None);
    assert_eq!(image(&cluster, "shop--alpha"), "broken");
    assert_eq!(cluster.status().odgm.unwrap().collections[0].partition_count, 8);

    // It isn't given up.
    other["functions"][0]["image"] = json!("img:3");
    cluster.ask(&other);
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
}

/// The API server makes 99 of 99.0: that is no reason to write it again.
#[test]
fn what_is_kept_is_told_once() {
    let mut spec = spec("img:1", true);
    spec["nfr_requirements"] = json!({"availability_pct": 99.0});
    let mut cluster = Cluster::with(&spec);
    assert_eq!(cluster.pass().actions, []);
    assert_eq!(cluster.status().last_available.unwrap().generation, 1);
}

/// A specification that would make the status too large isn't kept, and nothing else is amiss.
#[test]
fn what_is_too_large_to_be_kept_is_left_out() {
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

/// Knative appears, and CRM is told another profile: neither moves what it goes back to.
#[test]
fn it_goes_back_to_the_template_and_profile_that_were_available() {
    let bursty = json!({"min_scale": 0, "max_scale": 8});
    let mut cluster = Cluster::new();
    cluster.environment.knative = false;
    cluster.ask(&free("img:1", &bursty));
    cluster.rest();
    let calm = cluster.outcome();
    assert_eq!(calm["status"]["template"][0], "unified");
    assert_eq!(calm["status"]["template"][1], "full");

    cluster.environment = oprc_unit::Platform::of(oprc_unit::Profile::Dev);
    cluster.environment.features.hpa = true;
    cluster.environment.knative = true;
    cluster.ask(&free("broken", &json!({"min_scale": 1})));
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    let selection = cluster.status().selection.unwrap();
    assert_eq!((selection.template.as_str(), selection.profile.as_str()), ("unified", "full"));
    assert_eq!(selection.generation, 1);
    assert_eq!(cluster.pass().actions, []);
}

fn unknown(image: &str) -> Value {
    let mut spec = spec(image, true);
    spec["selected_template"] = json!("unheard-of");
    spec
}

/// What is refused is as little use as what misses its deadline: what ran is kept, and healed.
#[test]
fn an_update_that_is_refused_leaves_what_ran_in_force() {
    let mut cluster = Cluster::with(&spec("img:1", true));
    cluster.ask(&unknown("img:2"));
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    assert_eq!(condition(&cluster, "Available"), pair("True", "RolledBack"));
    let status = cluster.status();
    let message = status.message.unwrap();
    assert!(message.contains("UnknownTemplate") && message.contains("generation 1 runs"));
    assert_eq!((status.observed_generation, status.rolled_back), (Some(2), None));
    assert_eq!(image(&cluster, "shop--alpha"), "img:1");
    assert_eq!(cluster.pass().actions, []);

    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    cluster.remove(&key);
    cluster.pass();
    assert_eq!(cluster.phase(), (Phase::Degraded, "UnknownTemplate".to_owned()));
    cluster.rest();
    assert!(cluster.object(&key).is_some());
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
}

/// What was refused for what the cluster lacks is tried when it has that, and has all its time.
#[test]
fn what_was_refused_is_tried_as_soon_as_it_can_be() {
    let mut cluster = Cluster::new();
    cluster.environment.knative = false;
    cluster.ask(&spec("img:1", true));
    cluster.rest();
    let mut other = spec("img:2", true);
    other["selected_template"] = json!("knative");
    cluster.ask(&other);
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "RolledBack".to_owned()));
    cluster.wait(Duration::from_hours(1));
    cluster.environment.knative = true;
    cluster.away.insert(crate::kinds::KNATIVE_SERVICE);
    cluster.pass();
    cluster.pass();
    assert_eq!(cluster.phase().0, Phase::Progressing, "nothing of it runs yet");
    cluster.away.clear();
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.names(), ["KnativeService shop--alpha-kn"]);
}

/// Nothing is taken back where the class doesn't want it, but what it is told is true.
#[test]
fn a_class_that_is_refused_is_told_how_what_runs_is() {
    let mut cluster = Cluster::with(&spec("img:1", false));
    let mut other = unknown("img:2");
    other["rollout"]["rollback"] = json!(false);
    cluster.ask(&other);
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "UnknownTemplate".to_owned()));
    let told = |cluster: &Cluster| {
        let status = cluster.status();
        (status.ready.unwrap(), status.functions[0].ready, status.stable_since.len())
    };
    assert_eq!(told(&cluster), ("1/1".to_owned(), true, 1));

    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    let running = cluster.object(&key).unwrap().clone();
    cluster.remove(&key);
    cluster.rest();
    assert_eq!(told(&cluster), ("0/1".to_owned(), false, 0));
    assert_eq!(cluster.phase(), (Phase::Degraded, "UnknownTemplate".to_owned()));
    cluster.put(&key, running);
    cluster.rest();
    assert_eq!(told(&cluster), ("1/1".to_owned(), true, 0));
}
