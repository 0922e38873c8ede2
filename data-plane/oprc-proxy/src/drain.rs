//! The phases of a proxy, from serving to its termination.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    time::sleep,
};

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

/// A proxy that was drained serves again after this time unless it is terminated: the kubelet also
/// drains it before it restarts a function that fails its probes.
const RESUME_AFTER: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Lifecycle {
    phase: watch::Sender<Phase>,
    /// Number of drains that were started.
    drains: AtomicU64,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving), drains: AtomicU64::new(0) }
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

    /// Drains the proxy, and returns as soon as no call is in flight or queued after `lame_duck`. A
    /// drain goes on if its caller goes away.
    pub(crate) async fn drain(self: &Arc<Self>, lame_duck: Duration, limiter: &Arc<Limiter>) {
        let number = self.drains.fetch_add(1, Ordering::Relaxed) + 1;
        if self.enter(Phase::LameDuck) {
            println!("oprc-proxy: draining, new calls are served for {} s", lame_duck.as_secs());
        }
        let (lifecycle, limiter) = (Arc::clone(self), Arc::clone(limiter));
        let (drained, is_drained) = oneshot::channel();
        tokio::spawn(async move {
            sleep(lame_duck).await;
            lifecycle.enter(Phase::Draining);
            limiter.wait_until_idle().await;
            _ = drained.send(());
            sleep(RESUME_AFTER).await;
            if lifecycle.drains.load(Ordering::Relaxed) == number {
                lifecycle.resume();
            }
        });
        _ = is_drained.await;
    }

    fn resume(&self) {
        let resumed = self.phase.send_if_modified(|phase| {
            let is_drained = *phase == Phase::Draining;
            if is_drained {
                *phase = Phase::Serving;
            }
            is_drained
        });
        if resumed {
            println!("oprc-proxy: not terminated after the drain, serving again");
        }
    }

    /// Never leaves a phase for an earlier one. Returns whether the phase changed.
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
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn phases_only_advance() {
        let lifecycle = Lifecycle::new();
        assert!(lifecycle.enter(Phase::Draining));
        assert!(!lifecycle.enter(Phase::LameDuck));
        assert_eq!(lifecycle.phase(), Phase::Draining);
    }

    #[tokio::test(start_paused = true)]
    async fn each_drain_takes_the_lame_duck_time_and_waits_for_calls() {
        let lifecycle = Arc::new(Lifecycle::new());
        let limiter = Arc::new(Limiter::new(None, 0));
        let lame_duck = Duration::from_secs(5);
        for _ in 0..2 {
            let started = Instant::now();
            let slot = limiter.try_acquire().unwrap();
            let drain = {
                let (lifecycle, limiter) = (Arc::clone(&lifecycle), Arc::clone(&limiter));
                tokio::spawn(async move { lifecycle.drain(lame_duck, &limiter).await })
            };
            sleep(2 * lame_duck).await;
            assert!(!drain.is_finished() && lifecycle.phase() == Phase::Draining);
            drop(slot);
            drain.await.unwrap();
            assert_eq!(started.elapsed(), 2 * lame_duck);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn serves_again_after_a_drain_without_termination() {
        let lifecycle = Arc::new(Lifecycle::new());
        let limiter = Arc::new(Limiter::new(None, 0));
        lifecycle.drain(Duration::ZERO, &limiter).await;
        sleep(RESUME_AFTER / 2).await;
        // The later drain decides.
        lifecycle.drain(Duration::ZERO, &limiter).await;
        sleep(RESUME_AFTER * 2 / 3).await;
        assert_eq!(lifecycle.phase(), Phase::Draining);
        sleep(RESUME_AFTER).await;
        assert_eq!(lifecycle.phase(), Phase::Serving);
        lifecycle.drain(Duration::ZERO, &limiter).await;
        lifecycle.terminate();
        sleep(2 * RESUME_AFTER).await;
        assert_eq!(lifecycle.phase(), Phase::Terminating);
    }
}
