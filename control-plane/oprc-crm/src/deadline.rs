//! Requests that end in time.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::{Instant, sleep_until};

/// How long one request to the API server may take.
pub const REQUEST: Duration = Duration::from_secs(10);

/// Waits for something until a moment, and not a step further: a process that was frozen in between
/// doesn't go on with it when it wakes.
pub async fn until<T>(end: std::time::Instant, work: impl Future<Output = T>) -> Option<T> {
    let end = Instant::from_std(end);
    let (mut work, mut over) = (pin!(work), pin!(sleep_until(end)));
    poll_fn(|context| {
        if Instant::now() >= end {
            return Poll::Ready(None);
        }
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => over.as_mut().poll(context).map(|()| None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_late_takes_no_further_step() {
        let begun = std::time::Instant::now();
        assert_eq!(until(begun + REQUEST, async { 1 }).await, Some(1));
        let mut steps = 0;
        assert_eq!(until(begun, async { steps += 1 }).await, None);
        assert_eq!(steps, 0);
        let soon = begun + Duration::from_millis(1);
        assert_eq!(until(soon, std::future::pending::<()>()).await, None);
    }
}
