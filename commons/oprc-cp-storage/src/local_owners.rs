//! Leases on stores that only this process can open.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::{Error, Fence, Result};

#[derive(Debug, Clone, Default)]
pub(crate) struct LocalOwners {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    terms: u64,
    owners: HashMap<String, Owner>,
}

#[derive(Debug)]
struct Owner {
    identity: String,
    term: u64,
}

impl LocalOwners {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn acquire(&self, name: &str, identity: &str) -> Result<Held> {
        let mut state = self.state();
        if let Some(owner) = state.owners.get(name) {
            return Err(Error::LeaseHeld { name: name.to_owned(), holder: owner.identity.clone() });
        }
        state.terms += 1;
        let term = state.terms;
        state.owners.insert(name.to_owned(), Owner { identity: identity.to_owned(), term });
        let fence = Fence { name: name.to_owned(), term };
        Ok(Held { owners: self.clone(), fence })
    }

    /// Fails if the lease of a transaction was released.
    pub(crate) fn check(&self, fence: Option<&Fence>) -> Result<()> {
        let Some(fence) = fence else { return Ok(()) };
        match self.state().owners.get(&fence.name) {
            Some(owner) if owner.term == fence.term => Ok(()),
            _ => Err(Error::LeaseLost { name: fence.name.clone() }),
        }
    }
}

/// Releases the lease when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    owners: LocalOwners,
    fence: Fence,
}

impl Held {
    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.owners.state().owners.remove(&self.fence.name);
    }
}
