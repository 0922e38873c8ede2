//! Calls of objects, executed by the node that owns them.
//!
//! The node that receives a read executes it, because reads of the store are linearizable.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::{
    Error, Expected, Grid, Invocation, Object, ObjectId, Outcome,
    class::State,
    replica::{Forwarded, Replica, Route},
};

/// How often the owner of an object may change during a call.
const MAX_ROUTES: usize = 8;

/// A call that changes an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Operation {
    Put(Write),
    Patch(Write),
    Delete(Write),
    Invoke(Box<Invocation>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Write {
    collection: Option<String>,
    id: ObjectId,
    /// Empty for a deletion.
    state: State,
    expected: Expected,
}

/// The result of an [`Operation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Object(Object),
    Deleted,
    Outcome(Outcome),
}

impl Operation {
    fn target(&self) -> (Option<&str>, &ObjectId) {
        match self {
            Self::Put(write) | Self::Patch(write) | Self::Delete(write) => {
                (write.collection.as_deref(), &write.id)
            }
            Self::Invoke(call) => (call.collection.as_deref(), &call.id),
        }
    }

    /// Its label in metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::Put(_) => "PUT",
            Self::Patch(_) => "PATCH",
            Self::Delete(_) => "DELETE",
            Self::Invoke(_) => "POST",
        }
    }

    /// Whether the outcome is the same if it is executed again.
    fn is_repeatable(&self) -> bool {
        matches!(self, Self::Invoke(call) if call.idempotency_key.is_some())
    }
}

/// Attempts of a call that may have been executed although no answer came.
#[derive(Debug, Default)]
struct EarlierAttempts {
    /// Why the outcome of the last such attempt is unknown.
    unknown: Option<String>,
}

impl EarlierAttempts {
    fn add_unknown(&mut self, reason: &str) {
        self.unknown = Some(reason.to_owned());
    }

    fn has_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    /// The answer for the caller. A later attempt shows the outcome of the earlier ones, because it looks
    /// up their result first, and former owners can't commit. An error from before the lookup doesn't.
    fn conclude(self, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        match (answer, self.unknown) {
            (Err(error), Some(reason)) if may_precede_lookup(&error) => {
                Err(Error::UnknownOutcome(format!("{reason}; a further attempt failed: {error}")))
            }
            (answer, _) => answer,
        }
    }
}

/// Whether a call can fail like this before the result of an earlier call with its idempotency key is
/// looked up. The definition of the class may change between two attempts.
fn may_precede_lookup(error: &Error) -> bool {
    matches!(
        error,
        Error::Unavailable(_)
            | Error::NotOwner(_)
            | Error::Overloaded { .. }
            | Error::Corrupt(_)
            | Error::InvalidId(_)
            | Error::UnknownCollection(_)
            | Error::UnknownMethod(_)
            | Error::OtherMember(_)
            | Error::Forbidden { .. }
    )
}

fn unexpected<T>(_: T) -> Error {
    Error::Corrupt("another node returned the result of another call".to_owned())
}

impl Grid {
    /// Creates an object or replaces its state.
    pub async fn put(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        state: State,
        expected: Expected,
    ) -> Result<Object, Error> {
        match self.write_measured(Operation::Put(write(collection, id, state, expected))).await? {
            Answer::Object(object) => Ok(object),
            other => Err(unexpected(other)),
        }
    }

    /// Sets some keys of an object. A null removes a key.
    pub async fn patch(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        changes: State,
        expected: Expected,
    ) -> Result<Object, Error> {
        let write = write(collection, id, changes, expected);
        match self.write_measured(Operation::Patch(write)).await? {
            Answer::Object(object) => Ok(object),
            other => Err(unexpected(other)),
        }
    }

    pub async fn delete(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        expected: Expected,
    ) -> Result<(), Error> {
        let write = write(collection, id, State::new(), expected);
        self.write_measured(Operation::Delete(write)).await.map(drop)
    }

    async fn write_measured(&self, operation: Operation) -> Result<Answer, Error> {
        let (began, name) = (Instant::now(), operation.name());
        let answer = self.execute(operation).await;
        self.metrics().record_call(Some(name), began, &answer);
        answer
    }

    /// Calls a method of an object. The change, and the result for the idempotency key, are stored in
    /// one transaction before this returns.
    pub async fn invoke(&self, call: &Invocation) -> Result<Outcome, Error> {
        let began = Instant::now();
        let outcome = self.invoke_routed(call).await;
        let class = self.class();
        let (method, is_macro) = (call.method.as_str(), class.macros.contains_key(&call.method));
        let is_known = is_macro || class.methods.contains_key(method);
        let method = is_known.then_some(method);
        self.metrics().record_call(method, began, &outcome);
        outcome
    }

    async fn invoke_routed(&self, call: &Invocation) -> Result<Outcome, Error> {
        let class = self.class();
        let is_routed = match class.methods.get(&call.method) {
            Some(method) => !method.is_read_only(),
            None => class.macros.contains_key(&call.method),
        };
        if self.replica().is_none() || !is_routed {
            return self.invoke_locally(call).await;
        }
        match self.execute(Operation::Invoke(Box::new(call.clone()))).await? {
            Answer::Outcome(outcome) => Ok(outcome),
            other => Err(unexpected(other)),
        }
    }

    /// Executes an operation on the node that owns its object.
    async fn execute(&self, operation: Operation) -> Result<Answer, Error> {
        let Some(replica) = self.replica() else { return self.execute_locally(operation).await };
        let key = self.key_of(&operation)?;
        // Deletions free space.
        if !matches!(operation, Operation::Delete(_)) {
            replica.require_space()?;
        }
        let mut earlier = EarlierAttempts::default();
        let answer = self.execute_routed(replica, &key, &operation, &mut earlier).await;
        earlier.conclude(answer)
    }

    /// Follows the owner of the object until an attempt is answered.
    async fn execute_routed(
        &self,
        replica: &Replica,
        key: &str,
        operation: &Operation,
        earlier: &mut EarlierAttempts,
    ) -> Result<Answer, Error> {
        let mut reason = String::new();
        for _ in 0..MAX_ROUTES {
            let (partition, owner) = match replica.route(key).await? {
                Route::Remote(partition, owner) => (partition, owner),
                Route::Local => match self.execute_locally(operation.clone()).await {
                    Err(Error::NotOwner(partition)) => {
                        replica.ownership.refresh(&partition).await?;
                        continue;
                    }
                    answer => return answer,
                },
            };
            let forwarded = replica.forward(&owner, operation).await;
            self.metrics().record_forward(forwarded.label());
            let failure = match forwarded {
                Forwarded::Answered(answer) => return answer,
                Forwarded::Misdirected => {
                    replica.ownership.refresh(&partition).await?;
                    continue;
                }
                Forwarded::NotExecuted(failure) => failure,
                Forwarded::Unknown(failure) => {
                    earlier.add_unknown(&failure);
                    failure
                }
            };
            self.metrics().takeovers.inc();
            let taken = replica.take_over(partition, owner, &failure).await;
            if earlier.has_unknown() && !operation.is_repeatable() {
                return Err(Error::UnknownOutcome(failure));
            }
            taken?;
            reason = failure;
        }
        Err(Error::Unavailable(format!("the owner of the object changes too often {reason}")))
    }

    /// Executes an operation that another node has forwarded. None if this node isn't the owner.
    pub(crate) async fn execute_forwarded(
        &self,
        replica: &Replica,
        operation: Operation,
    ) -> Result<Option<Answer>, Error> {
        if !replica.accepts(&self.key_of(&operation)?).await? {
            return Ok(None);
        }
        match self.execute_locally(operation).await {
            Err(Error::NotOwner(_)) => Ok(None),
            done => done.map(Some),
        }
    }

    fn key_of(&self, operation: &Operation) -> Result<String, Error> {
        let (collection, id) = operation.target();
        Self::key(&self.class(), collection, id)
    }

    async fn execute_locally(&self, operation: Operation) -> Result<Answer, Error> {
        match operation {
            Operation::Put(Write { collection, id, state, expected }) => {
                let put = self.put_locally(collection.as_deref(), &id, state, expected);
                put.await.map(Answer::Object)
            }
            Operation::Patch(Write { collection, id, state, expected }) => {
                let patch = self.patch_locally(collection.as_deref(), &id, state, expected);
                patch.await.map(Answer::Object)
            }
            Operation::Delete(Write { collection, id, expected, .. }) => {
                let delete = self.delete_locally(collection.as_deref(), &id, expected);
                delete.await.map(|()| Answer::Deleted)
            }
            Operation::Invoke(call) => self.invoke_locally(&call).await.map(Answer::Outcome),
        }
    }
}

fn write(collection: Option<&str>, id: &ObjectId, state: State, expected: Expected) -> Write {
    Write { collection: collection.map(str::to_owned), id: id.clone(), state, expected }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conclude(unknown: Option<&str>, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        EarlierAttempts { unknown: unknown.map(str::to_owned) }.conclude(answer)
    }

    #[test]
    fn an_unknown_attempt_is_not_reported_as_unchanged() {
        let errors = [
            Error::Unavailable("no majority".to_owned()),
            Error::NotOwner("p/C/1".to_owned()),
            Error::Overloaded { what: "the object", waiting: 256 },
            Error::UnknownMethod("add".to_owned()),
        ];
        for error in errors {
            assert_eq!(conclude(None, Err(error.clone())), Err(error.clone()));
            let concluded = conclude(Some("broken pipe"), Err(error.clone())).unwrap_err();
            let Error::UnknownOutcome(reason) = concluded else { panic!("{concluded:?}") };
            assert_eq!(reason, format!("broken pipe; a further attempt failed: {error}"));
        }
    }

    #[test]
    fn the_answer_of_a_later_attempt_shows_the_outcome() {
        let (result, version) = (json!(1), Some(7));
        let outcome = Outcome { result, version, repeated: true, triggers_pending: false };
        let answers = [
            Ok(Answer::Outcome(outcome)),
            Err(Error::FunctionFailed(500)),
            Err(Error::Refused { status: 409, detail: "sold out".to_owned() }),
            Err(Error::Running),
            Err(Error::NotFound("a".to_owned())),
            Err(Error::UnknownOutcome("late".to_owned())),
        ];
        for answer in answers {
            assert_eq!(conclude(Some("broken pipe"), answer.clone()), answer);
        }
    }
}
