//! What a class is told, and how little is written for it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use oprc_unit::{Platform, Profile};
use serde_json::{Value, json};

use super::{
    super::{
        Action,
        report::{Failure, remaining},
    },
    cluster::Cluster,
    specs,
};
use crate::{
    crd::Phase,
    kinds::{DEPLOYMENT, JOB, STATEFUL_SET},
    reason::Reason,
};

/// Functions with a data grid, of a fixed scale.
fn fixed(functions: usize) -> Value {
    let functions: Vec<Value> =
        (0..functions).map(|at| json!({"key": format!("f{at}"), "image": "img:1"})).collect();
    json!({
        "selected_template": "dev",
        "functions": functions,
        "addons": ["odgm"],
        "odgm_config": {"collections": ["things"]},
    })
}

/// An Apply for each object, one status for Progressing and one for Available.
#[test]
fn deploying_takes_no_more_writes_than_there_are_things_to_say() {
    for functions in 1..=3 {
        let mut cluster = Cluster::new();
        cluster.ask(&fixed(functions));
        let mut counts = [0; 4];
        for _ in 0..8 {
            for action in cluster.pass().actions {
                counts[match action {
                    Action::AddFinalizer => 0,
                    Action::Apply(_) => 1,
                    Action::Status(_) => 2,
                    Action::Event(_) => 3,
                    Action::Delete(_) | Action::RemoveFinalizer => panic!("{action:?}"),
                }] += 1;
            }
            cluster.settle();
        }
        assert_eq!(cluster.phase().0, Phase::Available);
        assert_eq!(counts, [1, 2 * functions + 2, 2, 3]);
    }
}

#[test]
fn functions_wait_for_the_data_grid() {
    let mut cluster = Cluster::new();
    cluster.ask(&fixed(1));
    cluster.away.insert(DEPLOYMENT);
    for _ in 0..3 {
        cluster.pass();
        cluster.settle();
    }
    assert_eq!(
        cluster.names(),
        ["Service shop--f0", "Service shop-odgm-svc", "Deployment shop-odgm"]
    );
    assert_eq!(cluster.phase(), (Phase::Applying, "WaitingForDataGrid".to_owned()));
    cluster.away.clear();
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn what_cant_be_brought_about_leaves_what_runs_alone() {
    let good = specs::one("dev");
    let mut cluster = Cluster::with(&good);
    let before = cluster.outcome();
    let mut too_large = good.clone();
    too_large["functions"][0]["port"] = json!(70_000);
    let mut unreadable = good.clone();
    unreadable["functions"][0]["port"] = json!("eighty");
    let mut unknown = good.clone();
    unknown["selected_template"] = json!("nonsense");
    for (spec, reason, word) in [
        (&too_large, "InvalidSpec", "functions[0].port"),
        (&unreadable, "InvalidSpec", "functions[0]"),
        (&unknown, "UnknownTemplate", "nonsense"),
    ] {
        cluster.ask(spec);
        cluster.rest();
        assert_eq!(cluster.phase(), (Phase::Degraded, reason.to_owned()));
        let status = cluster.status();
        assert!(status.message.as_ref().unwrap().contains(word), "{:?}", status.message);
        assert!(status.is_true("Available") && status.is_true("Degraded"), "the old pods serve");
        assert_eq!(cluster.outcome()["objects"], before["objects"]);
    }
    cluster.ask(&good);
    cluster.rest();
    assert_eq!(cluster.outcome(), before);
}

/// A copy under another name would be found in place of the original, by its id.
#[test]
fn a_class_with_the_id_of_another_is_refused() {
    let mut spec = fixed(1);
    spec["deployment_unit"] = json!({"id": "shop"});
    assert_eq!(Cluster::with(&spec).phase().0, Phase::Available);
    spec["deployment_unit"] = json!({"id": "other"});
    let cluster = Cluster::with(&spec);
    assert_eq!(cluster.status().reason.as_deref(), Some("InvalidSpec"));
    assert!(cluster.status().message.unwrap().contains("deployment_unit.id"));
    assert_eq!(cluster.names(), [""; 0]);
}

#[test]
fn data_at_risk_is_refused_and_nothing_is_touched() {
    let grid = |partitions: i32| {
        let mut spec = fixed(1);
        spec["odgm_config"]["collections"] = json!([
            {"name": "things", "partition_count": partitions, "persistence_mode": "persistent"},
        ]);
        spec
    };
    let mut cluster = Cluster::with(&grid(4));
    let before = cluster.outcome();
    cluster.ask(&grid(8));
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "DataAtRisk".to_owned()));
    assert_eq!(cluster.outcome()["objects"], before["objects"]);

    // Nor by way of a class without any data grid.
    cluster.ask(&specs::one("dev"));
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
    cluster.ask(&grid(8));
    cluster.rest();
    assert_eq!(cluster.phase().1, "DataAtRisk");

    let mut allowed = grid(8);
    allowed["data_retention"] = json!({"allow_data_loss": true});
    cluster.ask(&allowed);
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.status().odgm.unwrap().collections[0].partition_count, 8);
}

/// A data grid gets disks, and loses them, though no StatefulSet can be changed so.
#[test]
fn a_data_grid_may_become_persistent_and_back() {
    let grid = |persistence: &str| {
        let mut spec = fixed(1);
        spec["odgm_config"] = json!({
            "replicas": 3,
            "collections": [{"name": "things", "persistence_mode": persistence}],
        });
        spec["data_retention"] = json!({"allow_data_loss": true});
        spec
    };
    let mut cluster = Cluster::with(&grid("ephemeral"));
    for persistence in ["persistent", "ephemeral"] {
        cluster.ask(&grid(persistence));
        cluster.rest();
        assert_eq!(cluster.phase().0, Phase::Available, "{persistence}");
        assert_eq!(cluster.outcome(), Cluster::with(&grid(persistence)).outcome());
    }
}

#[test]
fn a_write_that_is_refused_is_told_and_not_tried_in_the_same_breath() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    let mut spec = specs::one("dev");
    spec["functions"][0]["image"] = json!("img:2");
    cluster.ask(&spec);
    let failure = Failure { reason: Reason::QuotaExceeded, message: "no room".to_owned() };
    let decision = cluster.plan_actions(&cluster.look(), &[failure]);
    assert_eq!(decision.phase, Phase::Degraded);
    let [Action::Status(status), Action::Event(event)] = decision.actions.as_slice() else {
        panic!("{:?}", decision.actions);
    };
    assert_eq!(status.reason.as_deref(), Some("QuotaExceeded"));
    assert!(event.warning && event.note.contains("no room"), "{event:?}");
    // The next pass tries again.
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn time_that_runs_out_is_told_and_what_comes_late_is_welcome() {
    let mut cluster = Cluster::new();
    cluster.away.insert(DEPLOYMENT);
    cluster.ask(&specs::one("dev"));
    cluster.rest();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert!(cluster.status().message.unwrap().contains("not ready: alpha"));
    cluster.away.clear();
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.status().progress_since, None);
}

/// What nobody wants goes first: a quota may have no room for both.
#[test]
fn what_goes_makes_room_for_what_comes() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    cluster.ask(&json!({
        "selected_template": "dev", "functions": [{"key": "beta", "image": "img:1"}],
    }));
    let actions = cluster.plan_actions(&cluster.look(), &[]).actions;
    let first_write = actions.iter().position(|it| matches!(it, Action::Apply(_))).unwrap();
    let last_delete = actions.iter().rposition(|it| matches!(it, Action::Delete(_))).unwrap();
    assert!(last_delete < first_write, "{actions:?}");
}

/// Two functions, one of which doesn't come up.
#[test]
fn a_function_that_is_ready_is_told_of_though_another_isnt() {
    let mut cluster = Cluster::new();
    cluster.ask(&json!({"selected_template": "dev", "functions": [
        {"key": "alpha", "image": "img:1"}, {"key": "beta", "image": "broken"},
    ]}));
    cluster.pass();
    cluster.settle();
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    let mut object = cluster.object(&key).unwrap().clone();
    object["status"]["conditions"][0]["lastUpdateTime"] = json!(cluster.now.to_string());
    cluster.put(&key, object);
    cluster.away.insert(DEPLOYMENT);

    let decision = cluster.pass();
    assert_eq!(decision.actions, [], "the others may follow at once");
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(9)));
    cluster.wait(Duration::from_secs(9));
    let decision = cluster.pass();
    assert!(matches!(decision.actions.as_slice(), [Action::Status(_)]), "{decision:?}");
    let functions = cluster.status().functions;
    assert!(functions[0].ready && functions[0].url.is_some(), "{functions:?}");
    assert!(!functions[1].ready);
    assert_eq!(cluster.phase().0, Phase::Progressing);
    assert_eq!(cluster.pass().actions, [], "once");
}

/// Whatever the profile that CRM is given later.
#[test]
fn a_class_keeps_the_profile_that_its_generation_was_given() {
    let mut spec = fixed(1);
    spec["selected_template"] = json!("k8s_deployment");
    let mut cluster = Cluster::with(&spec);
    assert_eq!(cluster.status().odgm.unwrap().collections[0].persistence_mode, "persistent");
    cluster.environment.profile = Profile::Dev;
    cluster.environment.function_sizes = Platform::of(Profile::Dev).function_sizes;
    assert_eq!(cluster.pass().actions, []);
}

/// An absurd time in a status harms nobody.
#[test]
fn a_deadline_has_no_end_of_time() {
    let long = Duration::from_secs(u64::MAX);
    let [first, last] = [Timestamp::MIN, Timestamp::MAX];
    assert_eq!(remaining(last, long, first), long);
    assert_eq!(remaining(first, Duration::from_secs(1), last), Duration::ZERO);
}

/// What one object is refused for is no reason to leave out others; the class is told of all.
#[test]
fn what_is_refused_keeps_nothing_else_from_being_written() {
    let functions = ["a", "b", "c"].map(|key| json!({"key": key, "image": "img:1"}));
    let spec = json!({"selected_template": "dev", "functions": functions});
    let mut cluster = Cluster::new();
    cluster.refused.insert("shop--a".to_owned());
    cluster.ask(&spec);
    for _ in 0..4 {
        cluster.pass();
        cluster.settle();
    }
    assert_eq!(
        cluster.names(),
        ["Service shop--b", "Service shop--c", "Deployment shop--b", "Deployment shop--c"]
    );
    assert_eq!(cluster.phase(), (Phase::Degraded, "Rejected".to_owned()));
    let message = cluster.status().message.unwrap();
    assert_eq!(message, "Service shop--a: not here; Deployment shop--a: not here");
    assert!(cluster.status().functions[1].ready);

    cluster.refused.clear();
    cluster.rest();
    assert_eq!(cluster.outcome(), Cluster::with(&spec).outcome());
}

/// A StatefulSet and a Job don't say themselves why they have no pods.
#[test]
fn pods_that_cant_be_made_are_told_of_by_their_reason() {
    let mut grid = fixed(1);
    grid["odgm_config"]["replicas"] = json!(3);
    for (spec, kind, name) in
        [(grid, STATEFUL_SET, "shop-odgm"), (specs::one("job"), JOB, "shop--alpha-g1")]
    {
        for (message, reason) in [
            ("pods \"p\" is forbidden: exceeded quota: few", "QuotaExceeded"),
            ("pods \"p\" is forbidden: violates PodSecurity", "PodsNotCreated"),
        ] {
            let mut cluster = Cluster::new();
            cluster.away.insert(kind.clone());
            cluster.ask(&spec);
            cluster.pass();
            let uid = cluster.child(&(kind.clone(), name.to_owned())).unwrap().uid.clone();
            cluster.pod_creation_failure.insert(uid, message.to_owned());
            cluster.pass();
            assert_eq!(cluster.phase(), (Phase::Degraded, reason.to_owned()), "{name}");
            assert!(cluster.status().message.unwrap().contains(message));
            cluster.pod_creation_failure.clear();
            cluster.away.clear();
            cluster.rest();
            assert_eq!(cluster.phase().0, Phase::Available, "{name}");
        }
    }
}
