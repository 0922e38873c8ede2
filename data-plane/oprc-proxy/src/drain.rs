//! The phases of a proxy, from serving to its termination.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::limiter::Limiter;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// Not ready. New calls are served, because endpoints are removed asynchronously. Responses ask
    /// clients to close their connections.
    LameDuck,
    /// Idle connections are closed. Calls on new connections are still served.
    Draining,
    /// After SIGTERM: no new connections, and the proxy exits when the calls in flight have ended.
    Terminating,
}

#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: watch::Sender<Phase>,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving) }
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub(crate) fn terminate(&self) {
        self.enter(Phase::Terminating);
    }

    /// Drains the proxy, and returns as soon as no call is in flight or queued after `lame_duck`.
    /// Later callers join the drain of the first one. A drain goes on if its callers go away.
    pub(crate) async fn drain(self: &Arc<Self>, lame_duck: Duration, limiter: &Limiter) {
        if self.enter(Phase::LameDuck) {
            println!("oprc-proxy: draining, new calls are served for {} s", lame_duck.as_secs());
            let lifecycle = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(lame_duck).await;
                lifecycle.enter(Phase::Draining);
            });
        }
        // `self` holds the sender, so that the wait can't fail.
        _ = self.subscribe().wait_for(|phase| *phase >= Phase::Draining).await;
        limiter.wait_until_idle().await;
    }

    /// Phases are never left for an earlier one. Returns whether the phase changed.
    fn enter(&self, phase: Phase) -> bool {
        self.phase.send_if_modified(|current| {
            let advances = *current < phase;
            *current = phase.max(*current);
            advances
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_only_advance() {
        let lifecycle = Lifecycle::new();
        assert!(lifecycle.enter(Phase::Draining));
        assert!(!lifecycle.enter(Phase::LameDuck));
        assert_eq!(lifecycle.phase(), Phase::Draining);
    }

    #[tokio::test]
    async fn second_drain_joins_the_first() {
        let lifecycle = Arc::new(Lifecycle::new());
        let limiter = Arc::new(Limiter::new(None, 0));
        let slot = limiter.try_acquire().unwrap();
        let drain = || {
            let (lifecycle, limiter) = (Arc::clone(&lifecycle), Arc::clone(&limiter));
            tokio::spawn(async move { lifecycle.drain(Duration::ZERO, &limiter).await })
        };
        let (first, second) = (drain(), drain());
        lifecycle.subscribe().wait_for(|phase| *phase == Phase::Draining).await.unwrap();
        assert!(!first.is_finished() && !second.is_finished());
        drop(slot);
        first.await.unwrap();
        second.await.unwrap();
    }
}
