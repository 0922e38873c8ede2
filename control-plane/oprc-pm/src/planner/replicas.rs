//! Number of copies of the state of a class in a place.

use oprc_models::OClassDeployment;
use oprc_rest::Reason;
use oprc_unit::{
    UnitSpec,
    availability::{MAX_COPIES, Needs, availability_of, copies, floor},
    replication::{copies_needed, is_raft, raft_copies, required_availability},
    spec::{Collection, CollectionSpec, ResourceAllocation},
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
}

/// Sets the number of copies of collections and of the grid, which has a node for each copy. Returns
/// the default of collections that set none.
pub(super) fn replicas(
    spec: &mut UnitSpec,
    deployment: &OClassDeployment,
    class: &str,
    place: &Place<'_>,
    findings: &mut Findings,
) -> (i32, Vec<Reason>) {
    let (needs, why) = copies_needed(spec);
    let target = required_availability(spec).map(|(target, who)| (target, who.to_owned()));
    let rules = Rules { class, place, target, needs, why };
    let raft: Vec<bool> = spec
        .odgm_config
        .iter()
        .flat_map(|config| config.collections.iter())
        .map(|collection| is_raft(spec, collection))
        .collect();
    let mut reasons = Vec::new();
    let mut own: Option<(i32, String)> = None;
    let mut all_set = !raft.is_empty();
    let collections = spec.odgm_config.iter_mut().flat_map(|it| &mut it.collections);
    for (at, (collection, raft)) in collections.zip(raft).enumerate() {
        let Collection::Spec(CollectionSpec { name, replica_count: Some(count), .. }) = collection
        else {
            all_set = false;
            continue;
        };
        let whose = format!("replicaCount of collection {name}");
        let needs = if raft { Needs::Quorum } else { Needs::Any };
        let (number, because) = rules.requested(*count, &whose, needs, findings);
        *count = number;
        let field = format!("odgm_config.collections[{at}].replica_count");
        reasons.push(reason(field, number.to_string(), because.as_str()));
        if own.as_ref().is_none_or(|(most, _)| number > *most) {
            own = Some((number, because));
        }
    }
    let (default, because) = match (deployment.replica_count, &own) {
        (Some(count), _) if rules.target.is_none() => {
            rounded(count, "set in the deployment (replicaCount)".to_owned(), needs)
        }
        (Some(count), _) => {
            rules.requested(count, "replicaCount of the deployment", needs, findings)
        }
        (None, Some(most)) if all_set => most.clone(),
        (None, _) => rules.by_availability(findings),
    };
    if let Some(config) = &mut spec.odgm_config {
        config.replica_count = Some(default);
    }
    let (factor, why) = match own {
        Some((most, why)) if most > default => {
            reasons.push(reason("odgm_config.replica_count", default.to_string(), because));
            (most, why)
        }
        _ => (default, because),
    };
    spec.resource_allocation = Some(ResourceAllocation { replication_factor: Some(factor) });
    let ready = place.facts.ready_nodes;
    if place.facts.nodes_known && usize::try_from(factor).is_ok_and(|factor| factor > ready) {
        findings.warn(format!(
            "{class} on {}: {factor} replicas, but only {ready} ready Kubernetes nodes: a failing \
             node affects several replicas",
            place.cluster
        ));
    }
    reasons.insert(0, reason("resource_allocation.replication_factor", factor.to_string(), why));
    (default, reasons)
}

impl Rules<'_> {
    /// The number of copies if none is set, and why.
    fn by_availability(&self, findings: &mut Findings) -> (i32, String) {
        let Some((target, who)) = &self.target else {
            return (1, "no availability is required".to_owned());
        };
        let node = self.place.facts.node_availability;
        if let Some((number, because)) = copies(*target, self.needs, node) {
            let because = if node.is_some() { format!("{because}; {}", self.why) } else { because };
            return rounded(number, format!("{who} requires {because}"), self.needs);
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
    fn requested(
        &self,
        count: i32,
        whose: &str,
        needs: Needs,
        findings: &mut Findings,
    ) -> (i32, String) {
        let Some((target, who)) = &self.target else {
            return rounded(count, whose.to_owned(), needs);
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
        let (number, because) = rounded(count.max(min), because, needs);
        if let Some(node) = self.place.facts.node_availability {
            let reached = availability_of(needs, node, number);
            if reached + 1e-12 < *target {
                findings.warn(format!(
                    "{class} on {cluster}: {number} copies on nodes at {node} reach {reached:.6}, \
                     but {who} requires {target}"
                ));
            }
        }
        (number, because)
    }
}

/// Raises two copies under consensus to three, with the reason.
fn rounded(number: i32, because: String, needs: Needs) -> (i32, String) {
    match needs {
        Needs::Quorum if raft_copies(number) != number => {
            let raised = raft_copies(number);
            let why = "two copies under consensus are less available than one";
            (raised, format!("{because}; raised to {raised}: {why}"))
        }
        _ => (number, because),
    }
}
