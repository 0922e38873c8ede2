//! The next call for one unit, and what its outcome changes in the unit's record.

use oprc_unit::Phase;

use super::model::{Acknowledged, UnitRecord};

/// A unit as its cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The cluster is unreachable, or has not reported all of its classes yet.
    Unknown,
    Absent,
    Present(ObservedUnit),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedUnit {
    pub uid: String,
    pub generation: i64,
    /// The generation that the status is about.
    pub observed_generation: i64,
    pub deleting: bool,
    pub phase: Phase,
    pub reason: String,
    pub message: String,
}

impl ObservedUnit {
    /// The phase, if it is about the current generation.
    pub fn current_phase(&self) -> Option<Phase> {
        (self.observed_generation >= self.generation).then_some(self.phase)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    Deploy,
    /// Repeated until the cluster answers that there is no such unit.
    Delete,
}

/// The outcome of a Deploy or Delete call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    Accepted(Acknowledged),
    Terminating,
    NotFound,
    /// Repeating the call has the same result.
    Rejected(String),
    /// It is unknown whether the cluster has executed the call.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum RecordUpdate {
    Unchanged,
    Replaced(Box<UnitRecord>),
    Deleted,
}

/// Whether the cluster has the unit as its record desires it.
pub fn is_current(record: &UnitRecord, observed: &ObservedUnit) -> bool {
    let matches = |acknowledged: &Acknowledged| {
        acknowledged.revision == record.revision
            && acknowledged.uid == observed.uid
            && acknowledged.generation == observed.generation
    };
    record.desired && !observed.deleting && record.acknowledged.as_ref().is_some_and(matches)
}

/// Whether the cluster has the unit as desired, and it is Available.
pub fn is_ready(record: &UnitRecord, observation: &Observation) -> bool {
    matches!(observation, Observation::Present(observed) if is_current(record, observed)
        && observed.current_phase() == Some(Phase::Available))
}

pub fn next_step(record: &UnitRecord, observation: &Observation) -> Step {
    match (record.desired, observation) {
        (_, Observation::Unknown) => Step::Wait,
        // The name is taken until the old object is deleted.
        (_, Observation::Present(observed)) if observed.deleting => Step::Wait,
        (true, Observation::Present(observed)) if is_current(record, observed) => Step::Wait,
        (true, _) => Step::Deploy,
        // The watch may lag behind a Deploy: only the answer to Delete proves absence.
        (false, _) => Step::Delete,
    }
}

/// What the outcome of a call changes in the record that the call was made for.
pub fn record_update(record: &UnitRecord, outcome: &CallOutcome) -> RecordUpdate {
    match (outcome, record.desired) {
        (CallOutcome::Accepted(acknowledged), true)
            if record.acknowledged.as_ref() != Some(acknowledged) =>
        {
            let acknowledged = Some(acknowledged.clone());
            RecordUpdate::Replaced(Box::new(UnitRecord { acknowledged, ..record.clone() }))
        }
        (CallOutcome::NotFound, false) => RecordUpdate::Deleted,
        _ => RecordUpdate::Unchanged,
    }
}
