//! Circuit breaker: after several consecutive failures no call is made for a while, then one trial
//! call, and all again once that succeeds.

use std::time::{Duration, Instant};

use backon::ExponentialBackoff;
use parking_lot::Mutex;

use crate::backoff::delays;

/// Consecutive failures that open it.
const FAILURE_THRESHOLD: u32 = 5;
const MIN_OPEN: Duration = Duration::from_millis(500);
const MAX_OPEN: Duration = Duration::from_secs(15);
/// A trial call without a result, as it was cancelled, allows another one after this time.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    /// A trial call is under way.
    trial: bool,
    delays: ExponentialBackoff,
}

impl Breaker {
    /// Whether a call may be made now; otherwise how long to wait. The caller records the result.
    pub(super) fn enter(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.0.lock();
        match &mut state.open {
            None => Ok(()),
            Some(open) if now < open.until => Err(open.until - now),
            Some(open) => {
                open.trial = true;
                open.until = now + TRIAL_TIMEOUT;
                Ok(())
            }
        }
    }

    pub(super) fn record_success(&self) {
        *self.0.lock() = State::default();
    }

    pub(super) fn record_failure(&self, now: Instant) {
        let mut state = self.0.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failures < FAILURE_THRESHOLD {
            return;
        }
        let open = state.open.get_or_insert_with(|| Open {
            until: now,
            trial: true,
            delays: delays(MIN_OPEN, MAX_OPEN),
        });
        // Calls begun before it opened carry no new information.
        if open.trial {
            open.trial = false;
            open.until = now + open.delays.next().unwrap_or(MAX_OPEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_and_allows_one_trial_call() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURE_THRESHOLD {
            breaker.enter(now).unwrap();
            breaker.record_failure(now);
        }
        let wait = breaker.enter(now).unwrap_err();
        assert!(wait <= MAX_OPEN * 2);
        let later = now + wait;
        breaker.enter(later).unwrap();
        breaker.enter(later).unwrap_err();
        // The trial fails: it stays open for longer.
        breaker.record_failure(later);
        breaker.enter(later).unwrap_err();
        let later = later + MAX_OPEN * 2;
        breaker.enter(later).unwrap();
        breaker.record_success();
        breaker.enter(later).unwrap();
        breaker.enter(later).unwrap();
    }

    #[test]
    fn successes_between_failures_keep_it_closed() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..10 {
            for _ in 1..FAILURE_THRESHOLD {
                breaker.record_failure(now);
            }
            breaker.record_success();
        }
        breaker.enter(now).unwrap();
    }
}
