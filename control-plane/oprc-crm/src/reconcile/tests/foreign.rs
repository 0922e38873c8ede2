//! Objects of other owners are never changed.

use proptest::{prelude::*, sample::Index};
use serde_json::json;

use super::{super::Action, cases, cluster::Cluster, specs};
use crate::crd::Phase;

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn an_object_of_another_owner_is_a_conflict(spec in specs::any(), at in any::<Index>()) {
        let converged = Cluster::with(&spec);
        let keys = converged.own_keys();
        let key = at.get(&keys);

        let mut cluster = Cluster::new();
        cluster.create_foreign(key, &json!({"theirs": true, "scaleTargetRef": {"kind": "X", "name": "x"},
            "minReplicas": 1, "maxReplicas": 1}));
        // The controller of the kind doesn't matter here.
        cluster.stopped.insert(key.0.clone());
        let theirs = cluster.object(key).cloned();
        cluster.set_spec(&spec);
        for _ in 0..12 {
            cluster.run_controllers();
            for action in cluster.reconcile().actions {
                match action {
                    Action::Apply(write) | Action::IssueCertificate(write) => {
                        prop_assert_ne!(&(write.desired.kind, write.desired.name), key);
                    }
                    Action::Delete(child) => {
                        prop_assert_ne!(&(child.kind.clone(), child.name.clone()), key);
                    }
                    _ => {}
                }
            }
        }
        prop_assert_eq!(cluster.phase(), (Phase::Degraded, "NameConflict".to_owned()));
        prop_assert!(cluster.status().message.unwrap().contains(&key.1));
        prop_assert_eq!(cluster.reconcile().actions, [], "reported once");
        prop_assert_eq!(cluster.object(key).cloned(), theirs.clone());

        // Nor is it deleted with the class.
        let mut other = cluster.clone();
        other.delete_class();
        for _ in 0..6 {
            other.reconcile();
            other.run_controllers();
        }
        prop_assert!(!other.has_class());
        prop_assert_eq!(other.object(key).cloned(), theirs);

        cluster.remove(key);
        cluster.stopped.clear();
        cluster.converge();
        prop_assert_eq!(cluster.outcome(), converged.outcome());
    }
}

#[test]
fn objects_of_a_deleted_class_of_the_same_name_are_awaited() {
    let (mut cluster, view) = Cluster::with_early_view(&specs::one("dev"));
    cluster.delete_class();
    for _ in 0..3 {
        cluster.reconcile();
        cluster.run_controllers();
    }
    assert!(!cluster.has_class());
    // Recreated by a late write, with an owner that doesn't exist.
    cluster.reconcile_on(&view, usize::MAX);
    cluster.set_spec(&specs::one("dev"));
    let decision = cluster.reconcile();
    assert!(!decision.actions.iter().any(|it| matches!(
        it,
        Action::Apply(_) | Action::IssueCertificate(_) | Action::Delete(_)
    )));
    assert_eq!(cluster.phase(), (Phase::Applying, "WaitingForDeletion".to_owned()));
    cluster.converge();
    assert_eq!(cluster.phase().0, Phase::Available);
}
