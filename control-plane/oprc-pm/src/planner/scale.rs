//! Within which bounds functions scale.

use oprc_grpc::deployment::unit::{ClassSpec, Provision};
use oprc_models::{Faults, Requirements, ResolvedClass};
use oprc_rest::Reason;

use super::{
    availability::{MOST, Needs, copies},
    faults,
    targets::{Place, reason},
};

/// Raises the least number of instances of each function to what its availability takes. A
/// function's own number is never lowered, and neither is what the cluster's profile gives it.
pub(super) fn bounds(
    spec: &mut ClassSpec,
    class: &ResolvedClass,
    replica_count: Option<i32>,
    place: &Place<'_>,
    faults: &mut Faults,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
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
        let planned = target.map(|target| {
            copies(target, Needs::Any, place.facts.node_availability).unwrap_or_else(|| {
                let message = format!(
                    "{} of {} demands availability {target}, which no number of instances up to \
                     {MOST} comes to on {}",
                    function.key, class.key, place.cluster
                );
                faults::hint(faults, "targetClusters", message, "demand less");
                (1, String::new())
            })
        });
        // Where there is no data, instances are the copies.
        let said = replica_count.filter(|_| !class.has_grid());
        let said = said.map(|count| (count, "replicaCount of the deployment".to_owned()));
        let most = [planned, said].into_iter().flatten().max_by_key(|(number, _)| *number);
        let Some((number, because)) = most else { continue };
        let usual = place.facts.usual_instances();
        let unsaid = own.is_none();
        if own.unwrap_or(usual) >= number {
            let value = own.unwrap_or(usual).to_string();
            let whose = if unsaid { "the profile's own number" } else { "minScale" };
            reasons.push(reason(field, value, format!("{whose} is enough; {because}")));
            continue;
        }
        let provision = function.provision.get_or_insert_with(Provision::default);
        provision.min_scale = Some(number);
        let before = own.map_or_else(|| format!("{usual} of the profile"), |it| it.to_string());
        let because = format!("raised from {before}; {because}");
        reasons.push(reason(field, number.to_string(), because));
        if let Some(highest) = highest.filter(|highest| *highest < number) {
            provision.max_scale = Some(number);
            reasons.push(reason(
                format!("functions[{at}].provision.max_scale"),
                number.to_string(),
                format!("raised from {highest}: no less than min_scale"),
            ));
        }
    }
    reasons
}
