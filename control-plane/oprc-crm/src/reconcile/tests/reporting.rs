//! The status of a class, and how few writes it takes.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use oprc_unit::{Platform, Profile};
use serde_json::{Value, json};

use super::{
    super::{Action, EventRecord, remaining},
    cluster::{Cluster, Key},
    specs,
};
use crate::{
    crd::{
        AVAILABLE, ClassRuntimeStatus, DEGRADED, GRID_KEY, OdgmConnectionStatus, PROGRESSING, Phase,
    },
    kinds::{DEPLOYMENT, DISRUPTION_BUDGET, JOB, SERVICE, STATEFUL_SET},
    reason::{Failure, Reason},
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

/// An apply for each object, one status for the rollout and one for its end.
#[test]
fn a_deployment_takes_two_status_writes() {
    for functions in 1..=3 {
        let mut cluster = Cluster::new();
        cluster.set_spec(&fixed(functions));
        let mut counts = [0; 4];
        for _ in 0..8 {
            for action in cluster.reconcile().actions {
                counts[match action {
                    Action::AddFinalizer => 0,
                    Action::Apply(_) | Action::IssueCertificate(_) | Action::ScaleRevision(_) => 1,
                    Action::Status(_) => 2,
                    Action::Event(_) => 3,
                    Action::Delete(_) | Action::RemoveFinalizer => panic!("{action:?}"),
                }] += 1;
            }
            cluster.run_controllers();
        }
        assert_eq!(cluster.phase().0, Phase::Available);
        assert_eq!(counts, [1, 2 * functions + 3, 2, 3]);
    }
}

#[test]
fn functions_wait_for_the_data_grid() {
    for (template, phase, function) in [
        // An init container waits.
        ("dev", Phase::Progressing, Some("Deployment shop--f0")),
        // Knative allows none by default.
        ("knative", Phase::Applying, None),
    ] {
        let mut spec = fixed(1);
        spec["selected_template"] = json!(template);
        let mut cluster = Cluster::new();
        cluster.set_spec(&spec);
        cluster.stopped.extend([DEPLOYMENT, STATEFUL_SET]);
        for _ in 0..3 {
            cluster.reconcile();
            cluster.run_controllers();
        }
        let names = cluster.names();
        let of_function = |name: &&String| {
            name.starts_with("Deployment shop--") || name.starts_with("KnativeService")
        };
        assert_eq!(names.iter().find(of_function).map(String::as_str), function);
        assert_eq!(cluster.phase(), (phase, "WaitingForDataGrid".to_owned()));
        let connection = |cluster: &Cluster| cluster.status().functions[0].odgm_connection_status;
        assert_eq!(connection(&cluster), Some(OdgmConnectionStatus::WaitingForDataGrid));
        cluster.stopped.clear();
        cluster.converge();
        assert_eq!(cluster.phase().0, Phase::Available);
        assert_eq!(connection(&cluster), Some(OdgmConnectionStatus::Connected));

        let is_grid =
            |(kind, name): &Key| name == "shop-odgm" && [DEPLOYMENT, STATEFUL_SET].contains(kind);
        let grid = cluster.keys().into_iter().find(is_grid).unwrap();
        let mut object = cluster.object(&grid).unwrap().clone();
        for field in ["readyReplicas", "availableReplicas"] {
            object["status"][field] = json!(0);
        }
        cluster.put(&grid, object);
        cluster.reconcile();
        assert_eq!(connection(&cluster), Some(OdgmConnectionStatus::WaitingForDataGrid));
    }
    let mut alone = fixed(1);
    alone["addons"] = json!([]);
    let status = Cluster::with(&alone).status();
    assert_eq!(status.functions[0].odgm_connection_status, None);
}

#[test]
fn a_rejected_update_leaves_the_objects_as_they_are() {
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
        cluster.set_spec(spec);
        cluster.converge();
        assert_eq!(cluster.phase(), (Phase::Degraded, reason.to_owned()));
        let status = cluster.status();
        assert!(status.message.as_ref().unwrap().contains(word), "{:?}", status.message);
        assert!(status.is_true("Available") && status.is_true("Degraded"), "the old pods serve");
        assert_eq!(cluster.outcome()["objects"], before["objects"]);
    }
    cluster.set_spec(&good);
    cluster.converge();
    assert_eq!(cluster.outcome(), before);
}

/// A copy under another name would be found by the id of the original.
#[test]
fn a_class_with_the_id_of_another_is_rejected() {
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
fn a_change_that_risks_data_is_rejected() {
    let grid = |partitions: i32| {
        let mut spec = fixed(1);
        spec["odgm_config"]["collections"] = json!([
            {"name": "things", "partition_count": partitions, "persistence_mode": "persistent"},
        ]);
        spec
    };
    let mut cluster = Cluster::with(&grid(4));
    let before = cluster.outcome();
    cluster.set_spec(&grid(8));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "DataAtRisk".to_owned()));
    assert_eq!(cluster.outcome()["objects"], before["objects"]);

    // Nor by removing the data grid in between.
    cluster.set_spec(&specs::one("dev"));
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    cluster.set_spec(&grid(8));
    cluster.converge();
    assert_eq!(cluster.phase().1, "DataAtRisk");

    let mut allowed = grid(8);
    allowed["data_retention"] = json!({"allow_data_loss": true});
    cluster.set_spec(&allowed);
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.status().odgm.unwrap().collections[0].partition_count, 8);
}

/// The claim templates of a StatefulSet are immutable: it is recreated.
#[test]
fn a_data_grid_may_become_persistent_and_back() {
    let grid = |persistence: &str| {
        let mut spec = fixed(1);
        spec["odgm_config"] = json!({
            "collections": [{"name": "things", "persistence_mode": persistence}],
        });
        spec["data_retention"] = json!({"allow_data_loss": true});
        spec
    };
    let mut cluster = Cluster::with(&grid("ephemeral"));
    for persistence in ["persistent", "ephemeral"] {
        cluster.set_spec(&grid(persistence));
        cluster.converge();
        assert_eq!(cluster.phase().0, Phase::Available, "{persistence}");
        assert_eq!(cluster.outcome(), Cluster::with(&grid(persistence)).outcome());
    }
}

#[test]
fn a_failed_write_is_reported_and_retried_in_the_next_reconcile() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    let mut spec = specs::one("dev");
    spec["functions"][0]["image"] = json!("img:2");
    cluster.set_spec(&spec);
    let failure = Failure { reason: Reason::Forbidden, message: "no permission".to_owned() };
    let decision = cluster.plan_actions(&cluster.view(), &[failure]);
    let [Action::Status(status), Action::Event(event)] = decision.actions.as_slice() else {
        panic!("{:?}", decision.actions);
    };
    assert_eq!((status.phase, status.reason.as_deref()), (Phase::Degraded, Some("Forbidden")));
    assert!(event.warning && event.note.contains("no permission"), "{event:?}");
    // The next pass tries again.
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

/// Status and reason of a condition.
fn condition(status: &ClassRuntimeStatus, type_: &str) -> (String, String) {
    let found = status.conditions.iter().find(|it| it.type_ == type_).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn waiting_for_quota(status: &ClassRuntimeStatus) {
    let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(status.reason.as_deref(), Some("QuotaExceeded"));
    assert_eq!(condition(status, PROGRESSING), is("True", "QuotaExceeded"));
    assert_eq!(condition(status, DEGRADED), is("False", "AsExpected"));
    let progressing = status.conditions.iter().find(|it| it.type_ == PROGRESSING).unwrap();
    assert_eq!(Some(&progressing.message), status.message.as_ref());
    assert!(progressing.message.contains("exceeded quota"), "{}", progressing.message);
}

fn with_deadline(mut spec: Value) -> Value {
    spec["rollout"] = json!({"progress_deadline_seconds": 60});
    spec
}

#[test]
fn objects_wait_for_a_quota_until_the_deadline() {
    let mut cluster = Cluster::new();
    cluster.over_quota.extend([SERVICE, DEPLOYMENT]);
    cluster.set_spec(&with_deadline(specs::one("dev")));
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Pending, "nothing is created");
    waiting_for_quota(&cluster.status());

    cluster.over_quota.remove(&SERVICE);
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Applying);
    let status = cluster.status();
    waiting_for_quota(&status);
    assert_eq!(condition(&status, AVAILABLE).0, "False");
    assert!(status.message.as_ref().unwrap().starts_with("Deployment shop--alpha: "));
    for _ in 0..5 {
        cluster.reconcile();
    }
    assert_eq!(cluster.status(), status, "only the message differs: no write");
    let warnings: Vec<_> = cluster.events.iter().filter(|it| it.warning).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].reason, Reason::QuotaExceeded);

    cluster.advance(Duration::from_mins(1));
    cluster.reconcile();
    let status = cluster.status();
    assert_eq!(cluster.phase(), (Phase::Degraded, "QuotaExceeded".to_owned()));
    assert_eq!(condition(&status, DEGRADED).0, "True");
    let message = status.message.as_ref().unwrap();
    assert!(message.contains("not ready: alpha (Deployment shop--alpha: exceeded"), "{message}");
    assert!(cluster.events.last().unwrap().warning, "{:?}", cluster.events);
    cluster.reconcile();
    assert_eq!(cluster.status(), status, "only the message differs: no write");

    cluster.over_quota.clear();
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_new_class_that_serves_is_available_while_other_objects_wait_for_a_quota() {
    let mut spec = with_deadline(specs::one("dev"));
    spec["functions"][0]["provision"] = json!({"min_scale": 2, "max_scale": 2});
    let mut cluster = Cluster::new();
    cluster.over_quota.insert(DISRUPTION_BUDGET);
    cluster.set_spec(&spec);
    cluster.reconcile();
    assert_eq!(condition(&cluster.status(), AVAILABLE).0, "False");
    cluster.run_controllers();
    cluster.reconcile();
    let status = cluster.status();
    assert_eq!(status.phase, Phase::Applying);
    waiting_for_quota(&status);
    assert!(status.is_true(AVAILABLE), "all functions serve");
    let quota = |it: &&EventRecord| it.reason == Reason::QuotaExceeded;
    assert_eq!(cluster.events.iter().filter(quota).count(), 1, "{:?}", cluster.events);
}

/// An object that someone deleted can't be created again.
#[test]
fn an_available_class_that_waits_for_a_quota_is_in_progress() {
    let mut spec = with_deadline(specs::one("dev"));
    spec["functions"][0]["provision"] = json!({"min_scale": 2, "max_scale": 2});
    let mut cluster = Cluster::with(&spec);
    let key = (DISRUPTION_BUDGET, "shop--alpha".to_owned());
    cluster.remove(&key);
    cluster.over_quota.insert(DISRUPTION_BUDGET);
    cluster.reconcile();
    let status = cluster.status();
    assert_eq!(status.phase, Phase::Applying);
    waiting_for_quota(&status);
    assert!(status.is_true(AVAILABLE), "all functions serve");
    cluster.reconcile();
    assert_eq!(cluster.status(), status, "no write");

    cluster.advance(Duration::from_mins(1));
    cluster.reconcile();
    assert_eq!(cluster.phase(), (Phase::Degraded, "QuotaExceeded".to_owned()));
    let status = cluster.status();
    assert!(status.is_true(AVAILABLE));
    assert!(status.message.unwrap().starts_with("not Available within 60 s (PodDisruptionBudget"));

    cluster.over_quota.clear();
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert!(cluster.object(&key).is_some());
}

#[test]
fn other_failures_take_precedence_over_a_quota() {
    let cluster = Cluster::with(&specs::one("dev"));
    let failure = |reason, message: &str| Failure { reason, message: message.to_owned() };
    let failures = [failure(Reason::QuotaExceeded, "first"), failure(Reason::Rejected, "second")];
    let actions = cluster.plan_actions(&cluster.view(), &failures).actions;
    let Some(Action::Status(status)) = actions.first() else { panic!("{actions:?}") };
    assert_eq!((status.phase, status.reason.as_deref()), (Phase::Degraded, Some("Rejected")));
    assert_eq!(status.message.as_deref(), Some("first; second"));
}

#[test]
fn a_missed_deadline_is_reported_until_the_class_is_ready() {
    let mut cluster = Cluster::new();
    cluster.stopped.insert(DEPLOYMENT);
    cluster.set_spec(&specs::one("dev"));
    cluster.converge();
    assert_eq!(cluster.phase(), (Phase::Degraded, "ProgressDeadlineExceeded".to_owned()));
    assert!(cluster.status().message.unwrap().contains("not ready: alpha"));
    cluster.stopped.clear();
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
    assert_eq!(cluster.status().progress_since, None);
}

/// A quota may have no room for both.
#[test]
fn deletions_come_before_applies() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    cluster.set_spec(&json!({
        "selected_template": "dev", "functions": [{"key": "beta", "image": "img:1"}],
    }));
    let actions = cluster.plan_actions(&cluster.view(), &[]).actions;
    let first_write = actions.iter().position(|it| matches!(it, Action::Apply(_))).unwrap();
    let last_delete = actions.iter().rposition(|it| matches!(it, Action::Delete(_))).unwrap();
    assert!(last_delete < first_write, "{actions:?}");
}

/// Two functions, one of which doesn't become ready.
#[test]
fn a_ready_function_is_reported_after_a_delay_although_another_is_not_ready() {
    let mut cluster = Cluster::new();
    cluster.set_spec(&json!({"selected_template": "dev", "functions": [
        {"key": "alpha", "image": "img:1"}, {"key": "beta", "image": "broken"},
    ]}));
    cluster.reconcile();
    cluster.run_controllers();
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    let mut object = cluster.object(&key).unwrap().clone();
    object["status"]["conditions"][0]["lastUpdateTime"] = json!(cluster.now.to_string());
    cluster.put(&key, object);
    cluster.stopped.insert(DEPLOYMENT);

    let decision = cluster.reconcile();
    assert_eq!(decision.actions, [], "the others may follow soon");
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(9)));
    cluster.advance(Duration::from_secs(9));
    let decision = cluster.reconcile();
    assert!(matches!(decision.actions.as_slice(), [Action::Status(_)]), "{decision:?}");
    let functions = cluster.status().functions;
    assert!(functions[0].ready && functions[0].url.is_some(), "{functions:?}");
    assert!(!functions[1].ready);
    assert_eq!(cluster.phase().0, Phase::Progressing);
    assert_eq!(cluster.reconcile().actions, [], "once");
}

/// Whatever CRM's profile is later.
#[test]
fn a_generation_keeps_its_profile() {
    let mut spec = fixed(1);
    spec["selected_template"] = json!("k8s_deployment");
    let mut cluster = Cluster::with(&spec);
    assert_eq!(cluster.status().odgm.unwrap().collections[0].persistence_mode, "persistent");
    cluster.environment.profile = Profile::Dev;
    cluster.environment.function_sizes = Platform::of(Profile::Dev).function_sizes;
    assert_eq!(cluster.reconcile().actions, []);
}

/// An absurd time in a status is harmless.
#[test]
fn remaining_time_does_not_overflow() {
    let long = Duration::from_secs(u64::MAX);
    let [first, last] = [Timestamp::MIN, Timestamp::MAX];
    assert_eq!(remaining(last, long, first), long);
    assert_eq!(remaining(first, Duration::from_secs(1), last), Duration::ZERO);
}

#[test]
fn a_rejected_object_does_not_prevent_other_writes() {
    let functions = ["a", "b", "c"].map(|key| json!({"key": key, "image": "img:1"}));
    let spec = json!({"selected_template": "dev", "functions": functions});
    let mut cluster = Cluster::new();
    cluster.rejected.insert("shop--a".to_owned());
    cluster.set_spec(&spec);
    for _ in 0..4 {
        cluster.reconcile();
        cluster.run_controllers();
    }
    assert_eq!(
        cluster.names(),
        ["Service shop--b", "Service shop--c", "Deployment shop--b", "Deployment shop--c"]
    );
    assert_eq!(cluster.phase(), (Phase::Degraded, "Rejected".to_owned()));
    let message = cluster.status().message.unwrap();
    assert_eq!(message, "Service shop--a: not here; Deployment shop--a: not here");
    assert!(cluster.status().functions[1].ready);

    cluster.rejected.clear();
    cluster.converge();
    assert_eq!(cluster.outcome(), Cluster::with(&spec).outcome());
}

/// The status of a StatefulSet or Job doesn't contain why it has no pods.
#[test]
fn pod_creation_failures_are_reported() {
    let mut grid = fixed(1);
    grid["odgm_config"]["replicas"] = json!(3);
    for (spec, kind, name) in
        [(grid, STATEFUL_SET, "shop-odgm"), (specs::one("job"), JOB, "shop--alpha-g1")]
    {
        for (message, phase, reason) in [
            ("pods \"p\" is forbidden: exceeded quota: few", Phase::Applying, "QuotaExceeded"),
            ("pods \"p\" is forbidden: violates PodSecurity", Phase::Degraded, "PodsNotCreated"),
        ] {
            let mut cluster = Cluster::new();
            cluster.stopped.insert(kind.clone());
            cluster.set_spec(&with_deadline(spec.clone()));
            cluster.reconcile();
            let uid = cluster.child(&(kind.clone(), name.to_owned())).unwrap().uid.clone();
            cluster.pod_creation_failure.insert(uid, message.to_owned());
            cluster.reconcile();
            assert_eq!(cluster.phase(), (phase, reason.to_owned()), "{name}");
            let status = cluster.status();
            assert!(status.message.as_ref().unwrap().contains(message));
            if phase == Phase::Applying {
                waiting_for_quota(&status);
            }
            cluster.advance(Duration::from_mins(1));
            cluster.reconcile();
            assert_eq!(cluster.phase(), (Phase::Degraded, reason.to_owned()), "{name}");
            cluster.pod_creation_failure.clear();
            cluster.stopped.clear();
            cluster.converge();
            assert_eq!(cluster.phase().0, Phase::Available, "{name}");
        }
    }
}

#[test]
fn pods_of_a_deployment_wait_for_a_quota() {
    let mut cluster = Cluster::new();
    cluster.stopped.insert(DEPLOYMENT);
    cluster.set_spec(&specs::one("dev"));
    cluster.reconcile();
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    let mut object = cluster.object(&key).unwrap().clone();
    object["status"] = json!({"observedGeneration": 1, "conditions": [
        {"type": "ReplicaFailure", "status": "True", "message": "pods \"p\": exceeded quota: few"},
    ]});
    cluster.put(&key, object);
    cluster.reconcile();
    let status = cluster.status();
    assert_eq!(status.phase, Phase::Applying);
    waiting_for_quota(&status);
    assert_eq!(status.message.as_deref(), Some("alpha: pods \"p\": exceeded quota: few"));
    cluster.stopped.clear();
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

#[test]
fn a_function_named_odgm_has_its_own_stability_record() {
    let mut spec = fixed(1);
    spec["functions"][0]["key"] = json!("odgm");
    let mut cluster = Cluster::with(&spec);
    let keys = |cluster: &Cluster| cluster.status().stable_since.into_keys().collect::<Vec<_>>();
    assert_eq!(keys(&cluster), [GRID_KEY, "odgm"]);
    let since = cluster.status().stable_since[GRID_KEY].clone();
    let key = (DEPLOYMENT, "shop--odgm".to_owned());
    let mut object = cluster.object(&key).unwrap().clone();
    object["status"]["availableReplicas"] = json!(0);
    cluster.put(&key, object);
    cluster.reconcile();
    cluster.converge();
    let status = cluster.status();
    assert_eq!(status.stable_since[GRID_KEY], since, "the grid was stable throughout");
    assert_ne!(status.stable_since["odgm"], since);
}

#[test]
fn a_class_that_is_paused_before_its_first_object_is_pending() {
    let mut spec = specs::one("dev");
    spec["paused"] = json!(true);
    let mut cluster = Cluster::with(&spec);
    assert_eq!(cluster.phase(), (Phase::Pending, "Paused".to_owned()));
    assert_eq!(cluster.names(), [""; 0]);
    cluster.set_spec(&specs::one("dev"));
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}

/// The functions don't become ready soon after the data grid.
#[test]
fn progressing_is_written_over_applying_only_if_it_lasts() {
    let mut spec = fixed(1);
    spec["selected_template"] = json!("knative");
    spec["functions"][0]["image"] = json!("broken");
    let mut cluster = Cluster::new();
    cluster.set_spec(&spec);
    cluster.reconcile();
    assert_eq!(cluster.phase().0, Phase::Applying);
    cluster.run_controllers();
    let statuses = |cluster: &mut Cluster| {
        let actions = cluster.reconcile().actions;
        actions.iter().filter(|it| matches!(it, Action::Status(_))).count()
    };
    assert_eq!(statuses(&mut cluster), 0, "the functions are only just created");
    cluster.run_controllers();
    assert_eq!(statuses(&mut cluster), 0);
    cluster.advance(Duration::from_secs(30));
    assert_eq!(statuses(&mut cluster), 1);
    assert_eq!(cluster.phase().0, Phase::Progressing);
    assert_eq!(statuses(&mut cluster), 0);
}

#[test]
fn status_writes_keep_what_other_field_managers_own() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    let condition = json!({
        "type": "NfrObserved", "status": "True", "reason": "Measured", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let recommendation = json!({"component": "alpha", "dimension": "replicas", "target": 2});
    let compliance = json!({
        "function": "alpha", "requirement": "latency", "state": "violated", "required": 100,
        "since": "2026-01-01T00:00:00Z",
    });
    cluster.edit_status(|status| {
        status["conditions"].as_array_mut().unwrap().push(condition.clone());
        status["nfr_recommendations"] = json!([recommendation]);
        status["last_applied_at"] = json!("2026-01-01T00:00:00Z");
        status["nfr_compliance"] = json!([compliance]);
    });
    assert_eq!(cluster.reconcile().actions, [], "it is no difference to the reconciler");
    let mut spec = specs::one("dev");
    spec["functions"][0]["image"] = json!("img:2");
    for spec in [spec, specs::one("nonsense"), specs::one("dev")] {
        cluster.set_spec(&spec);
        cluster.converge();
        let status = cluster.status();
        assert!(status.is_true("NfrObserved"), "{:?}", status.conditions);
        assert_eq!(status.nfr_recommendations.len(), 1);
        assert_eq!(status.nfr_compliance.len(), 1);
        assert!(status.last_applied_at.is_some());
    }
    assert_eq!(cluster.phase().0, Phase::Available);
}
