//! The rulebook: what a unit is, which limits it has, and what follows from it. PM plans with these
//! functions and CRM admits and reconciles with them, so that whatever is planned is accepted.
//!
//! Everything here is a function of values: no IO, no clock, no Kubernetes client.

mod admission;
pub mod availability;
mod class;
pub mod from_model;
mod instances;
pub mod names;
mod platform;
mod quantity;
pub mod replication;
mod select;
mod sizing;
pub mod spec;
mod unit_id;

pub use self::{
    admission::{Admitted, admit, readmit},
    class::{
        ADDONS, Addon, CollectionPlan, Identity, MAX_MESSAGE, OdgmPlan, Passive, PassiveReason,
        Rejection, RejectionReason, Trigger, ValidClass, ValidFunction, Violation, persistence,
        shard_type, truncate_message, validate,
    },
    instances::{InstanceBounds, MAX_SCALE, instance_bounds, max_by_load},
    platform::{Features, Floors, OdgmImages, Platform, Profile, Sizes},
    quantity::{exceeds, is_disk_size, is_quantity, same_quantity},
    select::{Selection, SelectionStatus, Shape, Template, TemplateScore, select, shape_under},
    sizing::{Capacity, function_sizes, grid_sizes, requested},
    spec::UnitSpec,
    unit_id::{UnitId, parse_unit_id, unit_id},
};
