//! Admission: whether a unit can run on a platform, and as what.

use crate::{
    class::{Identity, Rejection, ValidClass, validate},
    platform::Platform,
    select::{Selection, select},
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
    let class = validate(platform.profile, identity, spec, platform)?;
    let selection = select(&class, platform, None)?;
    Ok(Admitted { class, selection })
}
