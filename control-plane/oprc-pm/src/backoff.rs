//! Exponential backoff with jitter.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

pub(crate) fn delays(min: Duration, max: Duration) -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(min)
        .with_max_delay(max)
        .without_max_times()
        .with_jitter()
        .build()
}

/// Runs a session repeatedly with a delay in between, which grows while sessions end without
/// progress. A session returns whether it made progress. Never returns.
pub(crate) async fn repeat<F: Future<Output = bool>>(
    min: Duration,
    max: Duration,
    mut session: impl FnMut() -> F,
) {
    let mut waits = delays(min, max);
    loop {
        if session().await {
            waits = delays(min, max);
        }
        tokio::time::sleep(waits.next().unwrap_or(max)).await;
    }
}
