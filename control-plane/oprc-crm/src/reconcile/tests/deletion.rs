//! Deletion of a class: its objects are deleted first, its data stays.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::{Action, FINALIZER},
    cases,
    cluster::{Cluster, NAMESPACE},
    controllers::BLOCKED,
    specs,
};
use crate::{
    crd::Phase,
    kinds::{CLAIM, DEPLOYMENT, STATEFUL_SET},
};

fn persistent(on_delete: &str) -> Value {
    json!({
        "functions": [{"key": "alpha", "image": "img:1"}],
        "addons": ["odgm"],
        "odgm_config": {"replicas": 3, "collections": ["things"]},
        "data_retention": {"on_delete": on_delete},
    })
}

fn claims(cluster: &Cluster) -> usize {
    cluster.keys().iter().filter(|(kind, _)| *kind == CLAIM).count()
}

/// Deletes the class; the finalizer must stay while any of its objects exists.
fn delete(cluster: &mut Cluster) {
    cluster.delete_class();
    for _ in 0..20 {
        let left = cluster.names();
        let decision = cluster.reconcile();
        if decision.actions.contains(&Action::RemoveFinalizer) {
            assert_eq!(left, [""; 0], "the finalizer is removed last");
        }
        assert!(
            !decision
                .actions
                .iter()
                .any(|it| matches!(it, Action::Apply(_) | Action::IssueCertificate(_))),
            "nothing is created"
        );
        cluster.run_controllers();
    }
    assert!(!cluster.has_class());
    assert_eq!(cluster.names(), [""; 0]);
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn everything_is_deleted_whenever_the_class_is(
        spec in specs::any(),
        passes in 0_usize..6,
        most in 0_usize..12,
    ) {
        let mut cluster = Cluster::new();
        cluster.set_spec(&spec);
        for _ in 0..passes {
            cluster.reconcile();
            cluster.run_controllers();
        }
        cluster.reconcile_on(&cluster.view(), most);
        delete(&mut cluster);
    }

    /// A stale view from before the deletion recreates objects; their owner doesn't exist.
    #[test]
    fn objects_recreated_from_a_stale_view_are_garbage_collected(spec in specs::any()) {
        let (mut cluster, view) = Cluster::with_early_view(&spec);
        delete(&mut cluster);
        cluster.reconcile_on(&view, usize::MAX);
        prop_assert_ne!(cluster.names(), [""; 0]);
        cluster.run_controllers();
        prop_assert_eq!(cluster.names(), [""; 0]);
    }
}

#[test]
fn claims_outlive_the_class_unless_on_delete_is_delete() {
    let mut cluster = Cluster::with(&persistent("retain"));
    assert_eq!(claims(&cluster), 3);
    delete(&mut cluster);
    assert_eq!(claims(&cluster), 3);

    let mut cluster = Cluster::with(&persistent("delete"));
    delete(&mut cluster);
    assert_eq!(claims(&cluster), 0);
}

#[test]
fn claims_outlive_a_data_grid_that_is_removed() {
    let mut cluster = Cluster::with(&persistent("delete"));
    cluster.set_spec(&specs::one("full"));
    cluster.converge();
    assert!(!cluster.keys().iter().any(|(kind, _)| *kind == STATEFUL_SET));
    assert_eq!(claims(&cluster), 3);
}

#[test]
fn deletions_have_the_uid_of_the_observed_object() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    cluster.delete_class();
    let view = cluster.view();
    // Another client has created an object of that name in the meantime.
    cluster.remove(&key);
    cluster.create_foreign(&key, &json!({"replicas": 1}));
    cluster.reconcile_on(&view, usize::MAX);
    cluster.converge();
    assert_eq!(cluster.names(), ["Deployment shop--alpha"]);
    assert!(!cluster.has_class());
}

#[test]
fn objects_that_block_the_deletion_are_reported_once() {
    let mut cluster = Cluster::with(&specs::one("dev"));
    let key = (DEPLOYMENT, "shop--alpha".to_owned());
    cluster.edit(&key, "somebody", |it| it["metadata"]["finalizers"] = json!([BLOCKED]));
    cluster.delete_class();
    cluster.converge();
    let status = cluster.status();
    assert_eq!(status.phase, Phase::Deleting);
    assert_eq!(status.message.unwrap(), "waiting for deletion of Deployment shop--alpha");
    assert_eq!(cluster.reconcile().actions, [], "waiting writes nothing");

    cluster.edit(&key, "somebody", |it| it["metadata"]["finalizers"] = json!([]));
    cluster.run_controllers();
    assert_eq!(cluster.reconcile().actions, [Action::RemoveFinalizer]);
    assert!(!cluster.has_class());
}

#[test]
fn a_class_without_the_finalizer_needs_no_action() {
    let mut cluster = Cluster::new();
    cluster.set_spec(&specs::one("dev"));
    let mut view = cluster.view();
    let class = view.class.as_mut().unwrap();
    class.deleting = Some(cluster.now);
    class.finalizers = vec!["somebody/else".to_owned()];
    assert_eq!(cluster.plan_actions(&view, &[]).actions, []);

    let class = view.class.as_mut().unwrap();
    class.finalizers.push(FINALIZER.to_owned());
    assert_eq!(cluster.plan_actions(&view, &[]).actions, [Action::RemoveFinalizer]);
}

/// A label that any client can set isn't enough to delete a claim.
#[test]
fn only_claims_of_the_data_grid_are_deleted() {
    let mut cluster = Cluster::with(&persistent("delete"));
    let claim = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "status": {"phase": "Bound"},
        })
    };
    let owner = json!({"oaas.io/owner": "shop"});
    let all = json!({"oaas.io/owner": "shop", "oaas.io/template": "odgm"});
    for (name, labels) in [
        ("mine", &owner),
        ("data-shop-odgm-9", &owner),
        ("backup", &all),
        ("data-shop-odgm-old", &all),
        ("data-shop-odgm-", &all),
    ] {
        cluster.put(&(CLAIM, name.to_owned()), claim(name, labels.clone()));
    }
    assert_eq!(claims(&cluster), 8);
    delete(&mut cluster);
    assert_eq!(claims(&cluster), 5);
}
