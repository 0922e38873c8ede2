//! Packages, classes, functions and deployments: what they are made of, how they are read from
//! files, what must hold of them, and what classes inherit. Nothing here does any IO.
//!
//! A file goes through [`parse`], which tells everything that is wrong with how it is written,
//! then [`Document::check`], which tells everything that is wrong with what it says, and a package
//! then through [`resolve`], which settles what its classes inherit. Whatever a file may say has a
//! field here, and each field's comment tells what becomes of it; what nothing would heed is
//! refused, with the reason.

mod check;
mod fault;
mod injected;
mod macros;
mod model;
mod names;
mod quantity;
mod resolve;
#[cfg(feature = "openapi")]
mod schema;
mod text;

pub use check::{Ref, check, check_against, check_deployment, check_update};
pub use fault::{Fault, Faults, Place};
pub use injected::INJECTED;
pub use model::*;
pub use resolve::{
    Lookup, Origin, ResolvedBinding, ResolvedClass, ResolvedFunction, ResolvedPackage, resolve,
};
pub use text::{Body, Document, MAX_DEPTH, MAX_DOCUMENTS, MAX_TEXT, MAX_WEIGHT, parse, to_yaml};

#[cfg(test)]
mod tests;

/// Where the workspace is.
#[cfg(test)]
fn workspace() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
