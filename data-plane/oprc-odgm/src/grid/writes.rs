//! Writes of objects by clients, executed by this node.

use oprc_cp_storage::Revision;

use super::{Committed, EventBound, Grid, MAX_ATTEMPTS, PreparedChange, changes_too_often, new_id};
use crate::{
    Error, ObjectId,
    class::{Cause, Class, State},
    event_waiters::EventWaiter,
    invocation::{CallOrigin, Expected, Object},
    object_change::{Found, ObjectChange},
};

impl Grid {
    /// Creates an object or replaces its state.
    pub(crate) async fn put_locally(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        state: State,
        expected: Expected,
    ) -> Result<Object, Error> {
        let revision =
            self.write(collection, id, expected, |_, _| Ok(Some(state.clone()))).await?.0;
        Ok(Object { id: id.to_string(), version: revision.0, state })
    }

    /// Sets some keys of an object. A null removes a key.
    pub(crate) async fn patch_locally(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        changes: State,
        expected: Expected,
    ) -> Result<Object, Error> {
        let patched = |found: &Found, class: &Class| {
            let mut state = found.state(class)?.into_owned();
            for (key, value) in &changes {
                if value.is_null() {
                    state.remove(key);
                } else {
                    state.insert(key.clone(), value.clone());
                }
            }
            Ok(Some(state))
        };
        let (revision, state) = self.write(collection, id, expected, patched).await?;
        let state = state.unwrap_or_default();
        Ok(Object { id: id.to_string(), version: revision.0, state })
    }

    pub(crate) async fn delete_locally(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        expected: Expected,
    ) -> Result<(), Error> {
        let deleted = |found: &Found, _: &Class| match found.record {
            Some(_) => Ok(None),
            None => Err(found.missing()),
        };
        self.write(collection, id, expected, deleted).await.map(drop)
    }

    /// Fails if a call of the object led to this one: it has the turn until it ends.
    pub fn check_reentrancy(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        origin: &CallOrigin,
    ) -> Result<(), Error> {
        let key = Self::key(&self.class(), collection, id)?;
        if origin.contains(&key) { Err(Error::Reentrant(id.to_string())) } else { Ok(()) }
    }

    /// Changes an object to what `change` returns, or deletes it if that is none. Returns after the
    /// triggers that the caller waits for.
    async fn write(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
        expected: Expected,
        change: impl Fn(&Found, &Class) -> Result<Option<State>, Error>,
    ) -> Result<(Revision, Option<State>), Error> {
        let class = self.class();
        let (revision, state, waiter) =
            self.write_in_turn(&class, collection, id, &expected, change).await?;
        if let Some(waiter) = waiter {
            waiter.wait().await;
        }
        Ok((revision, state))
    }

    async fn write_in_turn(
        &self,
        class: &Class,
        collection: Option<&str>,
        id: &ObjectId,
        expected: &Expected,
        change: impl Fn(&Found, &Class) -> Result<Option<State>, Error>,
    ) -> Result<(Revision, Option<State>, Option<EventWaiter>), Error> {
        let key = Self::key(class, collection, id)?;
        let _turn = self.turns.take(&key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let fence = self.fence(&key)?;
            let found = self.read(class, collection, id).await?;
            expected.check(found.version())?;
            let state = change(&found, class)?;
            let (invocation, cause) = (&new_id(), Cause::default());
            let change = ObjectChange { found: &found, state, invocation, cause };
            let prepared = self.prepare(class, &change, EventBound::Checked).await?;
            let PreparedChange { transaction, waiter } = prepared;
            let committed = self.commit(transaction, fence, &found, invocation).await?;
            if let Committed::At(revision) = committed {
                return Ok((revision, change.state, waiter));
            }
        }
        Err(changes_too_often())
    }
}
