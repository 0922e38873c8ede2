//! Members of a deployment divide the partitions of a class among their data grids.

use std::collections::{BTreeMap, BTreeSet};

use oprc_models::{Collection, CollectionSpec, OClassDeployment, Persistence, ResolvedClass};
use oprc_rest::UnitPlan;
use oprc_unit::{
    from_model::grid_member,
    spec::{self, GridMember},
};

use super::{
    Request,
    findings::Findings,
    membership::Membership,
    shards::{self, Division},
    unit::Draft,
};

/// Assigns the partitions of a class to members.
pub(super) fn assign(
    request: &Request<'_>,
    class: &ResolvedClass,
    drafts: &mut [Draft<'_>],
    findings: &mut Findings,
) {
    if !class.has_grid() {
        return;
    }
    let own: Vec<&Draft<'_>> = drafts.iter().filter(|it| it.class.key == class.key).collect();
    if request.deployment.members.is_empty() {
        warn_of_separate_grids(class, &own, findings);
        return;
    }
    let Some(membership) = divide(request, class, &own, findings) else { return };
    for draft in drafts.iter_mut().filter(|it| it.class.key == class.key) {
        draft.assign(&membership);
    }
}

/// Without members, data grids know nothing of each other.
fn warn_of_separate_grids(class: &ResolvedClass, own: &[&Draft<'_>], findings: &mut Findings) {
    let mut clusters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for place in own.iter().map(|it| it.place) {
        clusters.entry(place.environment).or_default().insert(place.cluster);
    }
    for clusters in clusters.values().filter(|it| it.len() > 1) {
        let clusters = clusters.iter().copied().collect::<Vec<_>>().join(", ");
        findings.warn(format!(
            "{}: the data grids in {clusters} have objects of their own, even with equal ids; set \
             members to divide the objects among them",
            class.key
        ));
    }
}

/// None if there is a single member, which has all partitions, and if the members are rejected.
fn divide(
    request: &Request<'_>,
    class: &ResolvedClass,
    own: &[&Draft<'_>],
    findings: &mut Findings,
) -> Option<Membership> {
    let OClassDeployment { members, assignments, odgm, .. } = request.deployment;
    let partitions = own.iter().map(|draft| draft.partitions).max().unwrap_or(1);
    let collections: Vec<_> = odgm.iter().flat_map(|grid| &grid.collections).collect();
    shards::check(&class.key, "assignments", assignments, partitions, findings);
    for (at, Collection(it)) in collections.iter().enumerate() {
        let path = format!("odgm.collections[{at}].assignments");
        let parts = it.partition_count.unwrap_or(partitions);
        shards::check(&class.key, &path, &it.assignments, parts, findings);
    }
    let grids = own.iter().filter_map(|it| {
        Some(grid_member(it.place.member?, it.place.cluster, it.place.environment))
    });
    let grids: Vec<GridMember> = grids.collect();
    // Members without a place were rejected.
    if grids.len() < members.len() {
        return None;
    }
    let owners = |partitions, set, collection: Option<&CollectionSpec>, findings: &mut Findings| {
        let set = shards::by_partition(set, partitions);
        let name = collection.map(|it| it.name.as_str());
        let current = current_owners(request, class, name, &grids, partitions);
        let may_lose_data = may_lose_data(request, class, collection);
        let class = &class.key;
        Division { class, members, partitions, set, current, may_lose_data }.owners(findings)
    };
    let default = owners(partitions, assignments, None, findings)?;
    if members.len() < 2 {
        return None;
    }
    let mut by_collection = Vec::with_capacity(collections.len());
    for Collection(it) in &collections {
        let parts = it.partition_count.unwrap_or(partitions);
        let set = if it.assignments.is_empty() { assignments } else { &it.assignments };
        let differs = parts != partitions || !it.assignments.is_empty();
        by_collection.push(if differs {
            Some(owners(parts, set, Some(it), findings)?)
        } else {
            None
        });
    }
    let membership = Membership { members: grids, owners: default, by_collection };
    warn_of_idle_members(class, &membership, findings);
    warn_of_shared_environments(class, &membership, findings);
    Some(membership)
}

/// Whether objects may be lost: the deployment says so, or they don't survive their pods anyway.
fn may_lose_data(
    request: &Request<'_>,
    class: &ResolvedClass,
    collection: Option<&CollectionSpec>,
) -> bool {
    let odgm = request.deployment.odgm.as_ref();
    let of_class = class.state_spec.as_ref().and_then(|it| it.persistence);
    let is_ephemeral =
        |it: &CollectionSpec| it.persistence.or(of_class) == Some(Persistence::Ephemeral);
    let is_lost_anyway = match collection {
        Some(collection) => is_ephemeral(collection),
        None => {
            let mut all = odgm.iter().flat_map(|it| &it.collections);
            of_class == Some(Persistence::Ephemeral) && all.all(|Collection(it)| is_ephemeral(it))
        }
    };
    is_lost_anyway || odgm.is_some_and(|it| it.allow_data_loss)
}

/// The member that has each partition of a collection in the current plan, by partition. None if its data
/// grid doesn't belong to a member any more.
fn current_owners(
    request: &Request<'_>,
    class: &ResolvedClass,
    collection: Option<&str>,
    members: &[GridMember],
    partitions: i32,
) -> BTreeMap<i32, Option<i32>> {
    // A member is the data grid at its place, whatever its id is.
    let at = |cluster: &str, environment: Option<&str>| {
        let is_at =
            |it: &&GridMember| it.cluster == cluster && it.environment.as_deref() == environment;
        members.iter().find(is_at).map(|it| it.id)
    };
    let current = request.current.iter().flat_map(|plan| &plan.units);
    let units: Vec<&UnitPlan> = current.filter(|it| it.class == class.key).collect();
    let configs = units.iter().filter_map(|it| it.spec.odgm_config.as_ref());
    let Some(config) = configs.into_iter().find(|it| it.member_id.is_some()) else {
        // The only data grid has all objects; several ones have objects of their own.
        let [only] = units.as_slice() else { return BTreeMap::new() };
        let environment = Some(only.environment.as_str()).filter(|it| !it.is_empty());
        let owner = at(&only.cluster, environment);
        return (0..partitions).map(|it| (it, owner)).collect();
    };
    let own = config.collections.iter().find_map(|it| match it {
        spec::Collection::Spec(it) if collection == Some(it.name.as_str()) => {
            Some(&it.shard_assignments).filter(|it| !it.is_empty())
        }
        _ => None,
    });
    let mut owners = BTreeMap::new();
    for assignment in own.unwrap_or(&config.shard_assignments) {
        let owner = config.members.iter().find(|it| assignment.owners.first() == Some(&it.id));
        let owner = owner.and_then(|it| at(&it.cluster, it.environment.as_deref()));
        owners.extend(assignment.shard_ids.iter().map(|it| (*it, owner)));
    }
    owners
}

fn warn_of_idle_members(class: &ResolvedClass, membership: &Membership, findings: &mut Findings) {
    let Membership { members, owners, by_collection } = membership;
    let all = || by_collection.iter().flatten().chain([owners]);
    for member in members.iter().filter(|it| !all().any(|owners| owners.contains(&it.id))) {
        findings.warn(format!(
            "{}: member {} has no partition, and serves no object",
            class.key, member.id
        ));
    }
}

fn warn_of_shared_environments(
    class: &ResolvedClass,
    membership: &Membership,
    findings: &mut Findings,
) {
    let environments: BTreeSet<_> = membership
        .members
        .iter()
        .map(|it| it.environment.as_deref().unwrap_or("no environment"))
        .collect();
    if environments.len() > 1 {
        let environments = environments.into_iter().collect::<Vec<_>>().join(", ");
        findings.warn(format!(
            "{}: its members are in several environments ({environments}), which share its objects; \
             use a deployment for each environment to keep them apart",
            class.key
        ));
    }
}
