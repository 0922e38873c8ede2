//! Members of a deployment, and the shards assigned to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    diagnostics::FieldCursor,
    limits::{self, Bounds},
    model::{Assignment, Member, OClassDeployment},
    names::{NameKind, quote},
};

pub(super) fn check_members(at: &FieldCursor<'_>, deployment: &OClassDeployment) {
    let (mut ids, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for (at, member) in at.limited(limits::DEPLOYMENT_MEMBERS, &deployment.members) {
        let id = member.id;
        if id < 0 {
            at.field("id").add(format!("{id} must not be negative"));
        }
        if !ids.insert(id) {
            at.field("id").add(format!("{id} is used twice"));
        }
        check_target(&at, member, deployment);
        // Unit ids contain environment and cluster, so two such members would share their units.
        if let Some(cluster) = &member.cluster
            && !targets.insert((&member.env, cluster))
        {
            at.add("another member has the same environment and cluster");
        }
        at.field("maxShards")
            .range(member.max_shards, Bounds { min: -1, max: limits::PARTITIONS.max });
        if let Some(url) = &member.grid_url {
            at.field("gridUrl").url(url, &["http://", "https://"], limits::ROUTE_URL);
        }
        let both = member.standby_fn.iter().position(|it| member.disabled_fn.contains(it));
        if let Some(index) = both {
            at.field("standbyFn").index(index).add("is also listed in disabledFn");
        }
        at.field("disabledFn").distinct(limits::FUNCTIONS, &member.disabled_fn, "", |it| it);
        at.field("standbyFn").distinct(limits::FUNCTIONS, &member.standby_fn, "", |it| it);
        at.field("forceTemplate").length(member.force_template.as_ref(), limits::LABEL);
    }
}

fn check_target(at: &FieldCursor<'_>, member: &Member, deployment: &OClassDeployment) {
    let environments = &deployment.target_envs;
    if member.env.is_none() && environments.len() > 1 {
        at.field("env").add("is required, because targetEnvs has several environments");
    }
    for (field, kind, name, list, listed) in [
        ("env", NameKind::Environment, &member.env, "targetEnvs", environments),
        (
            "cluster",
            NameKind::Cluster,
            &member.cluster,
            "targetClusters",
            &deployment.target_clusters,
        ),
    ] {
        let at = at.field(field);
        at.name(kind, name.as_ref());
        if let Some(name) = name.as_ref().filter(|it| !listed.is_empty() && !listed.contains(it)) {
            at.add(format!("{} is not in {list}", quote(name)));
        }
    }
}

pub(super) fn check_assignments(
    at: &FieldCursor<'_>,
    deployment: &OClassDeployment,
    assignments: &[Assignment],
) {
    let members: BTreeMap<i32, &Member> = deployment.members.iter().map(|it| (it.id, it)).collect();
    let count = deployment.partition_count.unwrap_or(limits::PARTITIONS.max);
    let mut assigned = BTreeSet::new();
    let mut load: BTreeMap<i32, usize> = BTreeMap::new();
    for (at, assignment) in at.limited(limits::ASSIGNMENTS, assignments) {
        check_owners(&at, assignment, &members);
        let shards = at.field("shardIds");
        if assignment.shard_ids.is_empty() {
            shards.add("must list at least one shard");
        }
        for (at, shard) in shards.items(&assignment.shard_ids) {
            if !(0..count).contains(shard) {
                let message = format!("{shard} must be between 0 and {}", count.saturating_sub(1));
                at.add_with_hint(message, "partitionCount is the number of shards");
            }
            if !assigned.insert(shard) {
                at.add(format!("{shard} is assigned twice"));
            }
        }
        for id in assignment.owners.iter().collect::<BTreeSet<_>>() {
            *load.entry(*id).or_default() += assignment.shard_ids.len();
        }
    }
    for (id, load) in load {
        // A negative number means no limit.
        let max = members.get(&id).and_then(|it| usize::try_from(it.max_shards?).ok());
        if let Some(max) = max.filter(|max| load > *max) {
            at.add(format!("member {id} gets {load} shards, but its maxShards is {max}"));
        }
    }
}

fn check_owners(at: &FieldCursor<'_>, assignment: &Assignment, members: &BTreeMap<i32, &Member>) {
    let owners = at.field("owners");
    let primary = assignment.primary.iter().map(|id| (at.field("primary"), id));
    for (at, id) in primary.chain(owners.limited(limits::OWNERS, &assignment.owners)) {
        if !members.contains_key(id) {
            at.add(format!("the member {id} does not exist"));
        }
    }
    if assignment.owners.is_empty() {
        owners.add("must list at least one member");
    } else if let Some(primary) = assignment.primary
        && !assignment.owners.contains(&primary)
    {
        owners.add(format!("must include the primary, {primary}"));
    }
    let distinct = assignment.owners.iter().collect::<BTreeSet<_>>().len();
    if distinct < assignment.owners.len() {
        owners.add("a member is listed twice");
    }
}
