//! That only one process drives.

use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::owners::Held;

/// A process drives what it owns. Dropping it lets go; [`Ownership::release`] waits for that.
#[derive(Debug)]
pub struct Ownership {
    fence: Fence,
    keeper: Keeper,
}

/// Which ownership it is, for a store to tell whether it still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub(crate) name: String,
    pub(crate) term: u64,
}

/// What keeps it.
#[derive(Debug)]
enum Keeper {
    /// Nobody can take it away.
    Process { _held: Held },
    /// A task renews a lease. It lets go when the sender is gone, and drops its own when all is
    /// done; it says there until when the lease is held for sure, and nothing once it isn't.
    Lease { stop: Option<oneshot::Sender<()>>, held: watch::Receiver<Option<Instant>> },
}

impl Ownership {
    pub(crate) fn in_process(held: Held) -> Self {
        Self { fence: held.fence().clone(), keeper: Keeper::Process { _held: held } }
    }

    pub(crate) fn by_lease(
        fence: Fence,
        stop: oneshot::Sender<()>,
        held: watch::Receiver<Option<Instant>>,
    ) -> Self {
        Self { fence, keeper: Keeper::Lease { stop: Some(stop), held } }
    }

    /// What is owned.
    pub fn name(&self) -> &str {
        &self.fence.name
    }

    /// Whether it is still held, by the clock: also where this process was held up for longer than
    /// its lease, and has noticed nothing yet. A transaction that must not be made otherwise is
    /// [`crate::Transaction::fenced`].
    pub fn is_held(&self) -> bool {
        match &self.keeper {
            Keeper::Process { .. } => true,
            Keeper::Lease { held, .. } => held.borrow().is_some_and(|until| Instant::now() < until),
        }
    }

    /// Waits until it is lost.
    pub async fn lost(&self) {
        match &self.keeper {
            Keeper::Process { .. } => std::future::pending().await,
            Keeper::Lease { held, .. } => {
                // An error: the task is gone, and so is what it kept.
                let _ = held.clone().wait_for(Option::is_none).await;
            }
        }
    }

    /// Lets go, so that another process may own it at once.
    pub async fn release(self) {
        if let Keeper::Lease { stop, mut held } = self.keeper {
            drop(stop);
            while held.changed().await.is_ok() {}
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence.clone()
    }
}
