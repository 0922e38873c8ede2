//! The rollout of a deployment as pure functions: which call a unit needs next, when a deployment
//! has succeeded, failed or been deleted, and what that changes in the store.
//!
//! Decisions depend on the desired and the observed state only, never on earlier calls, so that a
//! process may end after any step and the next one continues.

mod condition;
mod model;
mod state_machine;
mod transition;
mod unit;

#[cfg(test)]
mod tests;

pub use self::{
    condition::{condition, is_available},
    model::{
        Acknowledged, DeploymentRecord, FormerRevision, MAX_UNITS, Stage, UnitKey, UnitRecord,
        planned_key,
    },
    state_machine::{Deadlines, Evaluation, Transition, UnitView, evaluate, rolls_back_on_failure},
    transition::{TransitionResult, Units, apply_transition, desired_units, rollback_target},
    unit::{
        CallOutcome, Observation, ObservedUnit, RecordUpdate, Step, is_current, is_ready,
        next_step, record_update,
    },
};
