//! What stands against a plan, by the fields of the deployment.

use oprc_models::{Diagnostic, Diagnostics};

/// Notes what is wrong at a field.
pub(super) fn add(faults: &mut Diagnostics, path: impl Into<String>, message: impl Into<String>) {
    push(faults, path.into(), message.into(), None);
}

/// The same, with what to do about it.
pub(super) fn hint(
    faults: &mut Diagnostics,
    path: impl Into<String>,
    message: impl Into<String>,
    hint: impl Into<String>,
) {
    push(faults, path.into(), message.into(), Some(hint.into()));
}

fn push(faults: &mut Diagnostics, path: String, message: String, hint: Option<String>) {
    // The same thing may stand against many units.
    if faults.all.iter().any(|it| it.path == path && it.message == message) {
        return;
    }
    faults.push(Diagnostic { path, location: None, message, hint });
}
