//! Adds diagnostics by field of the deployment.

use oprc_models::{Diagnostic, Diagnostics};

pub(super) fn add(
    diagnostics: &mut Diagnostics,
    path: impl Into<String>,
    message: impl Into<String>,
) {
    push(diagnostics, path.into(), message.into(), None);
}

pub(super) fn add_with_hint(
    diagnostics: &mut Diagnostics,
    path: impl Into<String>,
    message: impl Into<String>,
    hint: impl Into<String>,
) {
    push(diagnostics, path.into(), message.into(), Some(hint.into()));
}

fn push(diagnostics: &mut Diagnostics, path: String, message: String, hint: Option<String>) {
    // Many units may have the same problem.
    if diagnostics.all.iter().any(|it| it.path == path && it.message == message) {
        return;
    }
    diagnostics.push(Diagnostic { path, location: None, message, hint });
}
