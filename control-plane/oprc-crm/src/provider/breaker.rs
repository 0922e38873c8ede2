//! Circuit breaker: after several consecutive failures no query is sent for a while, then one trial,
//! and all again once that succeeds.

use std::time::{Duration, Instant};

/// Consecutive failures that open it.
pub(super) const FAILURE_THRESHOLD: u32 = 5;
pub(super) const OPEN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Breaker {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// A trial is under way. One that was cancelled has no result, so another is allowed at `until`.
    HalfOpen {
        until: Instant,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// Whether a query may be sent now. The caller records its result.
    pub(super) fn enter(&mut self, now: Instant) -> bool {
        match *self {
            Self::Closed { .. } => true,
            Self::Open { until } | Self::HalfOpen { until } if now < until => false,
            Self::Open { .. } | Self::HalfOpen { .. } => {
                *self = Self::HalfOpen { until: now + OPEN };
                true
            }
        }
    }

    pub(super) fn record_success(&mut self) {
        *self = Self::default();
    }

    pub(super) fn record_failure(&mut self, now: Instant) {
        match self {
            Self::Closed { failures } if *failures + 1 < FAILURE_THRESHOLD => *failures += 1,
            Self::Closed { .. } | Self::HalfOpen { .. } => *self = Self::Open { until: now + OPEN },
            // A query that was sent before it opened carries no new information.
            Self::Open { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second less than it stays open.
    const ALMOST: Duration = Duration::from_secs(29);

    fn open(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURE_THRESHOLD {
            assert!(breaker.enter(now));
            breaker.record_failure(now);
        }
        breaker
    }

    #[test]
    fn opens_after_consecutive_failures_and_allows_one_trial() {
        let now = Instant::now();
        let mut breaker = open(now);
        assert!(!breaker.enter(now));
        assert!(!breaker.enter(now + ALMOST));
        assert!(breaker.enter(now + OPEN));
        assert!(!breaker.enter(now + OPEN), "only one trial");
        breaker.record_success();
        assert!(breaker.enter(now + OPEN));
        assert!(breaker.enter(now + OPEN));
    }

    #[test]
    fn failed_trial_opens_it_again_for_the_whole_time() {
        let now = Instant::now();
        let mut breaker = open(now);
        let trial = now + OPEN;
        assert!(breaker.enter(trial));
        let failed = trial + Duration::from_secs(5);
        breaker.record_failure(failed);
        assert!(!breaker.enter(failed + ALMOST));
        assert!(breaker.enter(failed + OPEN));
    }

    #[test]
    fn cancelled_trial_allows_another_one() {
        let now = Instant::now();
        let mut breaker = open(now);
        assert!(breaker.enter(now + OPEN));
        assert!(breaker.enter(now + OPEN * 2));
    }

    #[test]
    fn late_failures_do_not_prolong_it() {
        let now = Instant::now();
        let mut breaker = open(now);
        breaker.record_failure(now + OPEN / 2);
        assert!(breaker.enter(now + OPEN));
    }

    #[test]
    fn success_between_failures_keeps_it_closed() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..10 {
            for _ in 1..FAILURE_THRESHOLD {
                breaker.record_failure(now);
            }
            breaker.record_success();
        }
        assert!(breaker.enter(now));
    }
}
