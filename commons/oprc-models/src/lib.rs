//! Packages, classes, functions and deployments: the model, the YAML reader, validation and
//! inheritance. Performs no I/O.
//!
//! [`parse`] reads a file and reports syntax and type errors, [`Document::check`] validates each
//! document on its own, and [`resolve`] computes what the classes of a package inherit. Each stage
//! reports all problems at once. Fields without any effect are rejected with the reason.

mod check;
mod diagnostics;
mod document;
mod label_selector;
pub mod limits;
mod macros;
mod model;
mod names;
mod quantity;
mod resolve;
pub mod rules;
#[cfg(feature = "openapi")]
mod schema;
mod yaml;

pub use check::{StepRef, check, check_deployment, check_update};
pub use diagnostics::{Diagnostic, Diagnostics, Path as FieldPath, SourceLocation};
pub use document::{Body, Document, parse, to_yaml};
pub use label_selector::{LabelRequirement, parse_label_selector};
pub use model::*;
pub use names::split_reference;
pub use quantity::{
    exceeds, is_quantity, is_volume_size, parse_quantity, parse_volume_size, same_quantity,
};
pub use resolve::{
    Lookup, Origin, ResolvedBinding, ResolvedClass, ResolvedFunction, ResolvedPackage,
    check_against, resolve,
};
pub use yaml::{MAX_DEPTH, MAX_DOCUMENTS, MAX_EXPANDED_SIZE, MAX_FILE_SIZE};

#[cfg(test)]
mod tests;

#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
