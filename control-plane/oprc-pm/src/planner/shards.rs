//! Assignment of partitions to members.

use std::collections::BTreeMap;

use oprc_models::{Assignment, Member};

use super::findings::Findings;

/// The partitions of a collection, which are divided among members.
pub(super) struct Division<'a> {
    pub(super) class: &'a str,
    pub(super) members: &'a [Member],
    pub(super) partitions: i32,
    /// Members by partition, as the deployment sets them.
    pub(super) set: BTreeMap<i32, i32>,
    /// Members by partition, as the current plan has them; none if the data grid isn't one's any more.
    pub(super) current: BTreeMap<i32, Option<i32>>,
    /// Whether partitions may get another member, although their objects stay where they are.
    pub(super) may_lose_data: bool,
}

impl Division<'_> {
    /// The member of each partition. A partition keeps its member, which stores its objects; new ones are
    /// spread evenly. None if members don't allow that, which is reported.
    pub(super) fn owners(&self, findings: &mut Findings) -> Option<Vec<i32>> {
        if !self.check_all_partitions(findings) {
            return None;
        }
        let all = self.members.iter().find(|it| it.all_partitions).map(|it| it.id);
        let mut loads: Vec<Load<'_>> =
            self.members.iter().map(|member| Load { member, shards: 0 }).collect();
        let mut fixed: Vec<Option<i32>> = (0..self.partitions)
            .map(|shard| {
                let id = self.set.get(&shard).copied().or(all)?;
                loads.iter_mut().find(|it| it.member.id == id).map(take)
            })
            .collect();
        // Only what the deployment doesn't set stays, as far as there is room for it.
        for (shard, owner) in (0..).zip(&mut fixed).filter(|(_, owner)| owner.is_none()) {
            let Some(current) = self.current.get(&shard).copied().flatten() else { continue };
            let load = loads.iter_mut().find(|it| it.member.id == current);
            *owner = load.filter(|it| it.has_room(it.shards)).map(take);
        }
        let mut owners = Vec::with_capacity(fixed.len());
        for (shard, owner) in fixed.into_iter().enumerate() {
            let owner = owner.or_else(|| {
                let free = loads.iter_mut().filter(|it| it.has_room(it.shards));
                free.min_by_key(|it| it.shards).map(take)
            });
            let Some(owner) = owner else {
                self.reject_too_low(shard, findings);
                return None;
            };
            owners.push(owner);
        }
        self.check_moves(&owners, findings).then_some(owners)
    }

    /// A partition that gets another member would have two for a while, each with objects of its own: the
    /// former one refuses the change of a persistent collection.
    fn check_moves(&self, owners: &[i32], findings: &mut Findings) -> bool {
        let moved = (0..).zip(owners).find_map(|(shard, owner)| {
            let current = self.current.get(&shard).filter(|it| **it != Some(*owner))?;
            Some((shard, current, owner))
        });
        let Some((shard, current, owner)) = moved.filter(|_| !self.may_lose_data) else {
            return true;
        };
        let from = current.map_or("a former member".to_owned(), |id| format!("member {id}"));
        let class = self.class;
        let message = format!(
            "partition {shard} of {class} would move from {from} to member {owner} without its objects"
        );
        let field = if self.set.contains_key(&shard) { "assignments" } else { "members" };
        let hint = "restore a backup into another deployment, or set odgm.allowDataLoss";
        findings.reject(field, message, Some(hint));
        false
    }

    fn reject_too_low(&self, shard: usize, findings: &mut Findings) {
        let Self { class, partitions, .. } = self;
        let message = format!(
            "maxShards of all members is too low for partition {shard} of {partitions} of {class}"
        );
        findings.reject("members", message, Some("raise maxShards, or lower partitionCount"));
    }

    /// At most one member has all partitions, and then no other one has any.
    fn check_all_partitions(&self, findings: &mut Findings) -> bool {
        let Self { class, members, partitions, .. } = self;
        let mut with_all = members.iter().enumerate().filter(|(_, it)| it.all_partitions);
        let Some((at, member)) = with_all.next() else { return true };
        let id = member.id;
        if let Some((other, _)) = with_all.next() {
            let message = format!(
                "a partition has one member, but member {id} has all partitions of {class} already"
            );
            let hint = "replicas of a partition are in the cluster of its member: see replicaCount";
            findings.reject(format!("members[{other}].allPartitions"), message, Some(hint));
            return false;
        }
        if member.max_shards.is_some_and(|max| (0..*partitions).contains(&max)) {
            let message = format!(
                "{class} has {partitions} partitions, and allPartitions requires all of them"
            );
            findings.reject(format!("members[{at}].maxShards"), message, None);
            return false;
        }
        if let Some((shard, owner)) = self.set.iter().find(|(_, owner)| **owner != id) {
            let message =
                format!("assignments give partition {shard} of {class} to member {owner}");
            findings.reject(format!("members[{at}].allPartitions"), message, None);
            return false;
        }
        true
    }
}

/// Members by partition, as assignments set them.
pub(super) fn by_partition(assignments: &[Assignment], partitions: i32) -> BTreeMap<i32, i32> {
    let each = assignments.iter().filter_map(|it| Some((it.owners.first()?, &it.shard_ids)));
    let each = each.flat_map(|(owner, shards)| shards.iter().map(|shard| (*shard, *owner)));
    each.filter(|(shard, _)| (0..partitions).contains(shard)).collect()
}

/// Checks assignments. The number of partitions may be known only after planning.
pub(super) fn check(
    class: &str,
    path: &str,
    assignments: &[Assignment],
    partitions: i32,
    findings: &mut Findings,
) {
    for (at, assignment) in assignments.iter().enumerate() {
        if let [_, _, ..] = assignment.owners.as_slice() {
            let owners: Vec<_> = assignment.owners.iter().map(i32::to_string).collect();
            let owners = owners.join(", ");
            let message = format!("a partition has one member, but {owners} are listed");
            let hint = format!(
                "list one of: {owners}; replicas of a partition are in the cluster of its member: \
                 see replicaCount"
            );
            findings.reject(format!("{path}[{at}].owners"), message, Some(&hint));
        }
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
    member: &'a Member,
    shards: i32,
}

/// Assigns one more shard to a member.
fn take(load: &mut Load<'_>) -> i32 {
    load.shards += 1;
    load.member.id
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

    #[derive(Clone, Debug)]
    struct Case {
        members: Vec<Member>,
        partitions: i32,
        set: BTreeMap<i32, i32>,
        current: BTreeMap<i32, Option<i32>>,
        may_lose_data: bool,
    }

    fn member() -> impl Strategy<Value = (Option<i32>, bool)> {
        (proptest::option::of(-1..8), proptest::bool::weighted(0.1))
    }

    fn case() -> impl Strategy<Value = Case> {
        let owners = || proptest::collection::btree_map(0..20i32, 1..6i32, 0..8);
        let members = proptest::collection::vec(member(), 1..6);
        (members, 1..20, owners(), owners(), any::<bool>()).prop_map(
            |(all, partitions, set, current, may_lose_data)| {
                let members: Vec<Member> = (1..)
                    .zip(all)
                    .map(|(id, (max_shards, all_partitions))| Member {
                        id,
                        max_shards,
                        all_partitions,
                        ..Member::default()
                    })
                    .collect();
                let exists = |shard: &i32, id: &i32| {
                    *shard < partitions && members.iter().any(|it| it.id == *id)
                };
                let set = set.into_iter().filter(|(shard, id)| exists(shard, id)).collect();
                let is_member = |id: &i32| members.iter().any(|it| it.id == *id);
                let current =
                    current.into_iter().map(|(shard, id)| (shard, Some(id).filter(is_member)));
                let current = current.collect();
                Case { members, partitions, set, current, may_lose_data }
            },
        )
    }

    impl Case {
        fn owners(&self) -> Result<Vec<i32>, Findings> {
            let Self { members, partitions, set, current, may_lose_data } = self.clone();
            let class = "c";
            let division =
                Division { class, members: &members, partitions, set, current, may_lose_data };
            let mut findings = Findings::default();
            division.owners(&mut findings).ok_or(findings)
        }
    }

    #[test]
    fn set_partitions_come_before_current_ones() {
        let limited = |id| Member { id, max_shards: Some(2), ..Member::default() };
        let members = vec![Member { id: 1, ..Member::default() }, limited(2)];
        let current = BTreeMap::from([(0, Some(2)), (1, Some(2)), (2, Some(1))]);
        let set = BTreeMap::from([(3, 2)]);
        let case = Case { members, partitions: 4, set, current, may_lose_data: true };
        assert_eq!(case.owners().ok(), Some(vec![2, 1, 1, 2]));
        assert!(Case { may_lose_data: false, ..case }.owners().is_err());
    }

    proptest! {
        #[test]
        fn each_partition_has_one_member_within_its_limit(case in case()) {
            let owners = match case.owners() {
                Ok(owners) => owners,
                Err(findings) => {
                    prop_assert!(!findings.diagnostics.all.is_empty());
                    return Ok(());
                }
            };
            prop_assert_eq!(i32::try_from(owners.len()), Ok(case.partitions));
            for (shard, owner) in &case.set {
                prop_assert_eq!(owners.get(usize::try_from(*shard).unwrap_or_default()), Some(owner));
            }
            for member in &case.members {
                let count = owners.iter().filter(|it| **it == member.id).count();
                let set = case.set.values().filter(|it| **it == member.id).count();
                let most = member.max_shards.and_then(|it| usize::try_from(it).ok());
                prop_assert!(most.is_none_or(|most| count <= most.max(set)));
                prop_assert!(!member.all_partitions || count == owners.len());
            }
        }

        #[test]
        fn partitions_stay_where_they_are(case in case()) {
            let Ok(owners) = case.owners() else { return Ok(()) };
            if !case.may_lose_data {
                for (shard, owner) in (0..).zip(&owners) {
                    prop_assert!(case.current.get(&shard).is_none_or(|it| *it == Some(*owner)));
                }
            }
            let current = (0..).zip(owners.iter().copied().map(Some)).collect();
            let again = Case { current, may_lose_data: false, ..case };
            prop_assert_eq!(again.owners().ok(), Some(owners));
        }

        #[test]
        fn new_partitions_are_spread_evenly(case in case()) {
            let case = Case { set: BTreeMap::new(), current: BTreeMap::new(), ..case };
            let Ok(owners) = case.owners() else { return Ok(()) };
            if case.members.iter().any(|it| it.all_partitions) {
                return Ok(());
            }
            let unlimited = case.members.iter().filter(|it| it.max_shards.is_none_or(|it| it < 0));
            let count = |id: i32| owners.iter().filter(|it| **it == id).count();
            let counts: Vec<_> = unlimited.map(|it| count(it.id)).collect();
            let spread = counts.iter().max().zip(counts.iter().min()).map_or(0, |(most, least)| most - least);
            prop_assert!(spread <= 1, "{:?}", counts);
        }
    }
}
