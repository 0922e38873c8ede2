//! Calls of methods: one turn, one function, one transaction.

use std::time::Duration;

use oprc_condition::{Condition, Input};
use oprc_cp_storage::Transaction;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    Error, Grid,
    class::{Cause, Class, Method, State},
    event_waiters::EventWaiter,
    function::{Call, CalledObject},
    grid::{Committed, EventBound, MAX_ATTEMPTS, PreparedChange, changes_too_often, new_id, now},
    invocation::{Invocation, Outcome},
    object_change::{Found, ObjectChange},
    once::Once,
};

pub(crate) const MAX_ARGUMENT_BYTES: usize = 256 << 10;

/// A call of a method that has begun.
pub(crate) struct MethodCall<'a> {
    pub(crate) class: &'a Class,
    pub(crate) method: &'a Method,
    pub(crate) call: &'a Invocation,
    /// Identifies the call to the function; the same in each attempt.
    pub(crate) id: String,
    pub(crate) deadline: Instant,
}

/// Where an attempt reads the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// This node's member of a replicated store: cheap, but the state may be old.
    OwnMember,
    Store,
}

/// The answer of a function, and the change to commit.
struct Answered {
    outcome: Outcome,
    change: PreparedChange,
    is_changed: bool,
    /// The period and the bytes of a result that is kept.
    kept: Option<(i64, usize)>,
}

pub(crate) fn check_arguments(args: &Value) -> Result<(), Error> {
    let bytes = serde_json::to_vec(args).map_or(0, |it| it.len());
    let limit = MAX_ARGUMENT_BYTES;
    if bytes > limit { Err(Error::TooLarge { what: "the argument", bytes, limit }) } else { Ok(()) }
}

/// The deadline of a call that may take so long, and that must end with the call it belongs to.
pub(crate) fn deadline(call: &Invocation, limit: Duration) -> Instant {
    let left = call.origin.expires.map(|it| u64::try_from(it - now()).unwrap_or_default());
    Instant::now() + left.map_or(limit, |left| limit.min(Duration::from_millis(left)))
}

/// The same time as milliseconds since 1970.
pub(crate) fn wall_clock(deadline: Instant) -> i64 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    now().saturating_add(i64::try_from(left).unwrap_or(i64::MAX))
}

/// Fails unless the condition holds.
pub(crate) fn check_condition(
    condition: Option<&Condition>,
    call: &Invocation,
    found: &Found,
    state: &State,
) -> Result<(), Error> {
    let Some(condition) = condition else { return Ok(()) };
    let input = Input {
        id: call.id.as_str(),
        version: found.version().unwrap_or_default(),
        state,
        args: &call.args,
        method: &call.method,
    };
    match condition.evaluate(&input) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::ConditionFalse(call.method.clone())),
        Err(error) => {
            let (method, reason) = (call.method.clone(), error.to_string());
            Err(Error::ConditionFailed { method, reason })
        }
    }
}

impl Grid {
    /// Calls a method of an object. The change, and the result for the idempotency key, are stored in
    /// one transaction before this returns. Then it waits for triggers that aren't async.
    pub(crate) async fn call_method(
        &self,
        class: &Class,
        method: &Method,
        call: &Invocation,
    ) -> Result<Outcome, Error> {
        check_arguments(&call.args)?;
        let id = call.idempotency_key.clone().unwrap_or_else(new_id);
        if method.is_read_only() {
            let deadline = deadline(call, method.timeout());
            let begun = MethodCall { class, method, call, id, deadline };
            return self.call_read_only(&begun).await;
        }
        let (mut outcome, waiter) = self.call_in_turn(class, method, call, id).await?;
        if let Some(waiter) = waiter {
            outcome.triggers_pending = !waiter.wait().await;
        }
        Ok(outcome)
    }

    async fn call_read_only(&self, begun: &MethodCall<'_>) -> Result<Outcome, Error> {
        let MethodCall { class, method, call, .. } = begun;
        let found = if method.stateless {
            Self::absent(class, call)?
        } else {
            self.read(class, call.collection.as_deref(), &call.id).await?
        };
        call.expected.check(found.version())?;
        let state = if method.stateless { State::new() } else { found.state(class)?.into_owned() };
        check_condition(method.condition.as_ref(), call, &found, &state)?;
        let (result, _) = self.call_function(begun, &found, &state).await?;
        Ok(Outcome { result, version: found.version(), repeated: false, triggers_pending: false })
    }

    /// An object that isn't read.
    fn absent(class: &Class, call: &Invocation) -> Result<Found, Error> {
        Ok(Found {
            collection: class.collection(call.collection.as_deref())?.to_owned(),
            id: call.id.clone(),
            key: Self::key(class, call.collection.as_deref(), &call.id)?,
            record: None,
            version: None,
        })
    }

    async fn call_in_turn(
        &self,
        class: &Class,
        method: &Method,
        call: &Invocation,
        id: String,
    ) -> Result<(Outcome, Option<EventWaiter>), Error> {
        let key = Self::key(class, call.collection.as_deref(), &call.id)?;
        if call.origin.contains(&key) {
            return Err(Error::Reentrant(call.id.to_string()));
        }
        let _turn = self.turns.take(&key).await?;
        let begun =
            MethodCall { class, method, call, id, deadline: deadline(call, method.timeout()) };
        let is_replicated = self.replica().is_some();
        let first = if is_replicated { Source::OwnMember } else { Source::Store };
        self.call_from(&begun, &key, first).await
    }

    /// The owner's member of a replicated store has all commits of former owners, so the first attempt
    /// may read from it alone. Later ones don't rely on that.
    async fn call_from(
        &self,
        begun: &MethodCall<'_>,
        key: &str,
        first: Source,
    ) -> Result<(Outcome, Option<EventWaiter>), Error> {
        let mut source = first;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(done) = self.attempt(begun, key, source).await? {
                return Ok(done);
            }
            source = Source::Store;
        }
        Err(changes_too_often())
    }

    /// None if the object changed meanwhile.
    async fn attempt(
        &self,
        begun: &MethodCall<'_>,
        key: &str,
        source: Source,
    ) -> Result<Option<(Outcome, Option<EventWaiter>)>, Error> {
        let MethodCall { class, call, .. } = begun;
        let (fence, invocation) = (self.fence(key)?, &new_id());
        let once =
            call.idempotency_key.as_deref().map(|it| Once::new(call, key, it)).transpose()?;
        // In one read, because each takes a round trip.
        let results = once.iter().flat_map(|it| it.keys(it.began));
        let keys: Vec<_> = [key.to_owned()].into_iter().chain(results).collect();
        let entries = match source {
            Source::OwnMember => self.store().get_many_stale(&keys).await?,
            Source::Store => self.store().get_many(&keys).await?,
        };
        let mut entries = entries.into_iter();
        let object = entries.next().flatten();
        if let Some(once) = &once {
            if let Some(outcome) = once.earlier(entries.flatten())? {
                return Ok(Some((outcome, None)));
            }
            self.results.check()?;
        }
        let collection = class.collection(call.collection.as_deref())?.to_owned();
        let found = Found::decode(collection, call.id.clone(), key.to_owned(), object)?;
        let answered = self.answer(begun, &found, once.as_ref(), invocation).await;
        // A commit checks the version. Without one, the object must still be as it was read.
        let has_commit =
            answered.as_ref().is_ok_and(|it| !it.change.transaction.changes.is_empty());
        if source == Source::OwnMember && !has_commit {
            let newest = self.store().get(key).await?;
            if newest.map(|it| it.version) != found.version {
                return Ok(None);
            }
        }
        let Answered { mut outcome, change, is_changed, kept } = answered?;
        if !has_commit {
            return Ok(Some((outcome, None)));
        }
        match self.commit(change.transaction, fence, &found, invocation).await? {
            Committed::Conflict => Ok(None),
            Committed::At(revision) => {
                if let Some((period, bytes)) = kept {
                    self.results.add(period, bytes);
                }
                if is_changed {
                    outcome.version = Some(revision.0);
                }
                Ok(Some((outcome, change.waiter)))
            }
        }
    }

    /// Calls the function and prepares the commit.
    async fn answer(
        &self,
        begun: &MethodCall<'_>,
        found: &Found,
        once: Option<&Once>,
        invocation: &str,
    ) -> Result<Answered, Error> {
        let MethodCall { class, method, call, .. } = begun;
        call.expected.check(found.version())?;
        let state = found.state(class)?;
        check_condition(method.condition.as_ref(), call, found, &state)?;
        let (result, state) = self.call_function(begun, found, &state).await?;
        let is_changed = state.as_ref().is_some_and(|it| found.is_other(it));
        if is_changed && method.immutable {
            return Err(Error::Immutable(call.method.clone()));
        }
        let mut change = if is_changed {
            let cause = Cause { method: Some(call.method.clone()), depth: call.origin.depth };
            let change = ObjectChange { found, state, invocation, cause };
            self.prepare(class, &change, EventBound::Checked).await?
        } else {
            PreparedChange {
                transaction: Transaction::new().check(&found.key, found.check()),
                waiter: None,
            }
        };
        let mut kept = None;
        if let Some(once) = once {
            let (with_result, bytes) = once.record(change.transaction, &result)?;
            change.transaction = with_result;
            kept = Some((once.began, bytes));
        }
        let outcome =
            Outcome { result, version: found.version(), repeated: false, triggers_pending: false };
        Ok(Answered { outcome, change, is_changed, kept })
    }

    /// The outcome of an earlier call with the same idempotency key.
    pub(crate) async fn earlier(&self, once: &Once) -> Result<Option<Outcome>, Error> {
        let keys: Vec<_> = once.keys(once.began).collect();
        once.earlier(self.store().get_many(&keys).await?.into_iter().flatten())
    }

    /// The result and the new state of the object.
    pub(crate) async fn call_function(
        &self,
        begun: &MethodCall<'_>,
        found: &Found,
        state: &State,
    ) -> Result<(Value, Option<State>), Error> {
        let MethodCall { method, call, id, deadline, .. } = begun;
        let version = found.version().unwrap_or_default();
        let origin = call.origin.extended(&found.key, wall_clock(*deadline))?;
        let call_of = Call {
            method: &call.method,
            object: CalledObject { id: call.id.as_str(), version, state },
            args: &call.args,
            invocation: id,
            tokens: self.tokens.header(&origin),
            deadline: *deadline,
            headers: &call.headers,
        };
        let mut reply = self.functions.call(method, &call_of).await?;
        let state = reply.state(&call.id)?;
        Ok((reply.result, state))
    }
}

#[cfg(test)]
mod tests;
