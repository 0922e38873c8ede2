//! Who drives a store that only this process can open.

use std::{collections::HashMap, sync::Arc};

use crate::{Error, Fence, Ownership, Result};
use parking_lot::{Mutex, MutexGuard};

/// Who drives what.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners {
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

impl Owners {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn own(&self, name: &str, identity: &str) -> Result<Ownership> {
        let mut state = self.state();
        if let Some(owner) = state.owners.get(name) {
            return Err(Error::Owned { name: name.to_owned(), by: owner.identity.clone() });
        }
        state.terms += 1;
        let term = state.terms;
        state.owners.insert(name.to_owned(), Owner { identity: identity.to_owned(), term });
        let fence = Fence { name: name.to_owned(), term };
        Ok(Ownership::in_process(Held { owners: self.clone(), fence }))
    }

    /// Whether what a transaction relies on still holds.
    pub(crate) fn check(&self, fence: Option<&Fence>) -> Result<()> {
        let Some(fence) = fence else { return Ok(()) };
        match self.state().owners.get(&fence.name) {
            Some(owner) if owner.term == fence.term => Ok(()),
            _ => Err(Error::NotOwner { name: fence.name.clone() }),
        }
    }
}

/// What is let go of when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    owners: Owners,
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
