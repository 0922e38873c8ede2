//! Members of a deployment, which divide the partitions of a class among them.

use std::collections::BTreeSet;

use oprc_models::limits;

use super::violations::Violations;
use crate::spec::{Collection, GridMember, OdgmConfig, ShardAssignment};

/// The members of a deployment, as the data grid of one of them knows them.
#[derive(Clone, Debug, PartialEq)]
pub struct MembershipPlan {
    /// Id of the member of this grid.
    pub own: i32,
    pub members: Vec<GridMember>,
}

/// The member of each partition, or why it isn't exactly one.
pub fn partition_owners(
    assignments: &[ShardAssignment],
    partitions: i32,
    members: &BTreeSet<i32>,
) -> Result<Vec<i32>, String> {
    let mut owners: Vec<Option<i32>> = vec![None; usize::try_from(partitions).unwrap_or_default()];
    for assignment in assignments {
        let owner = single_owner(assignment, members)?;
        for shard in &assignment.shard_ids {
            let place = usize::try_from(*shard).ok().and_then(|at| owners.get_mut(at));
            let last = partitions.saturating_sub(1);
            let place =
                place.ok_or_else(|| format!("partition {shard} isn't between 0 and {last}"))?;
            if place.replace(owner).is_some() {
                return Err(format!("partition {shard} is assigned twice"));
            }
        }
    }
    let complete = owners.iter().enumerate().map(|(partition, owner)| {
        owner.ok_or_else(|| format!("partition {partition} of {partitions} has no member"))
    });
    complete.collect()
}

fn single_owner(assignment: &ShardAssignment, members: &BTreeSet<i32>) -> Result<i32, String> {
    let ShardAssignment { primary, owners, .. } = assignment;
    let [owner] = owners.as_slice() else {
        let count = owners.len();
        return Err(format!("a partition has one owner, but {count} are given"));
    };
    if primary.is_some_and(|it| it != *owner) {
        return Err(format!("the primary must be the owner, {owner}"));
    }
    if !members.contains(owner) {
        return Err(format!("{owner} is not in members: {}", list(members)));
    }
    Ok(*owner)
}

fn list(members: &BTreeSet<i32>) -> String {
    members.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

/// A collection whose partitions are divided among members.
pub(super) struct DividedCollection<'a> {
    pub(super) name: &'a str,
    pub(super) partitions: i32,
    /// Set by [`resolve`]: the member of each partition.
    pub(super) owners: &'a mut Vec<i32>,
}

/// Resolves the members and the owners of partitions. None if the grid serves all objects.
pub(super) fn resolve(
    violations: &mut Violations,
    config: &OdgmConfig,
    collections: Vec<DividedCollection<'_>>,
) -> Option<MembershipPlan> {
    let Some(own) = config.member_id else {
        if !config.members.is_empty() {
            violations.add("odgm_config.members", "requires member_id, the member of this grid");
        }
        return None;
    };
    let ids: BTreeSet<i32> = config.members.iter().map(|it| it.id).collect();
    if ids.len() < config.members.len() {
        violations.add("odgm_config.members", "an id is given twice");
    }
    if !ids.contains(&own) {
        let message = format!("{own} is not in members: {}", list(&ids));
        violations.add("odgm_config.member_id", message);
        return None;
    }
    let count = |it: &DividedCollection<'_>| usize::try_from(it.partitions).unwrap_or_default();
    let total = collections.iter().map(count).fold(0, usize::saturating_add);
    if total > limits::DIVIDED_PARTITIONS {
        let max = limits::DIVIDED_PARTITIONS;
        let message = format!(
            "the collections have {total} partitions, but at most {max} can be divided among members"
        );
        violations.add("odgm_config.partition_count", message);
        return None;
    }
    for collection in collections {
        let (field, assignments) = assignments_of(config, collection.name);
        match partition_owners(assignments, collection.partitions, &ids) {
            Ok(owners) => *collection.owners = owners,
            Err(why) => violations.add(field, format!("collection {:?}: {why}", collection.name)),
        }
    }
    Some(MembershipPlan { own, members: config.members.clone() })
}

/// The assignments of a collection, and their field: its own, or else those of the grid.
fn assignments_of<'a>(config: &'a OdgmConfig, name: &str) -> (String, &'a [ShardAssignment]) {
    let own = config.collections.iter().enumerate().find_map(|(at, it)| match it {
        Collection::Spec(spec) if spec.name == name && !spec.shard_assignments.is_empty() => {
            let field = format!("odgm_config.collections[{at}].shard_assignments");
            Some((field, spec.shard_assignments.as_slice()))
        }
        _ => None,
    });
    own.unwrap_or_else(|| ("odgm_config.shard_assignments".to_owned(), &config.shard_assignments))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::from_model::shard_assignments;

    proptest! {
        #[test]
        fn assignments_and_owners_have_the_same_content(
            owners in proptest::collection::vec(0..5i32, 1..200)
        ) {
            let assignments = shard_assignments(&owners);
            let partitions = i32::try_from(owners.len()).unwrap_or_default();
            let found = partition_owners(&assignments, partitions, &(0..5).collect());
            prop_assert_eq!(found, Ok(owners));
        }
    }
}
