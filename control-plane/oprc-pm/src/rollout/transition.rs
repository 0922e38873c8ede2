//! What a transition changes in the store.

use std::collections::BTreeMap;

use jiff::Timestamp;
use oprc_models::OClassDeployment;
use oprc_rest::Plan;

use super::{
    model::{DeploymentRecord, FormerRevision, Stage, UnitKey, UnitRecord},
    state_machine::{Transition, UnitView, rolls_back_on_failure},
};

pub type Units = BTreeMap<UnitKey, UnitRecord>;

/// Longer failure messages are truncated, so that the transition always fits into a transaction.
const MAX_FAILURE_CHARS: usize = 2048;

#[derive(Clone, Debug, PartialEq)]
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
    units: &[UnitView<'_>],
    now: Timestamp,
) -> TransitionResult {
    let since = now;
    let with = |stage: Stage| Some(DeploymentRecord { stage, ..record.clone() });
    match transition {
        Transition::Succeed => TransitionResult {
            record: with(Stage::Succeeded { since })
                .map(|record| DeploymentRecord { former: None, ..record }),
            units: Units::new(),
            outcome: "succeeded".to_owned(),
        },
        Transition::RollBack { because } => {
            let because = truncate(because);
            let existing: Units = units
                .iter()
                .map(|unit| ((unit.cluster.to_owned(), unit.id.to_owned()), unit.record.clone()))
                .collect();
            TransitionResult {
                units: former_units(record, &existing),
                outcome: format!("rolling back: {because}"),
                record: with(Stage::RollingBack { since, because }),
            }
        }
        Transition::RolledBack => {
            let because = match &record.stage {
                Stage::RollingBack { because, .. } => because.clone(),
                _ => String::new(),
            };
            TransitionResult {
                outcome: format!("rolled back: {because}"),
                record: with(Stage::RolledBack { since, because }),
                units: Units::new(),
            }
        }
        Transition::Remove => {
            TransitionResult { record: None, units: Units::new(), outcome: String::new() }
        }
    }
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_FAILURE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
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
        Stage::Succeeded { .. } => true,
        // Without rollback it stays as far as it came.
        Stage::RollingOut { .. } => !rolls_back_on_failure(&before.deployment),
        Stage::RollingBack { .. } | Stage::RolledBack { .. } | Stage::Deleting { .. } => false,
    };
    if runs { Some(FormerRevision::of(before)) } else { before.former.clone() }
}

/// The unit records of the former plan; all others are marked for deletion.
pub fn former_units(record: &DeploymentRecord, existing: &Units) -> Units {
    let former = record.former.as_ref();
    desired_units(
        former.map(|former| (former.revision.as_str(), &former.plan)),
        &record.deployment.key,
        &record.correlation_id,
        existing,
    )
}

/// The unit records of a plan, and those of existing units that must be deleted. Acknowledgements
/// are kept, so that only units that differ are sent.
pub fn desired_units(
    plan: Option<(&str, &Plan)>,
    deployment: &str,
    correlation_id: &str,
    existing: &Units,
) -> Units {
    let mut units: Units = existing
        .iter()
        .map(|(key, unit)| (key.clone(), UnitRecord { spec: None, ..unit.clone() }))
        .collect();
    for (revision, unit) in plan
        .into_iter()
        .flat_map(|(revision, plan)| plan.units.iter().map(move |it| (revision, it)))
    {
        let key = (unit.cluster.clone(), unit.id.clone());
        let acknowledged = existing.get(&key).and_then(|before| before.acknowledged.clone());
        let record = UnitRecord {
            deployment: deployment.to_owned(),
            revision: revision.to_owned(),
            class: unit.class.clone(),
            environment: unit.environment.clone(),
            namespace: unit.namespace.clone(),
            spec: Some(unit.spec.clone()),
            requested: unit.requested,
            acknowledged,
            correlation_id: correlation_id.to_owned(),
        };
        units.insert(key, record);
    }
    units
}
