//! Members of a deployment, and the shards assigned to them.

use std::collections::{BTreeMap, BTreeSet};

use super::{check_count, check_length, check_name, check_range, check_unique};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{Assignment, Member, OClassDeployment},
    names::{NameKind, quote},
};

pub(super) fn check_members(
    diagnostics: &mut Diagnostics,
    path: &Path,
    deployment: &OClassDeployment,
) {
    check_count(diagnostics, path, deployment.members.len(), 256);
    let (mut ids, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for (index, member) in deployment.members.iter().enumerate() {
        let path = path.index(index);
        let id = member.id;
        if id < 0 {
            diagnostics.add(&path.field("id"), format!("{id} must not be negative"));
        }
        if !ids.insert(id) {
            diagnostics.add(&path.field("id"), format!("{id} is used twice"));
        }
        check_target(diagnostics, &path, member, deployment);
        // Unit ids contain environment and cluster, so two such members would share their units.
        if let Some(cluster) = &member.cluster
            && !targets.insert((&member.env, cluster))
        {
            diagnostics.add(&path, "another member has the same environment and cluster");
        }
        check_range(diagnostics, &path.field("maxShards"), member.max_shards, -1, 4096);
        let both = member.standby_fn.iter().position(|it| member.disabled_fn.contains(it));
        if let Some(index) = both {
            diagnostics.add(&path.field("standbyFn").index(index), "is also listed in disabledFn");
        }
        for (field, keys) in
            [("disabledFn", &member.disabled_fn), ("standbyFn", &member.standby_fn)]
        {
            let path = path.field(field);
            check_count(diagnostics, &path, keys.len(), 64);
            check_unique(diagnostics, &path, "", keys.iter().map(String::as_str));
        }
        if let Some(template) = &member.force_template {
            check_length(diagnostics, &path.field("forceTemplate"), template, 63);
        }
    }
}

fn check_target(
    diagnostics: &mut Diagnostics,
    path: &Path,
    member: &Member,
    deployment: &OClassDeployment,
) {
    let environments = &deployment.target_envs;
    let env_path = path.field("env");
    match &member.env {
        Some(env) => {
            check_name(diagnostics, &env_path, NameKind::Environment, env);
            if !environments.is_empty() && !environments.contains(env) {
                diagnostics.add(&env_path, format!("{} is not in targetEnvs", quote(env)));
            }
        }
        None if environments.len() > 1 => {
            let message = "is required, because targetEnvs has several environments";
            diagnostics.add(&env_path, message);
        }
        None => {}
    }
    if let Some(cluster) = &member.cluster {
        let clusters = &deployment.target_clusters;
        let path = path.field("cluster");
        check_name(diagnostics, &path, NameKind::Cluster, cluster);
        if !clusters.is_empty() && !clusters.contains(cluster) {
            diagnostics.add(&path, format!("{} is not in targetClusters", quote(cluster)));
        }
    }
}

pub(super) fn check_assignments(
    diagnostics: &mut Diagnostics,
    path: &Path,
    deployment: &OClassDeployment,
    assignments: &[Assignment],
) {
    check_count(diagnostics, path, assignments.len(), 4096);
    let members: BTreeMap<i32, &Member> = deployment.members.iter().map(|it| (it.id, it)).collect();
    let mut assigned = BTreeSet::new();
    let mut load: BTreeMap<i32, usize> = BTreeMap::new();
    for (index, assignment) in assignments.iter().enumerate() {
        let path = path.index(index);
        check_owners(diagnostics, &path, assignment, &members, deployment.replica_count);
        let shards = path.field("shardIds");
        if assignment.shard_ids.is_empty() {
            diagnostics.add(&shards, "must list at least one shard");
        }
        for (index, shard) in assignment.shard_ids.iter().enumerate() {
            let count = deployment.partition_count.unwrap_or(4096);
            if !(0..count).contains(shard) {
                let last = count.saturating_sub(1);
                let message = format!("{shard} must be between 0 and {last}");
                let hint = "partitionCount is the number of shards";
                diagnostics.add_with_hint(&shards.index(index), message, hint);
            }
            if !assigned.insert(shard) {
                diagnostics.add(&shards.index(index), format!("{shard} is assigned twice"));
            }
        }
        for id in assignment.owners.iter().collect::<BTreeSet<_>>() {
            *load.entry(*id).or_default() += assignment.shard_ids.len();
        }
    }
    for (id, load) in load {
        let max = members.get(&id).and_then(|it| it.max_shards).filter(|max| *max >= 0);
        if let Some(max) = max.and_then(|max| usize::try_from(max).ok())
            && load > max
        {
            let message = format!("member {id} gets {load} shards, but its maxShards is {max}");
            diagnostics.add(path, message);
        }
    }
}

fn check_owners(
    diagnostics: &mut Diagnostics,
    path: &Path,
    assignment: &Assignment,
    members: &BTreeMap<i32, &Member>,
    replica_count: Option<i32>,
) {
    let owners = path.field("owners");
    let primary = assignment.primary.map(|id| (path.field("primary"), id));
    let others = assignment.owners.iter().enumerate().map(|(at, id)| (owners.index(at), *id));
    for (path, id) in primary.into_iter().chain(others) {
        if !members.contains_key(&id) {
            diagnostics.add(&path, format!("the member {id} does not exist"));
        }
    }
    if assignment.owners.is_empty() {
        diagnostics.add(&owners, "must list at least one member");
    } else if let Some(primary) = assignment.primary
        && !assignment.owners.contains(&primary)
    {
        diagnostics.add(&owners, format!("must include the primary, {primary}"));
    }
    let distinct = assignment.owners.iter().collect::<BTreeSet<_>>().len();
    if distinct < assignment.owners.len() {
        diagnostics.add(&owners, "a member is listed twice");
    }
    if let Some(replicas) = replica_count
        && usize::try_from(replicas).is_ok_and(|replicas| distinct > replicas)
    {
        let message = format!("has {distinct} members, but replicaCount is {replicas}");
        diagnostics.add(&owners, message);
    }
}
