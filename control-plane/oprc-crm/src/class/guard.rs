//! Spares data: what is known of the claims that a class has, and what mustn't be done to them.

use super::{CollectionPlan, OdgmPlan, Refusal};
use crate::crd::{ClassRuntimeSpec, ClassRuntimeStatus, OdgmCollectionStatus};

/// How many collections a status can remember.
const REMEMBERED: usize = 256;

/// Persistent collections that there are claims for, as far as is known: those of now, and those
/// of before that were left out without their data being given up.
pub fn kept_collections(
    plan: Option<&OdgmPlan>,
    before: &[OdgmCollectionStatus],
    spec: &ClassRuntimeSpec,
) -> Vec<OdgmCollectionStatus> {
    let now = plan.into_iter().flat_map(|plan| &plan.collections).map(CollectionPlan::status);
    let mut kept: Vec<_> = now.filter(|it| it.persistence_mode == "persistent").collect();
    if !may_lose_data(spec) {
        let gone: Vec<_> = before
            .iter()
            .filter(|old| kept.iter().all(|now| now.name != old.name))
            .cloned()
            .collect();
        kept.extend(gone);
    }
    kept
}

/// How many nodes have claims with something in them, as far as is known. A grid that is switched
/// off has none, and its claims are still there.
pub fn kept_nodes(
    plan: Option<&OdgmPlan>,
    before: Option<i32>,
    kept: &[OdgmCollectionStatus],
) -> Option<i32> {
    plan.map(|plan| plan.replicas).or(before).filter(|_| !kept.is_empty())
}

fn may_lose_data(spec: &ClassRuntimeSpec) -> bool {
    spec.data_retention.as_ref().is_some_and(|it| it.allow_data_loss)
}

/// A specification that has its grid keep the nodes that have come since. They may hold copies by
/// now: to give them up is for the class to say, and not a part of going back.
pub fn with_nodes_kept(spec: &mut ClassRuntimeSpec, status: &ClassRuntimeStatus) {
    let Some(nodes) = status.kept_nodes.filter(|_| !may_lose_data(spec)) else { return };
    let config = spec.odgm_config.get_or_insert_default();
    config.replicas = Some(config.replicas.unwrap_or(1).max(nodes));
}

/// Refuses to change what a live persistent collection is made of, unless its data may go.
pub fn guard_data(
    plan: Option<&OdgmPlan>,
    status: Option<&ClassRuntimeStatus>,
    spec: &ClassRuntimeSpec,
) -> Result<(), Refusal> {
    let (Some(plan), Some(status)) = (plan, status) else { return Ok(()) };
    if may_lose_data(spec) {
        return Ok(());
    }
    let at_risk = |field: &str, what: String| {
        let message = format!("{what}; that needs data_retention.allow_data_loss");
        Err(Refusal::precondition("DataAtRisk", field, message))
    };
    let nodes = status.kept_nodes.unwrap_or(0);
    if plan.replicas < nodes {
        return at_risk(
            "odgm_config.replicas",
            format!(
                "the data grid has persistent collections, and would go from {nodes} nodes to {}",
                plan.replicas
            ),
        );
    }
    for old in &status.kept_collections {
        let Some(new) = plan.collections.iter().find(|new| new.name == old.name) else { continue };
        if let Some((what, from, to)) = difference(old, &new.status()) {
            return at_risk(
                "odgm_config.collections",
                format!(
                    "{what} of the persistent collection {:?} would change from {from} to {to}",
                    old.name
                ),
            );
        }
    }
    if kept_collections(Some(plan), &status.kept_collections, spec).len() > REMEMBERED {
        return at_risk(
            "odgm_config.collections",
            format!(
                "there may be claims for {} other persistent collections, and no more than \
                 {REMEMBERED} can be told apart: some would be forgotten",
                status.kept_collections.len()
            ),
        );
    }
    Ok(())
}

/// What would change of a collection, from what to what.
fn difference(
    old: &OdgmCollectionStatus,
    new: &OdgmCollectionStatus,
) -> Option<(&'static str, String, String)> {
    [
        ("the partitions", old.partition_count.to_string(), new.partition_count.to_string()),
        ("the shard type", old.shard_type.clone(), new.shard_type.clone()),
        ("the replication", old.replica_count.to_string(), new.replica_count.to_string()),
        ("the persistence", old.persistence_mode.clone(), new.persistence_mode.clone()),
    ]
    .into_iter()
    .find(|(_, from, to)| from != to)
}
