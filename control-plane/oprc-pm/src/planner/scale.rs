//! Bounds of the number of instances of functions.

use std::collections::BTreeMap;

use oprc_models::{Requirements, ResolvedClass};
use oprc_rest::Reason;
use oprc_unit::{
    Shape, UnitSpec, admit,
    availability::{MAX_COPIES, Needs, copies, floor},
    instance_bounds, max_by_load, shape_under,
};

use super::{
    findings::Findings,
    targets::{Place, reason},
};

/// Raises `min_scale` of each function to the number that its availability requires. It is never
/// lower than the number that the user sets or that the function would have by default.
pub(super) fn bounds(
    spec: &mut UnitSpec,
    class: &ResolvedClass,
    replica_count: Option<i32>,
    place: &Place<'_>,
    findings: &mut Findings,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let defaults = default_instances(spec, place);
    let class_load = spec.nfr_requirements.as_ref().and_then(|it| it.min_throughput_rps);
    for (at, function) in spec.functions.iter_mut().enumerate() {
        let Some(resolved) = class.function(&function.key) else { continue };
        if function.body.image.is_none() || spec.disabled_functions.contains(&function.key) {
            continue;
        }
        let field = format!("functions[{at}].provision.min_scale");
        let own = function.body.provision.as_ref().and_then(|it| it.min_scale);
        if spec.standby_functions.contains(&function.key) {
            let value = own.map_or_else(|| "default".to_owned(), |it| it.to_string());
            reasons.push(reason(field, value, "standby functions run at the lowest cost"));
            continue;
        }
        let required = |it: &Option<Requirements>| it.as_ref().and_then(Requirements::availability);
        let target =
            required(&resolved.function.requirements).or_else(|| required(&class.requirements));
        let whose = format!("{}/{}", class.key, function.key);
        let planned =
            target.map(|target| instances(target, replica_count, &whose, place, findings));
        // Without state, instances are the copies.
        let requested = replica_count.filter(|_| !class.has_grid());
        let requested =
            requested.map(|count| (count, "set in the deployment (replicaCount)".to_owned()));
        let most = [planned, requested].into_iter().flatten().max_by_key(|(number, _)| *number);
        let Some((number, because)) = most else { continue };
        if let Some(own) = own.filter(|own| *own >= number) {
            let because = format!("minScale is sufficient; {because}");
            reasons.push(reason(field, own.to_string(), because));
            continue;
        }
        let default = defaults.get(&function.key).copied();
        let before = own.or(default.map(|it| it.0)).unwrap_or_default();
        let min = number.max(before);
        let because = match own {
            None if before >= number => format!("default is sufficient; {because}"),
            None => format!("raised from the default of {before}; {because}"),
            Some(own) => format!("raised from {own}; {because}"),
        };
        reasons.push(reason(field, min.to_string(), because));
        let load = function.body.requirements.as_ref().and_then(|it| it.min_throughput_rps);
        let provision = function.body.provision.get_or_insert_default();
        provision.min_scale = Some(min);
        let (max, because) = match (provision.max_scale, load.or(class_load)) {
            (Some(max), _) if max < min => {
                findings.warn(format!(
                    "{whose} on {}: maxScale is raised from {max} to {min}, because of its availability",
                    place.cluster
                ));
                (min, format!("raised from {max} to min_scale"))
            }
            // A `min_scale` without `max_scale` is a fixed number of instances.
            (None, Some(load))
                if own.is_none() && default.is_some_and(|it| it.1 != Shape::Knative) =>
            {
                let max = max_by_load(load, before);
                if max <= min {
                    continue;
                }
                let why = "2 instances per 1000, at least twice the minimum";
                (max, format!("{load} requests/s: {why}"))
            }
            _ => continue,
        };
        provision.max_scale = Some(max);
        let field = format!("functions[{at}].provision.max_scale");
        reasons.push(reason(field, max.to_string(), because));
    }
    reasons
}

/// The default minimum number of instances and the shape of each function; empty if the unit is
/// rejected.
fn default_instances(spec: &UnitSpec, place: &Place<'_>) -> BTreeMap<String, (i32, Shape)> {
    let platform = place.facts.platform();
    let Ok(admitted) = admit(place.identity(spec), spec, &platform) else {
        return BTreeMap::new();
    };
    let functions = admitted.class.functions.iter().map(|function| {
        let shape = shape_under(admitted.selection.template, function, &platform);
        let bounds = instance_bounds(function, shape, admitted.selection.profile);
        (function.key.clone(), (bounds.min, shape))
    });
    functions.collect()
}

/// The number of instances that an availability requires, and why. If no number reaches it on the
/// nodes of the cluster, the deployment must set `replicaCount`.
fn instances(
    target: f64,
    replica_count: Option<i32>,
    whose: &str,
    place: &Place<'_>,
    findings: &mut Findings,
) -> (i32, String) {
    if let Some(found) = copies(target, Needs::Any, place.facts.node_availability) {
        return found;
    }
    let message = format!(
        "{whose} requires availability {target}, which up to {MAX_COPIES} instances don't reach on {}",
        place.cluster
    );
    let Some(count) = replica_count else {
        let hint = "set replicaCount, or lower the availability requirement";
        findings.reject("replicaCount", message, Some(hint));
        return (1, String::new());
    };
    let number = count.max(floor(target));
    findings.warn(format!("{message}; {number} are planned"));
    (number, format!("replicaCount is {count}; no number reaches availability {target}"))
}
