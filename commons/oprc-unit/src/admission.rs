//! Admission: whether a unit can run on a platform, and as what.

use crate::{
    class::{Identity, Rejection, ValidClass, Violation, validate},
    names,
    platform::{Platform, Profile},
    select::{Selection, SelectionStatus, select},
    spec::UnitSpec,
};

/// A unit that can run.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    pub class: ValidClass,
    pub selection: Selection,
}

/// Admits a unit that isn't stored yet, with the platform's own profile. CRM checks the same and,
/// for a class that runs, also that its data is safe.
pub fn admit(
    identity: Identity,
    spec: &UnitSpec,
    platform: &Platform,
) -> Result<Admitted, Rejection> {
    readmit(identity, spec, platform, None)
}

/// Admits a unit that keeps the profile and template of a former selection.
pub fn readmit(
    identity: Identity,
    spec: &UnitSpec,
    platform: &Platform,
    former: Option<&SelectionStatus>,
) -> Result<Admitted, Rejection> {
    check_id(&identity.name, spec)?;
    let profile = former.and_then(|former| Profile::parse(&former.profile));
    let class = validate(profile.unwrap_or(platform.profile), identity, spec, platform)?;
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
