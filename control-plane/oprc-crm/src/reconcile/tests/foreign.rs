//! Objects of other owners are never changed.

use proptest::{prelude::*, sample::Index};
use serde_json::json;

use super::{super::Action, cases, cluster::Cluster, specs};
use crate::crd::Phase;

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn an_object_of_another_owner_is_a_conflict(spec in specs::any(), at in any::<Index>()) {
        let calm = Cluster::with(&spec);
        let keys = calm.own_keys();
        let key = at.get(&keys);

        let mut cluster = Cluster::new();
        cluster.make_foreign(key, &json!({"theirs": true, "scaleTargetRef": {"kind": "X", "name": "x"},
            "minReplicas": 1, "maxReplicas": 1}));
        // The controller of the kind doesn't matter here.
        cluster.away.insert(key.0.clone());
        let theirs = cluster.object(key).cloned();
        cluster.ask(&spec);
        for _ in 0..12 {
            cluster.settle();
            for action in cluster.pass().actions {
                match action {
                    Action::Apply(write) => {
                        prop_assert_ne!(&(write.desired.kind, write.desired.name), key);
                    }
                    Action::Delete(child) => {
                        prop_assert_ne!(&(child.kind.clone(), child.name.clone()), key);
                    }
                    _ => {}
                }
            }
        }
        prop_assert_eq!(cluster.phase(), (Phase::Degraded, "NameTaken".to_owned()));
        prop_assert!(cluster.status().message.unwrap().contains(&key.1));
        prop_assert_eq!(cluster.pass().actions, [], "reported once");
        prop_assert_eq!(cluster.object(key).cloned(), theirs.clone());

        // Nor is it deleted with the class.
        let mut other = cluster.clone();
        other.delete_class();
        for _ in 0..6 {
            other.pass();
            other.settle();
        }
        prop_assert!(!other.has_class());
        prop_assert_eq!(other.object(key).cloned(), theirs);

        cluster.remove(key);
        cluster.away.clear();
        cluster.rest();
        prop_assert_eq!(cluster.outcome(), calm.outcome());
    }
}

#[test]
fn objects_of_a_deleted_class_of_the_same_name_are_awaited() {
    let (mut cluster, view) = Cluster::with_early_view(&specs::one("dev"));
    cluster.delete_class();
    for _ in 0..3 {
        cluster.pass();
        cluster.settle();
    }
    assert!(!cluster.has_class());
    // Recreated by a late write, with an owner that doesn't exist.
    cluster.pass_on(&view, usize::MAX);
    cluster.ask(&specs::one("dev"));
    let decision = cluster.pass();
    assert!(!decision.actions.iter().any(|it| matches!(it, Action::Apply(_) | Action::Delete(_))));
    assert_eq!(cluster.phase(), (Phase::Applying, "WaitingForDeletion".to_owned()));
    cluster.rest();
    assert_eq!(cluster.phase().0, Phase::Available);
}
