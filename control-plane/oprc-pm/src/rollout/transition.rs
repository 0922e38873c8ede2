//! What a transition changes in the store.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oprc_models::OClassDeployment;
use oprc_unit::truncate_message;

use super::{
    model::{DeploymentRecord, FormerRevision, Stage, UnitKey, UnitRecord, planned_key},
    state_machine::{Transition, rolls_back_on_failure},
};

pub type Units = BTreeMap<UnitKey, UnitRecord>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransitionResult {
    /// None where the deployment is deleted.
    pub record: Option<DeploymentRecord>,
    /// Units whose records change.
    pub units: Units,
    /// The outcome to store in the revision's history entry.
    pub outcome: String,
}

pub fn apply_transition(
    transition: &Transition,
    record: &DeploymentRecord,
    existing: &Units,
    now: Timestamp,
) -> TransitionResult {
    let mut next = DeploymentRecord { stage_since: now, ..record.clone() };
    let mut units = Units::new();
    let outcome = match transition {
        Transition::Remove => return TransitionResult::default(),
        Transition::Succeed => {
            next.stage = Stage::Succeeded;
            next.former = None;
            "succeeded".to_owned()
        }
        Transition::RollBack { because } => {
            // Truncated, so that the transition always fits into a transaction.
            let because = truncate_message(because);
            let outcome = format!("rolling back: {because}");
            next.stage = Stage::RollingBack { because };
            units = desired_units(&next, existing);
            outcome
        }
        Transition::RolledBack => {
            let because = match &record.stage {
                Stage::RollingBack { because } => because.clone(),
                _ => String::new(),
            };
            let outcome = format!("rolled back: {because}");
            next.stage = Stage::RolledBack { because };
            outcome
        }
    };
    TransitionResult { record: Some(next), units, outcome }
}

/// The revision that a new one rolls back to if it fails; none if it doesn't roll back.
pub fn rollback_target(
    before: &DeploymentRecord,
    desired: &OClassDeployment,
) -> Option<FormerRevision> {
    if !rolls_back_on_failure(desired) {
        return None;
    }
    let runs = match &before.stage {
        Stage::Succeeded => true,
        // Without rollback it stays as far as it came.
        Stage::RollingOut => !rolls_back_on_failure(&before.deployment),
        Stage::RollingBack { .. } | Stage::RolledBack { .. } | Stage::Deleting => false,
    };
    if runs { Some(FormerRevision::of(before)) } else { before.former.clone() }
}

/// The unit records of the plan that clusters are driven to; all others are marked for deletion.
/// Acknowledgements are kept, so that only units that differ are sent.
pub fn desired_units(record: &DeploymentRecord, existing: &Units) -> Units {
    let mut units = existing.clone();
    for unit in units.values_mut() {
        unit.desired = false;
    }
    if let Some((revision, plan)) = record.desired() {
        for unit in &plan.units {
            let key = planned_key(unit);
            let acknowledged = units.remove(&key).and_then(|it| it.acknowledged);
            let planned = UnitRecord::planned(record, revision, unit);
            units.insert(key, UnitRecord { acknowledged, ..planned });
        }
    }
    units
}
