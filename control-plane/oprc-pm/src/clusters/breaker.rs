//! Keeps calls from a cluster that doesn't answer: after some failures in a row none is made for a
//! while, then one to try, and only when that is answered all of them again.

use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use parking_lot::{Mutex, MutexGuard};

/// So many failures in a row open it.
const FAILURES: u32 = 5;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(15);
const TRYING: Duration = Duration::from_secs(20);

/// How long to wait from one attempt to the next, each with its jitter.
pub(crate) fn delays(shortest: Duration, longest: Duration) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(shortest)
        .with_max_delay(longest)
        .without_max_times()
        .with_jitter()
        .build()
}

/// A breaker.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    /// A call is under way that tries whether it answers again.
    trying: bool,
    delays: ExponentialBackoff,
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a call may be made now; how long to wait otherwise. Who may, tells what came of it.
    pub(crate) fn enter(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.state();
        match &mut state.open {
            None => Ok(()),
            Some(open) if now < open.until => Err(open.until - now),
            Some(open) => {
                open.trying = true;
                // A call that is dropped tells nothing: another may try then.
                open.until = now + TRYING;
                Ok(())
            }
        }
    }

    /// It has answered, whatever it said.
    pub(crate) fn answered(&self) {
        *self.state() = State::default();
    }

    /// It hasn't.
    pub(crate) fn failed(&self, now: Instant) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        if state.failures < FAILURES {
            return;
        }
        let open = state.open.get_or_insert_with(|| Open {
            until: now,
            trying: true,
            delays: delays(SHORTEST, LONGEST),
        });
        // Calls that were under way when it opened tell nothing new.
        if open.trying {
            open.trying = false;
            open.until = now + open.delays.next().unwrap_or(LONGEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_and_lets_one_call_try() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURES {
            breaker.enter(now).unwrap();
            breaker.failed(now);
        }
        let wait = breaker.enter(now).unwrap_err();
        assert!(wait <= LONGEST * 2);
        let later = now + wait;
        breaker.enter(later).unwrap();
        breaker.enter(later).unwrap_err();
        // It fails again: longer.
        breaker.failed(later);
        breaker.enter(later).unwrap_err();
        let later = later + LONGEST * 2;
        breaker.enter(later).unwrap();
        breaker.answered();
        breaker.enter(later).unwrap();
        breaker.enter(later).unwrap();
    }

    #[test]
    fn answers_between_failures_keep_it_closed() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..10 {
            for _ in 1..FAILURES {
                breaker.failed(now);
            }
            breaker.answered();
        }
        breaker.enter(now).unwrap();
    }
}
