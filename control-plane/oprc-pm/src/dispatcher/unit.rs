//! What is to be done about one unit. Pure.

use oprc_grpc::deployment::{ClassRuntime, Status};

use crate::records::{Taken, UnitRecord};

/// What a cluster tells of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It can't be told: the cluster is away, or hasn't told everything yet.
    Unknown,
    /// The cluster doesn't have it.
    Absent,
    /// It has it.
    Present(Sight),
}

/// A unit as its cluster has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The object.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
    /// The generation that its status is about.
    pub observed_generation: i64,
    /// Whether it is going.
    pub deleting: bool,
    /// Its phase.
    pub phase: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// None: it is as it should be, or there is something to wait for.
    Rest,
    /// It is sent.
    Deploy,
    /// It is taken away; the answer that there is none ends it.
    Delete,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster has it.
    Took {
        /// The object.
        uid: String,
        /// Its generation.
        generation: i64,
        /// Where it is.
        namespace: String,
    },
    /// The cluster takes it away.
    Going,
    /// The cluster doesn't have it.
    Gone,
    /// The cluster won't, whether or not it is asked again.
    Refused(String),
    /// Whether it was done isn't known.
    Failed(String),
}

/// What becomes of a unit's record.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// It stays as it is.
    Same,
    /// It is this.
    Changed(Box<UnitRecord>),
    /// It is deleted.
    Dropped,
}

/// Whether a cluster has what is wanted.
pub fn is_current(record: &UnitRecord, sight: &Sight) -> bool {
    let as_taken = |taken: &Taken| {
        taken.revision == record.revision
            && taken.uid == sight.uid
            && taken.generation == sight.generation
    };
    record.spec.is_some() && !sight.deleting && record.taken.as_ref().is_some_and(as_taken)
}

/// Whether a unit is as wanted, and Available.
pub fn is_good(record: &UnitRecord, seen: &Seen) -> bool {
    matches!(seen, Seen::Present(sight) if is_current(record, sight)
        && sight.observed_generation >= sight.generation
        && sight.phase == "Available")
}

/// What is to be done next. It goes by what is and what should be, never by what was done before.
pub fn step(record: &UnitRecord, seen: &Seen) -> Step {
    match (&record.spec, seen) {
        (_, Seen::Unknown) => Step::Rest,
        // Nothing can be made under that name before it is gone.
        (_, Seen::Present(sight)) if sight.deleting => Step::Rest,
        (Some(_), Seen::Present(sight)) if is_current(record, sight) => Step::Rest,
        (Some(_), _) => Step::Deploy,
        // Where it isn't seen, it may have come a moment ago: only the answer is sure.
        (None, _) => Step::Delete,
    }
}

/// What a call means for the record that led to it.
pub fn after(record: &UnitRecord, outcome: &Outcome) -> Kept {
    match (outcome, &record.spec) {
        (Outcome::Took { uid, generation, namespace }, Some(_)) => {
            let taken = Taken {
                revision: record.revision.clone(),
                uid: uid.clone(),
                generation: *generation,
                namespace: namespace.clone(),
            };
            if record.taken.as_ref() == Some(&taken) {
                return Kept::Same;
            }
            Kept::Changed(Box::new(UnitRecord { taken: Some(taken), ..record.clone() }))
        }
        (Outcome::Gone, None) => Kept::Dropped,
        _ => Kept::Same,
    }
}

/// What decisions go by, of what a cluster tells.
pub fn sight(class: &ClassRuntime) -> Sight {
    let status = class.status.as_ref();
    let text = |field: fn(&Status) -> &String| {
        status.map(|status| field(status).clone()).unwrap_or_default()
    };
    Sight {
        uid: class.uid.clone(),
        generation: class.generation,
        observed_generation: status.map(|status| status.observed_generation).unwrap_or_default(),
        deleting: class.deleting,
        phase: text(|status| &status.phase),
        reason: text(|status| &status.reason),
        message: text(|status| &status.message),
    }
}
