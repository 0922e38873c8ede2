//! What stands against a plan, by the fields of the deployment.

use oprc_models::{Fault, Faults};

/// Notes what is wrong at a field.
pub(super) fn add(faults: &mut Faults, path: impl Into<String>, message: impl Into<String>) {
    push(faults, path.into(), message.into(), None);
}

/// The same, with what to do about it.
pub(super) fn hint(
    faults: &mut Faults,
    path: impl Into<String>,
    message: impl Into<String>,
    hint: impl Into<String>,
) {
    push(faults, path.into(), message.into(), Some(hint.into()));
}

fn push(faults: &mut Faults, path: String, message: String, hint: Option<String>) {
    // The same thing may stand against many units.
    if faults.all.iter().any(|it| it.path == path && it.message == message) {
        return;
    }
    if faults.all.len() < Faults::MOST {
        faults.all.push(Fault { path, place: None, message, hint });
    } else {
        faults.left_out += 1;
    }
}
