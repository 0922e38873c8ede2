//! How many copies of its data a class has in a place.

use oprc_grpc::deployment::unit::{ClassSpec, ResourceAllocation};
use oprc_models::Diagnostics;
use oprc_rest::Reason;

use super::{
    availability::{MOST, copies, floor, together},
    demand::Demand,
    faults,
    targets::{Place, reason},
};

/// Settles how many copies there are, and tells why: of collections that don't say, which is given
/// back, of those that do, and of the grid, which has a node for each.
pub(super) fn replicas(
    spec: &mut ClassSpec,
    demand: &Demand<'_>,
    class: &str,
    place: &Place<'_>,
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) -> (i32, Vec<Reason>) {
    let mut reasons = Vec::new();
    let mut own: Option<(i32, String)> = None;
    let mut all_say = spec.odgm_config.as_ref().is_some_and(|it| !it.collections.is_empty());
    let collections = spec.odgm_config.iter_mut().flat_map(|it| &mut it.collections);
    for (at, collection) in collections.enumerate() {
        let Some(said) = collection.replica_count else {
            all_say = false;
            continue;
        };
        let whose = format!("replicaCount of {}", collection.name);
        let (number, because) = by_word(said, &whose, demand, class, place, warnings);
        collection.replica_count = Some(number);
        let field = format!("odgm_config.collections[{at}].replica_count");
        reasons.push(reason(field, number.to_string(), because.as_str()));
        if own.as_ref().is_none_or(|(most, _)| number > *most) {
            own = Some((number, because));
        }
    }
    let (usual, because) = match (demand.copies(), &own) {
        (Some(said), _) => {
            by_word(said, "replicaCount of the deployment", demand, class, place, warnings)
        }
        // Nothing is left that availability would have to say it for.
        (None, Some(most)) if all_say => most.clone(),
        (None, _) => by_availability(demand, class, place, faults),
    };
    if let Some(config) = &mut spec.odgm_config {
        config.replica_count = Some(usual);
    }
    let (factor, why) = match own {
        Some((most, why)) if most > usual => {
            reasons.push(reason("odgm_config.replica_count", usual.to_string(), because));
            (most, why)
        }
        _ => (usual, because),
    };
    spec.resource_allocation = Some(ResourceAllocation { replication_factor: Some(factor) });
    let ready = place.facts.ready_nodes;
    if place.facts.nodes_known && usize::try_from(factor).is_ok_and(|factor| factor > ready) {
        warnings.push(format!(
            "{class} on {}: {factor} copies, and {ready} nodes are ready: one that fails takes \
             several with it",
            place.cluster
        ));
    }
    reasons.insert(0, reason("resource_allocation.replication_factor", factor.to_string(), why));
    (usual, reasons)
}

/// How many copies there are where nobody says a number, and why.
fn by_availability(
    demand: &Demand<'_>,
    class: &str,
    place: &Place<'_>,
    faults: &mut Diagnostics,
) -> (i32, String) {
    let Some((target, who)) = demand.availability() else {
        return (1, "nothing is said of availability".to_owned());
    };
    let (needs, why) = demand.needs();
    let node = place.facts.node_availability;
    if let Some((number, because)) = copies(target, needs, node) {
        let because = if node.is_some() { format!("{because}; {why}") } else { because };
        return (number, format!("{who} demands {because}"));
    }
    let message = format!(
        "{class} demands availability {target}, which no number of copies up to {MOST} comes to on \
         the nodes of {} at {}: {why}",
        place.cluster,
        node.unwrap_or_default()
    );
    faults::hint(faults, "replicaCount", message, "say replicaCount, or demand less");
    (1, String::new())
}

/// As many copies as are said, or as many as the target takes at the least.
fn by_word(
    said: i32,
    whose: &str,
    demand: &Demand<'_>,
    class: &str,
    place: &Place<'_>,
    warnings: &mut Vec<String>,
) -> (i32, String) {
    let Some((target, who)) = demand.availability() else { return (said, whose.to_owned()) };
    let (needs, _) = demand.needs();
    let least = floor(target);
    let number = said.max(least);
    let cluster = place.cluster;
    if said < least {
        warnings.push(format!(
            "{class} on {cluster}: {whose}, {said}, is less than the {least} that availability \
             {target} of {who} takes; it gets {least}"
        ));
    }
    if let Some(node) = place.facts.node_availability
        && together(needs, node, number) + 1e-12 < target
    {
        warnings.push(format!(
            "{class} on {cluster}: {number} copies on nodes at {node} come to {:.6}, and {who} \
             demands {target}",
            together(needs, node, number)
        ));
    }
    (number, format!("{whose} is {said}; availability {target} takes {least} at least"))
}
