use std::collections::BTreeSet;

use super::check_reference;
use crate::{
    diagnostics::{Diagnostics, Path},
    names::NameKind,
};

/// The names that references within a package may use.
pub(super) struct Declarations<'a> {
    pub(super) classes: BTreeSet<&'a str>,
    pub(super) functions: BTreeSet<&'a str>,
    pub(super) dependencies: BTreeSet<&'a str>,
}

impl Declarations<'_> {
    pub(super) fn check_class(&self, diagnostics: &mut Diagnostics, path: &Path, reference: &str) {
        let what = ("class", NameKind::Identifier);
        check_reference(diagnostics, path, what, reference, &self.classes, &self.dependencies);
    }

    pub(super) fn check_function(
        &self,
        diagnostics: &mut Diagnostics,
        path: &Path,
        reference: &str,
    ) {
        let what = ("function", NameKind::Function);
        check_reference(diagnostics, path, what, reference, &self.functions, &self.dependencies);
    }
}
