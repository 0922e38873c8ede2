//! Plans one class in one place.

use oprc_models::ResolvedClass;
use oprc_rest::{Reason, UnitPlan};
use oprc_unit::{
    Admitted, Shape, UnitSpec, admit,
    from_model::{Source, unit_spec},
    instance_bounds,
    replication::{collection_names, partitions},
    requested, shape_under,
};

use super::{
    Request,
    capacity::Load,
    findings::Findings,
    membership::Membership,
    replicas, scale,
    targets::{Place, reason},
    template, unit_id,
};

pub(super) struct Draft<'a> {
    pub(super) id: String,
    pub(super) place: Place<'a>,
    pub(super) class: &'a ResolvedClass,
    pub(super) spec: UnitSpec,
    pub(super) replicas: i32,
    pub(super) partitions: i32,
    pub(super) reasons: Vec<Reason>,
}

/// Plans one class in one place, except for what depends on other places.
pub(super) fn draft<'a>(
    request: &Request<'a>,
    class: &'a ResolvedClass,
    place: Place<'a>,
    findings: &mut Findings,
) -> Draft<'a> {
    let deployment = request.deployment;
    let id = unit_id(&deployment.key, &class.key, place.environment, place.cluster);
    let mut spec = unit_spec(&Source {
        id: &id,
        package: &request.package.name,
        version: &request.package.version,
        class,
        classes: &request.package.classes,
        deployment,
        member: place.member,
        environment: place.environment,
    });
    let (replicas, mut reasons) =
        replicas::replicas(&mut spec, deployment, &class.key, &place, findings);
    let mut parts = 1;
    if class.has_grid() {
        check_grid(class, &spec, &place, findings);
        let (count, because) = partitions(&spec);
        let because = match deployment.partition_count {
            Some(set) if set == count => "set in the deployment (partitionCount)".to_owned(),
            _ => because,
        };
        parts = count;
        reasons.push(reason("odgm_config.partition_count", count.to_string(), because));
        if let Some(config) = &mut spec.odgm_config {
            config.partition_count = Some(count);
        }
    }
    // The hint determines the default number of instances, and the number of instances determines
    // whether the unit is admitted with the hint.
    template::hint(&mut spec, class, deployment, &place);
    let count = deployment.replica_count;
    reasons.extend(scale::bounds(&mut spec, class, count, &place, findings));
    reasons.push(template::hint(&mut spec, class, deployment, &place));
    Draft { id, place, class, spec, replicas, partitions: parts, reasons }
}

/// Checks that the cluster has a data grid, and that functions use existing collections.
fn check_grid(class: &ResolvedClass, spec: &UnitSpec, place: &Place<'_>, findings: &mut Findings) {
    if place.facts.lacks_grid() {
        let message = format!(
            "class {} has state, but cluster {} has no data grid (capability odgm)",
            class.key, place.cluster
        );
        let hint = "select other clusters, or enable it there (features.odgm)";
        findings.reject("targetClusters", message, Some(hint));
    } else if place.facts.platform.is_none() {
        findings.warn(format!(
            "PM has never connected to {}, so it is unknown whether it has a data grid for {}",
            place.cluster, class.key
        ));
    }
    let known = collection_names(spec, &class.key);
    for function in &class.functions {
        let used = function.function.odgm.iter().flat_map(|it| &it.collections);
        for name in used.filter(|name| !known.contains(name)) {
            let message = format!(
                "{} uses collection {name:?}, but {} has: {}",
                function.key,
                class.key,
                known.join(", ")
            );
            findings.reject("odgm.collections", message, None);
        }
    }
}

impl<'a> Draft<'a> {
    /// Sets the partitions of the unit's member, and those of the others.
    pub(super) fn assign(&mut self, membership: &Membership) {
        let Some(member) = self.place.member else { return };
        let Some(config) = &mut self.spec.odgm_config else { return };
        membership.apply(config, member.id);
        let shards = membership.owners.iter().filter(|it| **it == member.id).count();
        let because = format!(
            "member {} has {shards} of {} partitions, and {} of each in {}: as set in assignments, \
             otherwise where they are, otherwise spread evenly by maxShards and allPartitions",
            member.id,
            self.partitions,
            if self.replicas == 1 {
                "one copy".to_owned()
            } else {
                format!("{} copies", self.replicas)
            },
            self.place.cluster,
        );
        self.reasons.push(reason("odgm_config.shard_assignments", shards.to_string(), because));
    }

    /// Admits the unit as its cluster will; `None` if it is rejected. For a cluster that never
    /// connected, whose platform is assumed, a rejection is only a warning.
    pub(super) fn admit(&self, request: &Request<'_>, findings: &mut Findings) -> Option<Admitted> {
        let (place, platform) = (&self.place, self.place.facts.platform());
        let rejection = match admit(place.identity(&self.spec), &self.spec, &platform) {
            Ok(admitted) => {
                self.warn_of_fixed_scale(&admitted, findings);
                return Some(admitted);
            }
            Err(rejection) => rejection,
        };
        let message = format!("{} on {}: {}", self.class.key, place.cluster, rejection.message);
        if place.facts.platform.is_none() {
            findings.warn(message);
            return None;
        }
        let field = rejection.violations.first().map(|it| it.field.as_str()).unwrap_or_default();
        let path = match field {
            "selected_template" => template::requested(request.deployment, place).0,
            field => format!("{}.{field}", self.class.key),
        };
        findings.reject(path, message, None);
        None
    }

    /// Warns of a `maxScale` without an autoscaler.
    fn warn_of_fixed_scale(&self, admitted: &Admitted, findings: &mut Findings) {
        let platform = self.place.facts.platform();
        if self.place.facts.platform.is_none() || platform.can_autoscale() {
            return;
        }
        for function in &admitted.class.functions {
            let shape = shape_under(admitted.selection.template, function, &platform);
            let bounds = instance_bounds(function, shape, admitted.selection.profile);
            if shape == Shape::Deployment && function.max_scale.is_some() && bounds.max > bounds.min
            {
                findings.warn(format!(
                    "{}/{}: maxScale {} has no effect; cluster {} has no autoscaling (capability \
                     hpa)",
                    self.class.key, function.key, bounds.max, self.place.cluster
                ));
            }
        }
    }

    pub(super) fn finish(
        mut self,
        namespace: &str,
        admitted: Option<Admitted>,
        load: &mut Load<'a>,
    ) -> UnitPlan {
        let platform = self.place.facts.platform();
        let requested = admitted
            .as_ref()
            .map(|it| requested(&it.class, &it.selection, &platform))
            .unwrap_or_default();
        load.add(&self.place, requested);
        self.reasons.push(reason(
            "requests",
            format!(
                "{}m CPU, {}Mi memory",
                requested.cpu_millis,
                requested.memory_bytes.div_ceil(1 << 20)
            ),
            "at minimum scale",
        ));
        let selection = admitted.map(|it| it.selection);
        UnitPlan {
            id: self.id,
            cluster: self.place.cluster.to_owned(),
            environment: self.place.environment.to_owned(),
            namespace: namespace.to_owned(),
            class: self.class.key.clone(),
            template: selection.as_ref().map(|it| it.template.as_str().to_owned()),
            template_basis: selection.as_ref().map(|it| it.basis.clone()).unwrap_or_default(),
            scores: selection.map(|it| it.scores).unwrap_or_default(),
            requested,
            spec: self.spec,
            reasons: self.reasons,
        }
    }
}
