//! An object as it was read, and a change of it.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use oprc_condition::Input;
use oprc_cp_storage::{Check, Entry, Revision};
use serde_json::json;

use crate::{
    Error, ObjectId,
    class::{Cause, ChangeKind, Class, Method, State, StateType, Trigger},
    equality::same_state,
    record::{EventRecord, ObjectRecord, decode},
};

/// The longest time that a caller waits for triggers.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// An object that was read, or that doesn't exist.
pub(crate) struct Found {
    pub(crate) collection: String,
    pub(crate) id: ObjectId,
    pub(crate) key: String,
    pub(crate) record: Option<ObjectRecord>,
    pub(crate) version: Option<Revision>,
}

impl Found {
    /// `entry` is none if the object doesn't exist.
    pub(crate) fn decode(
        collection: String,
        id: ObjectId,
        key: String,
        entry: Option<Entry>,
    ) -> Result<Self, Error> {
        let version = entry.as_ref().map(|it| it.version);
        let record = entry.map(|it| decode(&key, &it.value)).transpose()?;
        Ok(Self { collection, id, key, record, version })
    }

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

    /// The event for the triggers, if there are any. Those that the caller waits for are the first.
    pub(crate) fn event(&self, class: &Class) -> Option<ChangeEvent> {
        let Found { collection, id, .. } = self.found;
        let triggers = class.triggers(collection, self.kind(), &self.cause);
        let mut triggers: Vec<_> = triggers.filter(|it| self.holds(it)).collect();
        triggers.sort_by_key(|it| it.is_async);
        let waited: Vec<_> = triggers.iter().filter(|it| !it.is_async).copied().collect();
        let limit = waited.iter().map(|it| timeout(class, it)).sum::<Duration>().min(MAX_WAIT);
        (!triggers.is_empty()).then(|| ChangeEvent {
            waited: (!waited.is_empty()).then_some((triggers.len() - waited.len(), limit)),
            record: EventRecord {
                collection: collection.clone(),
                id: id.to_string(),
                kind: self.kind(),
                cause: self.cause.clone(),
                triggers: triggers.iter().map(|it| it.method.clone()).collect(),
                at: Timestamp::now().as_millisecond(),
            },
        })
    }

    /// Whether the condition of a trigger holds. A trigger whose condition can't be evaluated is called:
    /// no event may be lost.
    fn holds(&self, trigger: &Trigger) -> bool {
        let Some(condition) = &trigger.condition else { return true };
        let Found { id, record, .. } = self.found;
        let former = record.as_ref().map(|it| &it.state);
        let none = State::new();
        let input = Input {
            id: id.as_str(),
            version: self.found.version().unwrap_or_default(),
            state: self.state.as_ref().or(former).unwrap_or(&none),
            args: &json!({"event": self.kind(), "cause": self.cause}),
            method: &trigger.method,
        };
        condition.evaluate(&input).unwrap_or_else(|error| {
            let (trigger, object) = (&trigger.method, id.as_str());
            tracing::warn!(trigger, object, %error, "cannot evaluate a condition, calling the trigger");
            true
        })
    }
}

/// An event, and what the caller waits for.
pub(crate) struct ChangeEvent {
    pub(crate) record: EventRecord,
    /// How many triggers the caller doesn't wait for, and how long it waits for the others.
    pub(crate) waited: Option<(usize, Duration)>,
}

fn timeout(class: &Class, trigger: &Trigger) -> Duration {
    let of_method = || class.methods.get(&trigger.method).map(Method::timeout);
    trigger.timeout().or_else(of_method).unwrap_or(MAX_WAIT)
}
