//! Whether a specification can be reconciled: the same rules for Deploy and for the reconciler.

use oprc_unit::{
    Identity, Platform, Profile, Rejection, Selection, SelectionStatus, UnitSpec, ValidClass,
    Violation, names, select, validate,
};

use super::data_protection::check_data_protection;
use crate::crd::ClassRuntimeStatus;

/// A class that can be rendered.
pub struct Admitted {
    pub class: ValidClass,
    pub selection: Selection,
}

/// Checks identity, specification, data protection and template. `former` is the selection that the
/// same generation got before; it keeps its profile and template.
pub fn admit(
    identity: Identity,
    spec: &UnitSpec,
    platform: &Platform,
    status: Option<&ClassRuntimeStatus>,
    former: Option<&SelectionStatus>,
) -> Result<Admitted, Rejection> {
    check_id(&identity.name, spec)?;
    let profile = former.and_then(|former| Profile::parse(&former.profile));
    let class = validate(profile.unwrap_or(platform.profile), identity, spec, platform)?;
    check_data_protection(class.odgm.as_ref(), status, spec)?;
    let selection = select(&class, platform, former)?;
    Ok(Admitted { class, selection })
}

/// A class must be found by its deployment id, and no other class by the same id.
fn check_id(name: &str, spec: &UnitSpec) -> Result<(), Rejection> {
    let id = spec.deployment_unit.as_ref().map(|unit| unit.id.as_str());
    match id.filter(|id| *id != name && names::class_runtime(id) != name) {
        None => Ok(()),
        Some(id) => {
            let field = "deployment_unit.id".to_owned();
            let message = format!("{id:?} doesn't belong to a ClassRuntime named {name:?}");
            Err(Rejection::invalid(vec![Violation { field, message }]))
        }
    }
}
