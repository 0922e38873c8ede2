//! Number of copies of the state of a class in a place.

use oprc_models::OClassDeployment;
use oprc_rest::Reason;
use oprc_unit::{
    UnitSpec,
    availability::{MAX_COPIES, Needs, availability_of, copies, floor},
    replication::{copies_needed, engine, requested_shard_type, required_availability},
    spec::{Collection, CollectionSpec, ResourceAllocation, ShardType},
};

use super::{
    findings::Findings,
    targets::{Place, reason},
};

/// Inputs of the number of copies.
struct Rules<'a> {
    class: &'a str,
    place: &'a Place<'a>,
    /// The required availability, and what requires it.
    target: Option<(f64, String)>,
    needs: Needs,
    why: &'static str,
    shard_type: Option<ShardType>,
}

/// Sets the number of copies of collections and of the grid. Each node has a copy of every collection,
/// so the largest number applies to all of them.
pub(super) fn replicas(
    spec: &mut UnitSpec,
    deployment: &OClassDeployment,
    class: &str,
    place: &Place<'_>,
    findings: &mut Findings,
) -> (i32, Vec<Reason>) {
    let (needs, why) = copies_needed(spec);
    let target = required_availability(spec).map(|(target, who)| (target, who.to_owned()));
    let shard_type = requested_shard_type(spec);
    let rules = Rules { class, place, target, needs, why, shard_type };
    let config = spec.odgm_config.as_ref();
    let collections = config.into_iter().flat_map(|it| &it.collections);
    let own: Vec<_> = collections.map(|it| (it.name().to_owned(), it.replica_count())).collect();
    let all_set = !own.is_empty() && own.iter().all(|(_, count)| count.is_some());
    let own = own.into_iter().filter_map(|(name, count)| {
        let whose = format!("replicaCount of collection {name}");
        Some(rules.requested(count?, &whose, findings))
    });
    let own = own.reduce(|most, it| if it.0 > most.0 { it } else { most });
    let default = match deployment.replica_count {
        Some(count) if rules.target.is_none() => {
            Some(rules.rounded(count, "set in the deployment (replicaCount)".to_owned()))
        }
        Some(count) => Some(rules.requested(count, "replicaCount of the deployment", findings)),
        None if all_set => None,
        None => Some(rules.by_availability(findings)),
    };
    let (factor, why) = match (default, own) {
        (Some(default), Some(own)) if own.0 > default.0 => own,
        (Some(default), _) => default,
        (None, own) => own.unwrap_or((1, String::new())),
    };
    if let Some(config) = &mut spec.odgm_config {
        config.replica_count = Some(factor);
        for collection in &mut config.collections {
            if let Collection::Spec(CollectionSpec { replica_count: Some(count), .. }) = collection
            {
                *count = factor;
            }
        }
    }
    spec.resource_allocation = Some(ResourceAllocation { replication_factor: Some(factor) });
    let ready = place.facts.ready_nodes;
    if place.facts.nodes_known && usize::try_from(factor).is_ok_and(|factor| factor > ready) {
        findings.warn(format!(
            "{class} on {}: {factor} replicas, but only {ready} ready Kubernetes nodes: a failing \
             node affects several replicas",
            place.cluster
        ));
    }
    (factor, vec![reason("resource_allocation.replication_factor", factor.to_string(), why)])
}

impl Rules<'_> {
    /// The number of copies if none is set, and why.
    fn by_availability(&self, findings: &mut Findings) -> (i32, String) {
        let Some((target, who)) = &self.target else {
            return self.rounded(1, "no availability is required".to_owned());
        };
        let node = self.place.facts.node_availability;
        if let Some((number, because)) = copies(*target, self.needs, node) {
            let because = if node.is_some() { format!("{because}; {}", self.why) } else { because };
            return self.rounded(number, format!("{who} requires {because}"));
        }
        let message = format!(
            "{} requires availability {target}, which up to {MAX_COPIES} copies don't reach on the \
             nodes of {} at {}: {}",
            self.class,
            self.place.cluster,
            node.unwrap_or_default(),
            self.why
        );
        let hint = "set replicaCount, or lower the availability requirement";
        findings.reject("replicaCount", message, Some(hint));
        (1, String::new())
    }

    /// The requested number of copies, raised to the minimum for the availability.
    fn requested(&self, count: i32, whose: &str, findings: &mut Findings) -> (i32, String) {
        let Some((target, who)) = &self.target else {
            return self.rounded(count, whose.to_owned());
        };
        let (class, cluster) = (self.class, self.place.cluster);
        let min = floor(*target);
        if count < min {
            findings.warn(format!(
                "{class} on {cluster}: {whose} is raised from {count} to {min}, because {who} \
                 requires availability {target}"
            ));
        }
        let because = format!("{whose} is {count}; availability {target} requires at least {min}");
        let (number, because) = self.rounded(count.max(min), because);
        if let Some(node) = self.place.facts.node_availability {
            let reached = availability_of(self.needs, node, number);
            if reached + 1e-12 < *target {
                findings.warn(format!(
                    "{class} on {cluster}: {number} copies on nodes at {node} reach {reached:.6}, \
                     but {who} requires {target}"
                ));
            }
        }
        (number, because)
    }

    /// Raises the number of copies under consensus to an odd one of at least three, with the reason.
    fn rounded(&self, number: i32, because: String) -> (i32, String) {
        let (engine, nodes) = engine(number, self.shard_type);
        // Admission rejects several copies without consensus, and must see how many.
        if self.needs == Needs::Any || engine != ShardType::Raft || nodes == number {
            return (number, because);
        }
        let why = "consensus needs an odd number of at least 3";
        (nodes, format!("{because}; raised to {nodes}: {why}"))
    }
}
