//! Requirements that mode `ENFORCE` doesn't enforce at run time.

use oprc_models::{Dimension, EnforcementMode, OClassDeployment, Requirements, ResolvedClass};

use super::targets::Place;

/// Warns of what isn't enforced although the deployment asks for enforcement. A cluster that doesn't
/// report its capabilities gives no warning.
pub(super) fn warn_of_unenforced(
    deployment: &OClassDeployment,
    classes: &[&ResolvedClass],
    places: &[Place<'_>],
    warnings: &mut Vec<String>,
) {
    let Some(enforcement) = &deployment.enforcement else { return };
    if enforcement.mode != Some(EnforcementMode::Enforce) {
        return;
    }
    for Place { cluster, facts, .. } in places {
        if facts.enforces_requirements == Some(false) {
            warnings.push(format!(
                "{cluster}: requirements are only reported: features.nfr_enforcement of its CRM is off"
            ));
        } else if facts.measures_requirements == Some(false) {
            warnings.push(format!(
                "{cluster}: requirements are neither measured nor enforced: its CRM reads no Prometheus"
            ));
        }
    }
    let dimensions = &enforcement.dimensions;
    let scales = dimensions.is_empty() || dimensions.contains(&Dimension::Replicas);
    for class in classes {
        let key = &class.key;
        let requires = |of: fn(&Requirements) -> bool| requirements(class).any(of);
        if requires(|it| it.availability.is_some() || it.availability_pct.is_some()) {
            warnings.push(format!(
                "{key}: availability is not enforced at run time; it sets the planned number of replicas"
            ));
        }
        if !scales && requires(|it| it.throughput.is_some() || it.latency.is_some()) {
            warnings.push(format!(
                "{key}: throughput and latency are not enforced: enforcement.dimensions lacks REPLICAS"
            ));
        }
    }
}

/// Of the class and of its functions.
fn requirements(class: &ResolvedClass) -> impl Iterator<Item = &Requirements> {
    let functions = class.functions.iter().filter_map(|it| it.function.requirements.as_ref());
    class.requirements.iter().chain(functions)
}
