//! Whether a specification can be reconciled: the same rules for Deploy and for the reconciler.

use oprc_unit::{Admitted, Identity, Platform, Rejection, SelectionStatus, UnitSpec, readmit};

use super::data_protection::check_data_protection;
use crate::crd::ClassRuntimeStatus;

/// Checks identity, specification, template and data protection. `former` is the selection that the
/// same generation got before; it keeps its profile and template.
pub fn admit(
    identity: Identity,
    spec: &UnitSpec,
    platform: &Platform,
    status: Option<&ClassRuntimeStatus>,
    former: Option<&SelectionStatus>,
) -> Result<Admitted, Rejection> {
    let admitted = readmit(identity, spec, platform, former)?;
    check_data_protection(admitted.class.odgm.as_ref(), status, spec)?;
    Ok(admitted)
}
