//! Assignment of shards to members.

use std::collections::BTreeMap;

use oprc_models::{Assignment, Member};

use super::findings::Findings;

/// Spreads shards evenly over members within their `maxShards`. Members with `allPartitions` have
/// every shard. Leaders are spread in the same way.
pub(super) fn assign(
    class: &str,
    members: &[Member],
    partitions: i32,
    copies: i32,
    findings: &mut Findings,
) -> Vec<Assignment> {
    let load = |(at, member)| Load { at, member, shards: 0, primaries: 0 };
    let mut loads: Vec<Load<'_>> = members.iter().enumerate().map(load).collect();
    let has_all = |load: &&Load<'_>| load.member.all_partitions;
    if let Some(load) = loads.iter().filter(has_all).find(|it| !it.has_room(partitions - 1)) {
        let message =
            format!("{class} has {partitions} partitions, and allPartitions requires all of them");
        findings.reject(format!("members[{}].maxShards", load.at), message, None);
        return Vec::new();
    }
    let with_all = loads.iter().filter(has_all).count();
    let owners_per_shard = usize::try_from(copies).unwrap_or(1).clamp(1, members.len().max(1));
    let mut groups: BTreeMap<(i32, Vec<i32>), Vec<i32>> = BTreeMap::new();
    let mut short = 0;
    for shard in 0..partitions {
        let mut owners: Vec<&mut Load<'_>> =
            loads.iter_mut().filter(|it| it.has_room(it.shards)).collect();
        owners.sort_by_key(|it| (!it.member.all_partitions, it.shards));
        owners.truncate(owners_per_shard.max(with_all));
        owners.sort_by_key(|it| it.at);
        short += i32::from(owners.len() < owners_per_shard);
        let Some(primary) = owners.iter_mut().min_by_key(|it| it.primaries) else {
            let message = format!(
                "maxShards of all members is too low for partition {shard} of {partitions} of {class}"
            );
            findings.reject("members", message, Some("raise maxShards, or lower partitionCount"));
            return Vec::new();
        };
        primary.primaries += 1;
        let primary = primary.member.id;
        let mut ids = Vec::new();
        for owner in owners {
            owner.shards += 1;
            ids.push(owner.member.id);
        }
        groups.entry((primary, ids)).or_default().push(shard);
    }
    if short > 0 {
        findings.warn(format!(
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
    findings: &mut Findings,
) {
    for (at, assignment) in assignments.iter().enumerate() {
        let wrong = |(_, shard): &(usize, &i32)| **shard >= partitions;
        for (shard_at, shard) in assignment.shard_ids.iter().enumerate().filter(wrong) {
            let last = partitions.saturating_sub(1);
            let message =
                format!("{shard} isn't between 0 and {last}: {class} has {partitions} partitions");
            findings.reject(format!("{path}[{at}].shardIds[{shard_at}]"), message, None);
        }
    }
}

/// Shards assigned to a member.
struct Load<'a> {
    at: usize,
    member: &'a Member,
    shards: i32,
    primaries: i32,
}

impl Load<'_> {
    /// Whether the member may have more than this many shards.
    fn has_room(&self, shards: i32) -> bool {
        self.member.max_shards.is_none_or(|max| max < 0 || shards < max)
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
            let mut findings = Findings::default();
            let assignments = assign("C", &members, partitions, copies, &mut findings);
            let Findings { diagnostics, warnings } = findings;
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
            for member in &members {
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
