//! Protects the data of persistent collections against changes that would lose it.

use oprc_unit::{
    CollectionPlan, OdgmPlan, Rejection, RejectionReason, UnitSpec, persistence, shard_type,
    spec::ShardType,
};
use sha2::{Digest as _, Sha256};

use crate::crd::{ClassRuntimeStatus, OdgmCollectionStatus};

/// The limit of `status.kept_collections`.
const MAX_KEPT: usize = 256;
/// Bytes of the partitions of a collection in its status.
const MAX_RANGES: usize = 256;

/// Persistent collections that may have claims: the present ones, and former ones whose data
/// wasn't given up.
pub fn kept_collections(
    plan: Option<&OdgmPlan>,
    before: &[OdgmCollectionStatus],
    spec: &UnitSpec,
) -> Vec<OdgmCollectionStatus> {
    let now = plan.into_iter().flat_map(collection_statuses);
    let mut kept: Vec<_> = now.filter(|it| it.persistence_mode == "persistent").collect();
    if !may_lose_data(spec) {
        let is_gone = |old: &&OdgmCollectionStatus| kept.iter().all(|now| now.name != old.name);
        let gone: Vec<_> = before.iter().filter(is_gone).cloned().collect();
        kept.extend(gone);
    }
    kept
}

/// How many nodes may have claims with data. The claims of a grid that was removed still exist, and so do
/// nodes that a grid hasn't removed from its members yet: `existing` is how many there are.
pub fn kept_nodes(
    plan: Option<&OdgmPlan>,
    existing: Option<i32>,
    before: Option<i32>,
    kept: &[OdgmCollectionStatus],
) -> Option<i32> {
    let now =
        plan.map(|plan| plan.replicas.max(existing.filter(|_| plan.is_replicated()).unwrap_or(0)));
    now.or(before).filter(|_| !kept.is_empty())
}

pub fn may_lose_data(spec: &UnitSpec) -> bool {
    spec.data_retention.as_ref().is_some_and(|it| it.allow_data_loss)
}

/// Keeps nodes that were added since: they may hold replicas, and a rollback must not give them up.
pub fn with_nodes_kept(spec: &mut UnitSpec, status: &ClassRuntimeStatus) {
    let Some(nodes) = status.kept_nodes.filter(|_| !may_lose_data(spec)) else { return };
    let config = spec.odgm_config.get_or_insert_default();
    config.replicas = Some(config.replicas.unwrap_or(1).max(nodes));
}

/// Rejects changes to the layout of persistent collections unless data loss is allowed.
pub fn check_data_protection(
    plan: Option<&OdgmPlan>,
    status: Option<&ClassRuntimeStatus>,
    spec: &UnitSpec,
) -> Result<(), Rejection> {
    let (Some(plan), Some(status)) = (plan, status) else { return Ok(()) };
    if may_lose_data(spec) {
        return Ok(());
    }
    let at_risk = |field: &str, what: String| {
        let message = format!("{what}; this requires data_retention.allow_data_loss");
        Err(Rejection::precondition(RejectionReason::DataAtRisk, field, message))
    };
    if let Some(field) = status.unreadable.keys().next() {
        let what = format!("status.{field} is unreadable, so a change could lose persistent data");
        return at_risk("odgm_config", what);
    }
    let (nodes, replicas) = (status.kept_nodes.unwrap_or(0), plan.replicas);
    // A grid that runs removes members one after the other.
    let is_raft = |it: &OdgmCollectionStatus| it.shard_type == shard_type(ShardType::Raft);
    let runs = status.odgm.as_ref().is_some_and(|grid| grid.collections.iter().all(is_raft));
    if replicas < nodes && !(runs && plan.is_replicated()) {
        let what = format!(
            "the data grid has persistent collections and would shrink from {nodes} nodes to \
             {replicas}"
        );
        return at_risk("odgm_config.replicas", what);
    }
    for old in &status.kept_collections {
        let name = &old.name;
        let Some(new) = collection_statuses(plan).find(|new| new.name == *name) else { continue };
        if let Some((what, from, to)) = difference(old, &new) {
            let what = format!(
                "the {what} of the persistent collection {name:?} would change from {from} to {to}"
            );
            return at_risk("odgm_config.collections", what);
        }
    }
    if kept_collections(Some(plan), &status.kept_collections, spec).len() > MAX_KEPT {
        let count = status.kept_collections.len();
        let what = format!(
            "{count} former persistent collections may have claims, and CRM can record at most \
             {MAX_KEPT}: some would be forgotten"
        );
        return at_risk("odgm_config.collections", what);
    }
    Ok(())
}

/// The first property of a collection that would change, with both values. Members of `raft` come and go
/// without a loss; fewer nodes are checked on their own.
fn difference(
    old: &OdgmCollectionStatus,
    new: &OdgmCollectionStatus,
) -> Option<(&'static str, String, String)> {
    let stays_raft =
        old.shard_type == new.shard_type && new.shard_type == shard_type(ShardType::Raft);
    [
        ("partition count", old.partition_count.to_string(), new.partition_count.to_string()),
        ("shard type", old.shard_type.clone(), new.shard_type.clone()),
        ("replication", old.replica_count.to_string(), new.replica_count.to_string()),
        ("persistence", old.persistence_mode.clone(), new.persistence_mode.clone()),
        ("assignment of partitions", assigned(old), assigned(new)),
    ]
    .into_iter()
    .find(|(what, from, to)| from != to && !(stays_raft && *what == "replication"))
}

fn assigned(collection: &OdgmCollectionStatus) -> String {
    match collection.member_partitions.as_deref() {
        None => "all".to_owned(),
        Some("") => "none".to_owned(),
        Some(partitions) => partitions.to_owned(),
    }
}

/// Numbers as ranges, such as `0-3,7`. A long list is replaced by its digest, which shows a change, too.
fn ranges(numbers: impl Iterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last)| {
        if first == last { format!("{first}") } else { format!("{first}-{last}") }
    };
    let text = ranges.into_iter().map(range).collect::<Vec<_>>().join(",");
    if text.len() > MAX_RANGES {
        return format!("sha256:{}", hex::encode(Sha256::digest(text)));
    }
    text
}

/// `own` is the member of the grid, if partitions are divided among members.
fn collection_status(plan: &CollectionPlan, own: Option<i32>) -> OdgmCollectionStatus {
    let partitions = plan.owners.iter().enumerate();
    let own_partitions = partitions.filter(|(_, owner)| Some(**owner) == own).map(|(at, _)| at);
    let has_all = plan.owners.iter().all(|owner| Some(*owner) == own);
    OdgmCollectionStatus {
        name: plan.name.clone(),
        partition_count: plan.partitions,
        replica_count: plan.replicas,
        shard_type: shard_type(plan.shard_type).to_owned(),
        persistence_mode: persistence(plan.persistence).to_owned(),
        member_partitions: (!has_all).then(|| ranges(own_partitions)),
    }
}

/// The collections of a grid.
pub fn collection_statuses(plan: &OdgmPlan) -> impl Iterator<Item = OdgmCollectionStatus> {
    let own = plan.membership.as_ref().map(|it| it.own);
    plan.collections.iter().map(move |it| collection_status(it, own))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

    use oprc_unit::{Identity, Platform, Profile, ValidClass, validate};
    use serde_json::{Value, json};

    use super::*;
    use crate::crd::OdgmStatus;

    fn read(spec: &Value) -> UnitSpec {
        serde_json::from_value(spec.clone()).unwrap()
    }

    fn check(spec: &Value) -> ValidClass {
        let identity = Identity::for_unit("shop", "ns", None);
        validate(Profile::Full, identity, &read(spec), &Platform::of(Profile::Full)).unwrap()
    }

    fn plain() -> Value {
        json!({"functions": [{"key": "f", "image": "img"}]})
    }

    fn with(spec: &Value, pointer: &str, value: Value) -> Value {
        let mut spec = spec.clone();
        let mut place = &mut spec;
        for part in pointer.trim_start_matches('/').split('/') {
            place = &mut place[part];
        }
        *place = value;
        spec
    }

    fn grid(config: &Value) -> Value {
        with(&with(&plain(), "/addons", json!(["odgm"])), "/odgm_config", config.clone())
    }

    /// The status of a class that was reconciled.
    fn status_of(spec: &Value) -> ClassRuntimeStatus {
        let plan = check(spec).odgm;
        let kept = kept_collections(plan.as_ref(), &[], &read(spec));
        ClassRuntimeStatus {
            kept_nodes: kept_nodes(plan.as_ref(), None, None, &kept),
            kept_collections: kept,
            odgm: plan.map(|plan| OdgmStatus {
                replicas: plan.replicas,
                collections: collection_statuses(&plan).collect(),
                ..OdgmStatus::default()
            }),
            ..ClassRuntimeStatus::default()
        }
    }

    fn guarded(spec: &Value, status: &ClassRuntimeStatus) -> Result<(), String> {
        let plan = check(spec).odgm;
        check_data_protection(plan.as_ref(), Some(status), &read(spec)).map_err(|rejection| {
            assert_eq!(
                (rejection.reason, rejection.precondition),
                (RejectionReason::DataAtRisk, true)
            );
            rejection.message
        })
    }

    fn collection(extra: &Value) -> Value {
        of_nodes(5, extra)
    }

    fn of_nodes(nodes: i32, extra: &Value) -> Value {
        let mut collection =
            json!({"name": "a", "partition_count": 4, "persistence_mode": "persistent"});
        for (name, value) in extra.as_object().unwrap() {
            collection[name] = value.clone();
        }
        grid(&json!({"collections": [collection], "replicas": nodes}))
    }

    #[test]
    fn changes_that_lose_data_need_permission() {
        let ephemeral = json!({"persistence_mode": "ephemeral"});
        for (nodes, changed, word) in [
            (5, of_nodes(5, &json!({"partition_count": 8})), "partition count"),
            (1, of_nodes(3, &json!({})), "shard type"),
            (1, of_nodes(1, &ephemeral), "persistence"),
            (3, of_nodes(1, &json!({})), "from 3 nodes to 1"),
        ] {
            let status = status_of(&of_nodes(nodes, &json!({})));
            guarded(&of_nodes(nodes, &json!({})), &status).unwrap();
            let message = guarded(&changed, &status).unwrap_err();
            assert!(message.contains(word) && message.contains("allow_data_loss"), "{message}");
            let allowed = with(&changed, "/data_retention/allow_data_loss", json!(true));
            guarded(&allowed, &status).unwrap();
        }
        let status = status_of(&collection(&json!({})));
        for nodes in [3, 7] {
            guarded(&of_nodes(nodes, &json!({})), &status).unwrap();
        }
    }

    /// A grid of member 1 of two, with these owners of partitions.
    fn of_member(owners: &[i32]) -> Value {
        let assignments = oprc_unit::from_model::shard_assignments(owners);
        let members = json!([{"id": 1, "cluster": "east"}, {"id": 2, "cluster": "west"}]);
        let spec = with(&of_nodes(1, &json!({})), "/odgm_config/member_id", json!(1));
        let spec = with(&spec, "/odgm_config/members", members);
        with(&spec, "/odgm_config/shard_assignments", json!(assignments))
    }

    #[test]
    fn partitions_of_persistent_collections_stay_at_their_member() {
        let status = status_of(&of_member(&[1, 1, 2, 1]));
        assert_eq!(status.kept_collections[0].member_partitions.as_deref(), Some("0-1,3"));
        guarded(&of_member(&[1, 1, 2, 1]), &status).unwrap();
        // Nor are they moved to this member: their objects are elsewhere.
        for owners in [[1, 2, 2, 1], [1, 1, 1, 1], [1, 2, 1, 1]] {
            let changed = of_member(&owners);
            let message = guarded(&changed, &status).unwrap_err();
            assert!(message.contains("the assignment of partitions of the"), "{message}");
            assert!(message.contains("from 0-1,3 to "), "{message}");
            guarded(&with(&changed, "/data_retention/allow_data_loss", json!(true)), &status)
                .unwrap();
        }
        // A member with all partitions is like a grid without members.
        let alone = of_nodes(1, &json!({}));
        assert!(guarded(&alone, &status).unwrap_err().contains("from 0-1,3 to all"));
        guarded(&alone, &status_of(&of_member(&[1, 1, 1, 1]))).unwrap();
        guarded(&of_member(&[1, 1, 1, 1]), &status_of(&alone)).unwrap();
        assert!(guarded(&of_member(&[1, 1, 2, 1]), &status_of(&alone)).is_err());
    }

    #[test]
    fn long_lists_of_partitions_are_shortened() {
        assert_eq!(ranges([].into_iter()), "");
        assert_eq!(ranges([0, 1, 2, 5, 7, 8].into_iter()), "0-2,5,7-8");
        let (even, odd) = (ranges((0..4096).step_by(2)), ranges((1..4096).step_by(2)));
        assert!(even.starts_with("sha256:") && even.len() == 71 && even != odd, "{even}");
    }

    #[test]
    fn ephemeral_collections_are_not_protected() {
        let status = status_of(&of_nodes(1, &json!({"persistence_mode": "ephemeral"})));
        let other = json!({"persistence_mode": "ephemeral", "partition_count": 8});
        guarded(&of_nodes(1, &other), &status).unwrap();
        guarded(&of_nodes(3, &json!({})), &status).unwrap();
    }

    /// Claims stay when the grid is removed.
    #[test]
    fn collections_stay_protected_while_the_grid_is_removed() {
        let mut status = status_of(&collection(&json!({})));
        guarded(&plain(), &status).unwrap();
        status.kept_collections = kept_collections(None, &status.kept_collections, &read(&plain()));
        status.odgm = None;
        assert!(guarded(&collection(&json!({"partition_count": 8})), &status).is_err());
        guarded(&collection(&json!({})), &status).unwrap();
        // Nor does removing the grid allow fewer nodes.
        status.kept_nodes = kept_nodes(None, None, status.kept_nodes, &status.kept_collections);
        let fewer = with(&collection(&json!({})), "/odgm_config/replicas", json!(3));
        assert!(guarded(&fewer, &status).unwrap_err().contains("from 5 nodes to 3"));

        let given_up = with(&plain(), "/data_retention/allow_data_loss", json!(true));
        status.kept_collections =
            kept_collections(None, &status.kept_collections, &read(&given_up));
        guarded(&collection(&json!({"partition_count": 8})), &status).unwrap();
    }

    /// The status is bounded; no collection is dropped silently.
    #[test]
    fn more_collections_than_the_status_can_hold_are_rejected() {
        let mut status = status_of(&collection(&json!({})));
        let one = status.kept_collections[0].clone();
        status.kept_collections = (0..256)
            .map(|at| OdgmCollectionStatus { name: format!("old-{at}"), ..one.clone() })
            .collect();
        let message = guarded(&collection(&json!({})), &status).unwrap_err();
        assert!(message.contains("forgotten"), "{message}");
        let allowed = with(&collection(&json!({})), "/data_retention/allow_data_loss", json!(true));
        guarded(&allowed, &status).unwrap();
    }

    #[test]
    fn unreadable_data_guard_rejects_changes_unless_data_may_be_lost() {
        let spec = collection(&json!({}));
        let mut status = status_of(&spec);
        guarded(&spec, &status).unwrap();
        status.unreadable.insert("kept_collections".to_owned(), json!("damaged"));
        let message = guarded(&spec, &status).unwrap_err();
        assert!(message.contains("status.kept_collections is unreadable"), "{message}");
        let allowed = with(&spec, "/data_retention/allow_data_loss", json!(true));
        guarded(&allowed, &status).unwrap();
    }
}
