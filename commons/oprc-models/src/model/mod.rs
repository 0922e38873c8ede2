//! The content of packages and deployments.
//!
//! Field comments are OpenAPI descriptions. "Sent to CRM as" names the field of the deployment unit
//! (`deployment.unit.ClassSpec`); everything else is used by the package manager (PM).

mod class;
mod deployment;
mod flow;
mod function;
mod grid;
mod package;
mod provision;
mod requirements;
mod version;

pub use self::{
    class::*, deployment::*, flow::*, function::*, grid::*, package::*, provision::*,
    requirements::*, version::*,
};
