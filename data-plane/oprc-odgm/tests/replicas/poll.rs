//! Waits for a state with a deadline.

use std::time::{Duration, Instant};

/// Of states that a busy machine reaches late.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Repeats something until it succeeds or too much time has passed.
pub(crate) struct Poll(Instant);

impl Poll {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Waits before the next attempt. Panics if it is too late.
    pub(crate) async fn next(&self, describe: impl FnOnce() -> String) {
        assert!(self.0.elapsed() < LIMIT, "not within {LIMIT:?}: {}", describe());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
