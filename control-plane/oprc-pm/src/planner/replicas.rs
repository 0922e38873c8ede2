//! How many copies of its data a class has in a place.

use oprc_models::Faults;
use oprc_rest::Reason;

use super::{
    availability::{MOST, copies, floor, together},
    demand::Demand,
    faults,
    targets::{Place, reason},
};

/// How many copies, and why.
pub(super) fn replicas(
    demand: &Demand<'_>,
    said: Option<i32>,
    class: &str,
    place: &Place<'_>,
    faults: &mut Faults,
    warnings: &mut Vec<String>,
) -> (i32, Reason) {
    let field = "resource_allocation.replication_factor";
    let (needs, why) = demand.needs();
    let node = place.facts.node_availability;
    let target = demand.availability();
    let (number, because) = match (said, target) {
        (Some(said), None) => (said, "replicaCount of the deployment".to_owned()),
        (None, None) => (1, "nothing is said of availability".to_owned()),
        (Some(said), Some((target, who))) => {
            let least = floor(target);
            let number = said.max(least);
            if said < least {
                warnings.push(format!(
                    "{class} on {}: replicaCount {said} is less than the {least} that availability \
                     {target} of {who} takes; it gets {least}",
                    place.cluster
                ));
            }
            if let Some(node) = node
                && together(needs, node, number) + 1e-12 < target
            {
                warnings.push(format!(
                    "{class} on {}: {number} copies on nodes at {node} come to {:.6}, and {who} \
                     demands {target}",
                    place.cluster,
                    together(needs, node, number)
                ));
            }
            (
                number,
                format!("replicaCount is {said}; availability {target} takes {least} at least"),
            )
        }
        (None, Some((target, who))) => match copies(target, needs, node) {
            Some((number, because)) => {
                let because = if node.is_some() { format!("{because}; {why}") } else { because };
                (number, format!("{who} demands {because}"))
            }
            None => {
                let node = node.unwrap_or_default();
                let message = format!(
                    "{class} demands availability {target}, which no number of copies up to {MOST} \
                     comes to on the nodes of {} at {node}: {why}",
                    place.cluster
                );
                let hint = "say replicaCount, or demand less";
                faults::hint(faults, "replicaCount", message, hint);
                (1, String::new())
            }
        },
    };
    let ready = place.facts.ready_nodes;
    if place.facts.nodes_known && usize::try_from(number).is_ok_and(|number| number > ready) {
        warnings.push(format!(
            "{class} on {}: {number} copies, and {ready} nodes are ready: one that fails takes \
             several with it",
            place.cluster
        ));
    }
    (number, reason(field, number.to_string(), because))
}
