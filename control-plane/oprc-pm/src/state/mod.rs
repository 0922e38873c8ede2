//! Stored state: the schema, a cache of all records that follows the store, and commits.

mod cache;
mod commit;
mod deployments;
mod format;
pub mod packages;
pub mod schema;
mod size_limit;

pub use self::{
    cache::Cache,
    commit::{Attempt, replace, replace_deployment},
    deployments::{DeploymentWithUnits, Versioned, VersionedUnit, records_of},
    format::check_format,
    size_limit::check_transaction_size,
};
