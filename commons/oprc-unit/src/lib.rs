//! Types, limits, defaults and rules of units. PM plans with the same functions with which CRM admits
//! and reconciles units, so that CRM accepts every plan.
//!
//! All functions are pure: no IO, no clock, no Kubernetes client.

mod admission;
pub mod availability;
mod class;
pub mod from_model;
mod instances;
pub mod names;
mod phase;
mod platform;
pub mod replication;
mod select;
mod sizing;
pub mod spec;
mod unit_id;

pub use oprc_models::{exceeds, is_quantity, is_volume_size, same_quantity};

pub use self::{
    admission::{Admitted, admit, readmit},
    class::{
        ADDONS, Addon, CollectionPlan, FunctionRequirements, Identity, MAX_MESSAGE, MacroPlan,
        MembershipPlan, MethodPlan, OdgmPlan, PROXY_ADMIN_PORT, PROXY_PORT, Passive, PassiveReason,
        Rejection, RejectionReason, TriggerPlan, ValidClass, ValidFunction, Violation,
        function_requirements, partition_owners, persistence, shard_type, truncate_message,
        validate,
    },
    instances::{InstanceBounds, instance_bounds, max_by_load},
    phase::Phase,
    platform::{
        Features, Floors, MonitorKind, Monitors, OdgmImages, Platform, Profile, Scaling, Sizes,
    },
    select::{
        Selection, SelectionStatus, Shape, Template, TemplateScore, alternative_shape, select,
        shape_under, shape_with,
    },
    sizing::{Capacity, function_sizes, grid_sizes, proxy_sizes, requested},
    spec::UnitSpec,
    unit_id::{UnitId, parse_unit_id, unit_id},
};
