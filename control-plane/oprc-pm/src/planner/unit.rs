//! One class in one place.

use oprc_grpc::{
    deployment::unit::{ClassSpec, Requirements},
    models::{Source, assignment, class_spec},
};
use oprc_models::{Assignment, Diagnostics, ResolvedClass};
use oprc_rest::{Reason, UnitPlan};
use serde_json::Value;

use super::{
    Request,
    capacity::Load,
    demand::Demand,
    faults, replicas, scale,
    targets::{Place, reason},
    template, unit_id,
};

/// A unit that is being planned.
pub(super) struct Draft<'a> {
    pub(super) id: String,
    pub(super) place: Place<'a>,
    pub(super) class: &'a ResolvedClass,
    pub(super) spec: ClassSpec,
    pub(super) replicas: i32,
    pub(super) partitions: i32,
    pub(super) reasons: Vec<Reason>,
}

/// Plans one class in one place, but for what depends on other places.
pub(super) fn draft<'a>(
    request: &Request<'a>,
    class: &'a ResolvedClass,
    place: Place<'a>,
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) -> Draft<'a> {
    let deployment = request.deployment;
    let id = unit_id(&deployment.key, &class.key, place.environment, place.cluster);
    let mut spec = class_spec(&Source {
        id: &id,
        package: &request.package.name,
        version: &request.package.version,
        class,
        deployment,
        member: place.member,
        environment: place.environment,
    });
    let demand = Demand::new(class, deployment);
    let mut reasons = Vec::new();
    reasons.extend(availability(&mut spec, class, &demand));
    let (replicas, why) =
        replicas::replicas(&mut spec, &demand, &class.key, &place, faults, warnings);
    reasons.extend(why);
    let mut partitions = 1;
    if class.has_grid() {
        grid(class, &place, &demand, faults, warnings);
        let (count, because) = demand.partitions();
        partitions = count;
        reasons.push(reason("odgm_config.partition_count", count.to_string(), because));
        if let Some(config) = &mut spec.odgm_config {
            config.partition_count = Some(count);
        }
    }
    let said = deployment.replica_count;
    reasons.extend(scale::bounds(&mut spec, class, said, &place, faults, warnings));
    // The bounds have a say in whether a hint can be followed.
    reasons.push(template::template(&mut spec, class, deployment, &place, faults));
    Draft { id, place, class, spec, replicas, partitions, reasons }
}

/// A class is as available as its most demanding function needs it.
fn availability(
    spec: &mut ClassSpec,
    class: &ResolvedClass,
    demand: &Demand<'_>,
) -> Option<Reason> {
    let (target, who) = demand.availability()?;
    let own = class.requirements.as_ref().and_then(oprc_models::Requirements::availability);
    if own.is_some_and(|own| own >= target) {
        return None;
    }
    let requirements = spec.nfr_requirements.get_or_insert_with(Requirements::default);
    requirements.availability = Some(target);
    requirements.availability_pct = None;
    let because = format!("{who} demands more than the class itself");
    Some(reason("nfr_requirements.availability", target.to_string(), because))
}

/// Whether the cluster can have its data grid, and functions use what that has.
fn grid(
    class: &ResolvedClass,
    place: &Place<'_>,
    demand: &Demand<'_>,
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) {
    match place.facts.capabilities {
        Some(it) if !it.odgm => {
            let message = format!(
                "the class {} has state, and the cluster {} has no data grid (capability odgm)",
                class.key, place.cluster
            );
            let hint = "name other clusters, or switch it on there (features.odgm)";
            faults::hint(faults, "targetClusters", message, hint);
        }
        Some(_) => {}
        None => warnings.push(format!(
            "{}: it was never heard of, so nobody knows whether it can have the data grid of {}",
            place.cluster, class.key
        )),
    }
    let known = demand.collections();
    for function in &class.functions {
        let used = function.function.odgm.iter().flat_map(|it| &it.collections);
        for name in used.filter(|name| !known.contains(name)) {
            let message = format!(
                "{} uses the collection {name:?}, and {} has: {}",
                function.key,
                class.key,
                known.join(", ")
            );
            faults::add(faults, "odgm.collections", message);
        }
    }
}

impl<'a> Draft<'a> {
    /// Gives the unit its part of what was assigned to members.
    pub(super) fn assign(&mut self, all: &[Assignment]) {
        let Some(member) = self.place.member else { return };
        let Some(config) = &mut self.spec.odgm_config else { return };
        let own: Vec<_> = all.iter().filter(|it| it.owners.contains(&member.id)).collect();
        let shards: usize = own.iter().map(|it| it.shard_ids.len()).sum();
        config.shard_assignments = own.into_iter().map(assignment).collect();
        let because = format!(
            "member {} has {shards} of {} parts, spread evenly by maxShards and allPartitions",
            member.id, self.partitions
        );
        self.reasons.push(reason("odgm_config.shard_assignments", shards.to_string(), because));
    }

    /// The unit, and what it asks of its cluster.
    pub(super) fn finish(mut self, namespace: &str, load: &mut Load<'a>) -> UnitPlan {
        let asked = load.add(&self.place, &self.spec);
        self.reasons.push(reason(
            "capacity",
            format!("{}m, {}Mi", asked.cpu_millis, asked.memory_bytes.div_ceil(1 << 20)),
            "what its instances ask for, as many as there always are; where nothing is said, what \
             the profile has them ask for",
        ));
        UnitPlan {
            id: self.id,
            cluster: self.place.cluster.to_owned(),
            environment: self.place.environment.to_owned(),
            namespace: namespace.to_owned(),
            class: self.class.key.clone(),
            // Numbers and texts always become a document.
            spec: said(serde_json::to_value(&self.spec).unwrap_or_default()),
            reasons: self.reasons,
        }
    }
}

/// A document without what isn't said.
fn said(value: Value) -> Value {
    let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !empty(value))
            .map(|(name, value)| (name, said(value)))
            .collect(),
        Value::Array(all) => all.into_iter().map(said).collect(),
        other => other,
    }
}
