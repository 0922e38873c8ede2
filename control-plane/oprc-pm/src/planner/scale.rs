//! Within which bounds functions scale.

use oprc_grpc::deployment::unit::{ClassSpec, Provision};
use oprc_models::{Diagnostics, Requirements, ResolvedClass};
use oprc_rest::Reason;

use super::{
    availability::{MOST, Needs, copies, floor},
    faults,
    targets::{Place, reason},
    template,
};

/// The most that CRM takes as `max_scale`.
const MOST_BY_LOAD: i32 = 10_000;

/// Raises the least number of instances of each function to what its availability takes. A
/// function's own number is never lowered, and neither is what it has without one.
pub(super) fn bounds(
    spec: &mut ClassSpec,
    class: &ResolvedClass,
    replica_count: Option<i32>,
    place: &Place<'_>,
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let asked = spec.selected_template.as_deref();
    let profile = place.facts.profile().under(asked);
    let class_load = spec.nfr_requirements.as_ref().and_then(|it| it.min_throughput_rps);
    for (at, function) in spec.functions.iter_mut().enumerate() {
        let Some(resolved) = class.function(&function.key) else { continue };
        if function.image.is_none() || spec.disabled_functions.contains(&function.key) {
            continue;
        }
        let field = format!("functions[{at}].provision.min_scale");
        let own = function.provision.as_ref().and_then(|it| it.min_scale);
        let highest = function.provision.as_ref().and_then(|it| it.max_scale);
        if spec.standby_functions.contains(&function.key) {
            let value = own.map_or_else(|| "as the profile has it".to_owned(), |it| it.to_string());
            reasons.push(reason(field, value, "on standby it runs at the least cost"));
            continue;
        }
        let required = |it: &Option<Requirements>| it.as_ref().and_then(Requirements::availability);
        let target =
            required(&resolved.function.requirements).or_else(|| required(&class.requirements));
        let whose = format!("{} of {}", function.key, class.key);
        let planned =
            target.map(|target| instances(target, replica_count, &whose, place, faults, warnings));
        // Where there is no data, instances are the copies.
        let said = replica_count.filter(|_| !class.has_grid());
        let said = said.map(|count| (count, "replicaCount of the deployment".to_owned()));
        let most = [planned, said].into_iter().flatten().max_by_key(|(number, _)| *number);
        if let Some(most) = highest.filter(|most| *most > own.unwrap_or(1))
            && place.facts.capabilities.is_some_and(|it| !it.hpa)
            && !template::is_knative(asked, resolved, place)
        {
            warnings.push(format!(
                "{whose} on {}: nothing scales it up to {most} there (capability hpa)",
                place.cluster
            ));
        }
        let Some((number, because)) = most else { continue };
        if let Some(own) = own.filter(|own| *own >= number) {
            reasons.push(reason(field, own.to_string(), format!("minScale is enough; {because}")));
            continue;
        }
        let knative = template::is_knative(asked, resolved, place);
        let provision = function.provision.get_or_insert_with(Provision::default);
        // What CRM makes of no number depends on the template, which only it chooses: the floor
        // holds under each of them where it is said.
        let before = own.unwrap_or_else(|| {
            profile.instances(if knative { Some("knative") } else { asked }, false, provision)
        });
        let least = number.max(before);
        provision.min_scale = Some(least);
        let because = match own {
            None if before >= number => format!("the profile's own number is enough; {because}"),
            None => format!("raised from {before}, as nothing is said; {because}"),
            Some(own) => format!("raised from {own}; {because}"),
        };
        reasons.push(reason(field, least.to_string(), because));
        let load = function.requirements.as_ref().and_then(|it| it.min_throughput_rps);
        let (most, because) = match (highest, load.or(class_load)) {
            (Some(highest), _) if highest < least => {
                warnings.push(format!(
                    "{whose} on {}: maxScale {highest} is less than the {least} that it takes at \
                     least; it gets {least}",
                    place.cluster
                ));
                (least, format!("raised from {highest}: no less than min_scale"))
            }
            // CRM scales by load where no bound is said, and to CRM the least number now is one.
            // Without a bound Knative knows none.
            (None, Some(load)) if own.is_none() && !knative => {
                let most = (load / 1000).max(1).saturating_mul(2).min(MOST_BY_LOAD);
                if most <= least {
                    continue;
                }
                (most, format!("{load} requests/s: 2 instances for each 1000"))
            }
            _ => continue,
        };
        provision.max_scale = Some(most);
        let field = format!("functions[{at}].provision.max_scale");
        reasons.push(reason(field, most.to_string(), because));
    }
    reasons
}

/// How many instances a target takes, and why. What nodes never come to is only done by who says
/// how many there are to be.
fn instances(
    target: f64,
    said: Option<i32>,
    whose: &str,
    place: &Place<'_>,
    faults: &mut Diagnostics,
    warnings: &mut Vec<String>,
) -> (i32, String) {
    if let Some(found) = copies(target, Needs::Any, place.facts.node_availability) {
        return found;
    }
    let message = format!(
        "{whose} demands availability {target}, which no number of instances up to {MOST} comes \
         to on {}",
        place.cluster
    );
    let Some(said) = said else {
        faults::hint(faults, "replicaCount", message, "say replicaCount, or demand less");
        return (1, String::new());
    };
    let number = said.max(floor(target));
    warnings.push(format!("{message}; it gets {number} at least"));
    (number, format!("replicaCount is {said}; no number comes to availability {target}"))
}
