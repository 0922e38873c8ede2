//! Leases on stores that only this process can open.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use crate::{Error, Fence, Result};

#[derive(Default)]
pub(crate) struct LocalOwners {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    terms: u64,
    /// By the name of the lease, which is free once its owner is dropped.
    owners: HashMap<String, Weak<LocalOwner>>,
}

#[derive(Debug)]
pub(crate) struct LocalOwner {
    pub(crate) fence: Fence,
    identity: String,
}

impl LocalOwners {
    /// The lease is held until the owner is dropped.
    pub(crate) fn acquire(&self, name: &str, identity: &str) -> Result<Arc<LocalOwner>> {
        let mut state = self.state.lock();
        if let Some(owner) = state.owner(name) {
            return Err(Error::LeaseHeld { name: name.to_owned(), holder: owner.identity.clone() });
        }
        state.terms += 1;
        let fence = Fence { name: name.to_owned(), term: state.terms };
        let owner = Arc::new(LocalOwner { fence, identity: identity.to_owned() });
        state.owners.insert(name.to_owned(), Arc::downgrade(&owner));
        Ok(owner)
    }

    /// Fails if the lease of a transaction was released.
    pub(crate) fn check(&self, fence: Option<&Fence>) -> Result<()> {
        let Some(fence) = fence else { return Ok(()) };
        let state = self.state.lock();
        match state.owner(&fence.name) {
            Some(owner) if owner.fence == *fence => Ok(()),
            _ => Err(Error::LeaseLost { name: fence.name.clone() }),
        }
    }
}

impl State {
    /// Dropped under the lock, so that it doesn't keep a released lease from others.
    fn owner(&self, name: &str) -> Option<Arc<LocalOwner>> {
        self.owners.get(name)?.upgrade()
    }
}
