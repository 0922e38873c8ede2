//! What a transition changes in the store. Pure.

use std::collections::BTreeMap;

use oprc_models::OClassDeployment;

use super::stage::{Transition, UnitView, goes_back};
use crate::{
    records::{DeploymentRecord, Former, Stage, UnitRecord},
    stamp::{Millis, text},
};

/// The units by cluster and id.
pub type Units = BTreeMap<(String, String), UnitRecord>;

/// How many letters are kept of why something failed: it must not keep the rest from being stored.
const BECAUSE: usize = 2048;

/// What a transition leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// The deployment; none where it is gone.
    pub record: Option<DeploymentRecord>,
    /// Units whose records are others now.
    pub units: Units,
    /// What became of the revision.
    pub outcome: String,
}

/// What a transition comes to.
pub fn perform(
    transition: &Transition,
    record: &DeploymentRecord,
    units: &[UnitView<'_>],
    now: Millis,
) -> Next {
    let since = text(now);
    let with = |stage: Stage| Some(DeploymentRecord { stage, ..record.clone() });
    match transition {
        Transition::Settle => Next {
            record: with(Stage::Settled { since })
                .map(|record| DeploymentRecord { former: None, ..record }),
            units: Units::new(),
            outcome: "succeeded".to_owned(),
        },
        Transition::RollBack { because } => {
            let because = shortened(because);
            let existing: Units = units
                .iter()
                .map(|unit| ((unit.cluster.to_owned(), unit.id.to_owned()), unit.record.clone()))
                .collect();
            Next {
                units: back(record, &existing),
                outcome: format!("rolling back: {because}"),
                record: with(Stage::RollingBack { since, because }),
            }
        }
        Transition::RolledBack => {
            let because = match &record.stage {
                Stage::RollingBack { because, .. } => because.clone(),
                _ => String::new(),
            };
            Next {
                outcome: format!("rolled back: {because}"),
                record: with(Stage::RolledBack { since, because }),
                units: Units::new(),
            }
        }
        Transition::Remove => Next { record: None, units: Units::new(), outcome: String::new() },
    }
}

/// The beginning of a text that is too long.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(BECAUSE) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// What there is to go back to once something else than this is wanted, where that goes back.
pub fn former_of(before: &DeploymentRecord, wanted: &OClassDeployment) -> Option<Former> {
    if !goes_back(wanted) {
        return None;
    }
    let runs = match &before.stage {
        Stage::Settled { .. } => true,
        // It stays as far as it came, whatever becomes of it.
        Stage::Driving { .. } => !goes_back(&before.deployment),
        Stage::RollingBack { .. } | Stage::RolledBack { .. } | Stage::Deleting { .. } => false,
    };
    if runs { Some(Former::of(before)) } else { before.former.clone() }
}

/// The units as they were before: those of the former plan, and none of the others.
pub(super) fn back(record: &DeploymentRecord, existing: &Units) -> Units {
    let former = record.former.as_ref();
    units_of(
        former.map(|former: &Former| (former.revision.as_str(), &former.plan)),
        &record.deployment.key,
        &record.correlation_id,
        existing,
    )
}

/// The records that bring a deployment's units from what they are to a plan: its own, and those
/// that are to go. What a cluster has said before stays, so that only what differs is sent.
pub fn units_of(
    wanted: Option<(&str, &oprc_rest::Plan)>,
    deployment: &str,
    correlation_id: &str,
    existing: &Units,
) -> Units {
    let mut units: Units = existing
        .iter()
        .map(|(key, unit)| (key.clone(), UnitRecord { spec: None, ..unit.clone() }))
        .collect();
    for (revision, unit) in wanted
        .into_iter()
        .flat_map(|(revision, plan)| plan.units.iter().map(move |it| (revision, it)))
    {
        let key = (unit.cluster.clone(), unit.id.clone());
        let taken = existing.get(&key).and_then(|before| before.taken.clone());
        let record = UnitRecord {
            deployment: deployment.to_owned(),
            revision: revision.to_owned(),
            class: unit.class.clone(),
            environment: unit.environment.clone(),
            namespace: unit.namespace.clone(),
            spec: Some(unit.spec.clone()),
            taken,
            correlation_id: correlation_id.to_owned(),
        };
        units.insert(key, record);
    }
    units
}
