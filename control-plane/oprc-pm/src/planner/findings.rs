//! What planning finds on its way.

use oprc_models::{Diagnostic, Diagnostics};

#[derive(Debug, Default)]
pub(super) struct Findings {
    /// By field of the deployment; no plan is made if there are any.
    pub(super) diagnostics: Diagnostics,
    pub(super) warnings: Vec<String>,
}

impl Findings {
    pub(super) fn reject(
        &mut self,
        path: impl Into<String>,
        message: impl Into<String>,
        hint: Option<&str>,
    ) {
        let (path, message, hint) = (path.into(), message.into(), hint.map(str::to_owned));
        // Many units may have the same problem.
        if !self.diagnostics.all.iter().any(|it| it.path == path && it.message == message) {
            self.diagnostics.push(Diagnostic { path, location: None, message, hint });
        }
    }

    pub(super) fn warn(&mut self, message: String) {
        self.warnings.push(message);
    }
}
