//! What packages and deployments are made of.
//!
//! A field's comment tells what becomes of it: where it goes in the unit that a cluster's CRM is
//! sent (`deployment.unit.ClassSpec`), or what the package manager (PM) does with it.

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
