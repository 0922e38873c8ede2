//! Which members have which shards.

use std::collections::BTreeMap;

use oprc_models::{Assignment, Diagnostics, Member};

use super::faults;

/// Spreads shards over members: each goes to those that have fewest, those that want every part
/// have it, and nobody gets more than they take. Leaders are spread in the same way.
pub(super) fn assign(
    class: &str,
    members: &[(usize, &Member)],
    partitions: i32,
    copies: i32,
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) -> Vec<Assignment> {
    let mut loads: Vec<Load> = members.iter().map(|(_, member)| Load::new(member)).collect();
    for ((at, member), load) in members.iter().zip(&loads) {
        if member.all_partitions && load.most.is_some_and(|most| most < partitions) {
            let message =
                format!("{class} has {partitions} parts, and allPartitions asks for all of them");
            faults::add(faults, format!("members[{at}].maxShards"), message);
            return Vec::new();
        }
    }
    let wanted = usize::try_from(copies).unwrap_or(1).clamp(1, members.len().max(1));
    let mut groups: BTreeMap<(i32, Vec<i32>), Vec<i32>> = BTreeMap::new();
    let mut short = 0;
    for shard in 0..partitions {
        let mut owners: Vec<usize> =
            loads.iter().enumerate().filter(|(_, it)| it.all).map(|(at, _)| at).collect();
        let mut rest: Vec<(i32, usize)> = loads
            .iter()
            .enumerate()
            .filter(|(_, it)| !it.all && it.most.is_none_or(|most| it.shards < most))
            .map(|(at, it)| (it.shards, at))
            .collect();
        rest.sort_unstable();
        let missing = wanted.saturating_sub(owners.len());
        owners.extend(rest.into_iter().take(missing).map(|(_, at)| at));
        owners.sort_unstable();
        if owners.is_empty() {
            let message = format!("they leave no room for part {shard} of {partitions} of {class}");
            faults::hint(faults, "members", message, "raise maxShards, or have fewer parts");
            return Vec::new();
        }
        short += i32::from(owners.len() < wanted);
        let leads = |at: &&usize| loads.get(**at).map(|it| (it.leads, **at));
        let primary = owners.iter().min_by_key(leads).copied().unwrap_or_default();
        let mut ids = Vec::new();
        let mut lead = 0;
        for at in owners {
            let Some(load) = loads.get_mut(at) else { continue };
            load.shards += 1;
            if at == primary {
                load.leads += 1;
                lead = load.id;
            }
            ids.push(load.id);
        }
        groups.entry((lead, ids)).or_default().push(shard);
    }
    if short > 0 {
        warnings.push(format!(
            "{class}: {short} of {partitions} parts have fewer than {wanted} members, as maxShards \
             leaves no room"
        ));
    }
    let assignments = groups.into_iter().map(|((primary, owners), shard_ids)| Assignment {
        primary: Some(primary),
        owners,
        shard_ids,
    });
    assignments.collect()
}

/// Nobody can have parts that there aren't: how many there are may only be known once it is planned.
pub(super) fn check(
    class: &str,
    path: &str,
    assignments: &[Assignment],
    partitions: i32,
    faults: &mut Diagnostics,
) {
    for (at, assignment) in assignments.iter().enumerate() {
        let wrong = |(_, shard): &(usize, &i32)| **shard >= partitions;
        for (shard_at, shard) in assignment.shard_ids.iter().enumerate().filter(wrong) {
            let last = partitions.saturating_sub(1);
            let message = format!(
                "{shard} isn't between 0 and {last}: {class} has as many parts as partitionCount \
                 says or is planned, {partitions}"
            );
            faults::add(faults, format!("{path}[{at}].shardIds[{shard_at}]"), message);
        }
    }
}

/// What a member has so far.
struct Load {
    id: i32,
    all: bool,
    most: Option<i32>,
    shards: i32,
    leads: i32,
}

impl Load {
    fn new(member: &Member) -> Self {
        Self {
            id: member.id,
            all: member.all_partitions,
            most: member.max_shards.filter(|most| *most >= 0),
            shards: 0,
            leads: 0,
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
            let (mut faults, mut warnings) = (Diagnostics::default(), Vec::new());
            let assignments = assign("C", &members, partitions, copies, &mut faults, &mut warnings);
            if !faults.all.is_empty() {
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
            let wanted = usize::try_from(copies).unwrap_or(1).min(members.len());
            for it in &assignments {
                prop_assert!(it.primary.is_some_and(|primary| it.owners.contains(&primary)));
                prop_assert!(it.owners.len() >= wanted || !warnings.is_empty());
            }
            let mut free = Vec::new();
            for (_, member) in &members {
                let most = member.max_shards.filter(|most| *most >= 0);
                prop_assert!(most.is_none_or(|most| count(member.id) <= most));
                if member.all_partitions {
                    prop_assert_eq!(count(member.id), partitions);
                } else if most.is_none() {
                    free.push(count(member.id));
                }
            }
            // Those that take any number have the same number, give or take one.
            let spread = free.iter().max().zip(free.iter().min()).map_or(0, |(most, least)| most - least);
            prop_assert!(spread <= 1, "{:?}", free);
        }
    }
}
