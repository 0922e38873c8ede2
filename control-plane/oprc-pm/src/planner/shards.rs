//! Assignment of shards to members.

use std::collections::BTreeMap;

use oprc_models::{Assignment, Diagnostics, Member};

use super::diagnostics;

/// Spreads shards evenly over members within their `maxShards`. Members with `allPartitions` have
/// every shard. Leaders are spread in the same way.
pub(super) fn assign(
    class: &str,
    members: &[(usize, &Member)],
    partitions: i32,
    copies: i32,
    diagnostics: &mut Diagnostics,
    warnings: &mut Vec<String>,
) -> Vec<Assignment> {
    let mut loads: Vec<Load> = members.iter().map(|(_, member)| Load::new(member)).collect();
    for ((at, member), load) in members.iter().zip(&loads) {
        if member.all_partitions && load.max.is_some_and(|max| max < partitions) {
            let message = format!(
                "{class} has {partitions} partitions, and allPartitions requires all of them"
            );
            diagnostics::add(diagnostics, format!("members[{at}].maxShards"), message);
            return Vec::new();
        }
    }
    let owners_per_shard = usize::try_from(copies).unwrap_or(1).clamp(1, members.len().max(1));
    let mut groups: BTreeMap<(i32, Vec<i32>), Vec<i32>> = BTreeMap::new();
    let mut short = 0;
    for shard in 0..partitions {
        let mut owners: Vec<usize> =
            loads.iter().enumerate().filter(|(_, it)| it.all).map(|(at, _)| at).collect();
        let mut rest: Vec<(i32, usize)> = loads
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.all && it.max.is_none_or(|max| it.shards < max))
            .map(|(at, it)| (it.shards, at))
            .collect();
        rest.sort_unstable();
        let missing = owners_per_shard.saturating_sub(owners.len());
        owners.extend(rest.into_iter().take(missing).map(|(_, at)| at));
        owners.sort_unstable();
        if owners.is_empty() {
            let message = format!(
                "maxShards of all members is too low for partition {shard} of {partitions} of {class}"
            );
            diagnostics::add_with_hint(
                diagnostics,
                "members",
                message,
                "raise maxShards, or lower partitionCount",
            );
            return Vec::new();
        }
        short += i32::from(owners.len() < owners_per_shard);
        let primaries = |at: &&usize| loads.get(**at).map(|it| (it.primaries, **at));
        let primary = owners.iter().min_by_key(primaries).copied().unwrap_or_default();
        let mut ids = Vec::new();
        let mut primary_id = 0;
        for at in owners {
            let Some(load) = loads.get_mut(at) else { continue };
            load.shards += 1;
            if at == primary {
                load.primaries += 1;
                primary_id = load.id;
            }
            ids.push(load.id);
        }
        groups.entry((primary_id, ids)).or_default().push(shard);
    }
    if short > 0 {
        warnings.push(format!(
            "{class}: {short} of {partitions} partitions have fewer than {owners_per_shard} members, \
             because maxShards is too low"
        ));
    }
    let assignments = groups.into_iter().map(|((primary, owners), shard_ids)| Assignment {
        primary: Some(primary),
        owners,
        shard_ids,
    });
    assignments.collect()
}

/// Checks the shard ids of assignments. The number of partitions may be known only after planning.
pub(super) fn check(
    class: &str,
    path: &str,
    assignments: &[Assignment],
    partitions: i32,
    diagnostics: &mut Diagnostics,
) {
    for (at, assignment) in assignments.iter().enumerate() {
        let wrong = |(_, shard): &(usize, &i32)| **shard >= partitions;
        for (shard_at, shard) in assignment.shard_ids.iter().enumerate().filter(wrong) {
            let last = partitions.saturating_sub(1);
            let message =
                format!("{shard} isn't between 0 and {last}: {class} has {partitions} partitions");
            diagnostics::add(diagnostics, format!("{path}[{at}].shardIds[{shard_at}]"), message);
        }
    }
}

/// Shards assigned to a member.
struct Load {
    id: i32,
    all: bool,
    max: Option<i32>,
    shards: i32,
    primaries: i32,
}

impl Load {
    fn new(member: &Member) -> Self {
        Self {
            id: member.id,
            all: member.all_partitions,
            max: member.max_shards.filter(|max| *max >= 0),
            shards: 0,
            primaries: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member() -> impl Strategy<Value = (Option<i32>, bool)> {
        (proptest::option::of(-1..8), proptest::bool::weighted(0.2))
    }

    proptest! {
        #[test]
        fn shards_are_spread(all in proptest::collection::vec(member(), 1..6), partitions in 1..20, copies in 1..4) {
            let members: Vec<Member> = all.iter().zip(1..).map(|((max_shards, all_partitions), id)| {
                Member { id, max_shards: *max_shards, all_partitions: *all_partitions, ..Member::default() }
            }).collect();
            let members: Vec<(usize, &Member)> = members.iter().enumerate().collect();
            let (mut diagnostics, mut warnings) = (Diagnostics::default(), Vec::new());
            let assignments = assign("C", &members, partitions, copies, &mut diagnostics, &mut warnings);
            if !diagnostics.all.is_empty() {
                prop_assert!(assignments.is_empty());
                return Ok(());
            }
            let mut shards: Vec<i32> = assignments.iter().flat_map(|it| it.shard_ids.clone()).collect();
            shards.sort_unstable();
            prop_assert_eq!(shards, (0..partitions).collect::<Vec<_>>());
            let count = |id: i32| -> i32 {
                let own = assignments.iter().filter(|it| it.owners.contains(&id));
                own.map(|it| i32::try_from(it.shard_ids.len()).unwrap_or(i32::MAX)).sum()
            };
            let owners_per_shard = usize::try_from(copies).unwrap_or(1).min(members.len());
            for it in &assignments {
                prop_assert!(it.primary.is_some_and(|primary| it.owners.contains(&primary)));
                prop_assert!(it.owners.len() >= owners_per_shard || !warnings.is_empty());
            }
            let mut free = Vec::new();
            for (_, member) in &members {
                let most = member.max_shards.filter(|max| *max >= 0);
                prop_assert!(most.is_none_or(|most| count(member.id) <= most));
                if member.all_partitions {
                    prop_assert_eq!(count(member.id), partitions);
                } else if most.is_none() {
                    free.push(count(member.id));
                }
            }
            // The numbers of members without maxShards differ by at most one.
            let spread = free.iter().max().zip(free.iter().min()).map_or(0, |(most, least)| most - least);
            prop_assert!(spread <= 1, "{:?}", free);
        }
    }
}
