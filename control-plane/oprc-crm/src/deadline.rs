//! Deadlines that hold even if the process was suspended.

use std::{future::poll_fn, pin::pin, task::Poll, time::Duration};

use tokio::time::{Instant, sleep_until};

/// Bound on one request to the API server.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Polls `work` until `end`, and never after it: a process that was suspended in between doesn't
/// continue an overdue request when it resumes.
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
    async fn overdue_work_is_not_polled() {
        let begun = std::time::Instant::now();
        assert_eq!(until(begun + REQUEST_TIMEOUT, async { 1 }).await, Some(1));
        let mut steps = 0;
        assert_eq!(until(begun, async { steps += 1 }).await, None);
        assert_eq!(steps, 0);
        let soon = begun + Duration::from_millis(1);
        assert_eq!(until(soon, std::future::pending::<()>()).await, None);
    }
}
