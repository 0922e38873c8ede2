//! Leases: at most one process holds each, and writes can be fenced by it.

use std::sync::Arc;

use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{Fence, local_owners::LocalOwner};

/// Dropping a lease releases it in the background; [`Lease::release`] waits for that.
#[derive(Debug)]
pub struct Lease {
    fence: Fence,
    keeper: Keeper,
}

#[derive(Debug)]
enum Keeper {
    /// The store is exclusive to this process, so the lease can't be lost.
    Process { _owner: Arc<LocalOwner> },
    /// A task renews the lease. It revokes the lease when `stop` is dropped, and ends after that.
    /// `held` is the time until which the lease is certainly held, or `None` once it is lost.
    Renewed { stop: Option<oneshot::Sender<()>>, held: watch::Receiver<Option<Instant>> },
}

impl Lease {
    pub(crate) fn in_process(owner: Arc<LocalOwner>) -> Self {
        Self { fence: owner.fence.clone(), keeper: Keeper::Process { _owner: owner } }
    }

    pub(crate) fn renewed(
        fence: Fence,
        stop: oneshot::Sender<()>,
        held: watch::Receiver<Option<Instant>>,
    ) -> Self {
        Self { fence, keeper: Keeper::Renewed { stop: Some(stop), held } }
    }

    pub fn name(&self) -> &str {
        &self.fence.name
    }

    /// Whether the lease is still held according to the clock, even if this process was suspended
    /// for longer than the lease. Use [`crate::Transaction::fenced`] for writes that depend on it.
    pub fn is_held(&self) -> bool {
        match &self.keeper {
            Keeper::Process { .. } => true,
            Keeper::Renewed { held, .. } => {
                held.borrow().is_some_and(|until| Instant::now() < until)
            }
        }
    }

    /// Resolves once the lease is lost.
    pub async fn lost(&self) {
        match &self.keeper {
            Keeper::Process { .. } => std::future::pending().await,
            Keeper::Renewed { held, .. } => {
                // An error means that the task has ended, and the lease with it.
                let _ = held.clone().wait_for(Option::is_none).await;
            }
        }
    }

    /// Releases the lease, so that another process can acquire it at once.
    pub async fn release(self) {
        if let Keeper::Renewed { stop, mut held } = self.keeper {
            drop(stop);
            while held.changed().await.is_ok() {}
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }
}
