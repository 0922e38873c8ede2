//! An object as it was read, and a change of it.

use std::borrow::Cow;

use jiff::Timestamp;
use oprc_cp_storage::{Check, Revision};

use crate::{
    Error, ObjectId,
    class::{Cause, Class, State, StateType},
    equality::same_state,
    record::{ChangeKind, EventRecord, ObjectRecord},
};

/// An object that was read, or that doesn't exist.
pub(crate) struct Found {
    pub(crate) collection: String,
    pub(crate) id: ObjectId,
    pub(crate) key: String,
    pub(crate) record: Option<ObjectRecord>,
    pub(crate) version: Option<Revision>,
}

impl Found {
    pub(crate) fn version(&self) -> Option<u64> {
        self.version.map(|it| it.0)
    }

    /// The only object of a class exists from the start.
    pub(crate) fn state(&self, class: &Class) -> Result<Cow<'_, State>, Error> {
        match &self.record {
            Some(record) => Ok(Cow::Borrowed(&record.state)),
            None if class.state_type == StateType::Singleton => Ok(Cow::Owned(State::new())),
            None => Err(self.missing()),
        }
    }

    /// Whether a state differs from that of the object.
    pub(crate) fn is_other(&self, state: &State) -> bool {
        self.record.as_ref().is_none_or(|it| !same_state(&it.state, state))
    }

    pub(crate) fn missing(&self) -> Error {
        Error::NotFound(self.id.to_string())
    }

    pub(crate) fn check(&self) -> Check {
        self.version.map_or(Check::Absent, Check::Version)
    }
}

/// A change of an object.
pub(crate) struct ObjectChange<'a> {
    pub(crate) found: &'a Found,
    /// None if the object is deleted.
    pub(crate) state: Option<State>,
    pub(crate) invocation: &'a str,
    pub(crate) cause: Cause,
}

impl ObjectChange<'_> {
    pub(crate) fn kind(&self) -> ChangeKind {
        match (&self.found.record, &self.state) {
            (_, None) => ChangeKind::Deleted,
            (None, _) => ChangeKind::Created,
            (Some(_), Some(_)) => ChangeKind::Updated,
        }
    }

    /// The event for the triggers, if there are any.
    pub(crate) fn event(&self, class: &Class) -> Option<EventRecord> {
        let Found { collection, id, .. } = self.found;
        let triggers = class.triggers(collection, &self.cause).map(|it| it.method.clone());
        let triggers: Vec<_> = triggers.collect();
        (!triggers.is_empty()).then(|| EventRecord {
            collection: collection.clone(),
            id: id.to_string(),
            kind: self.kind(),
            cause: self.cause.clone(),
            triggers,
            at: Timestamp::now().as_millisecond(),
        })
    }
}
