//! Callers that wait for the triggers of their change.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

/// Waiting callers by the key of the event. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventWaiters {
    /// How many triggers of the event are left.
    events: Arc<Mutex<HashMap<String, watch::Sender<usize>>>>,
}

/// A caller that waits for the first triggers of an event. It is registered before the event is stored.
#[derive(Debug)]
pub(crate) struct EventWaiter {
    waiters: EventWaiters,
    key: String,
    left: watch::Receiver<usize>,
    /// Triggers that it doesn't wait for.
    ignored: usize,
    limit: Duration,
}

impl EventWaiters {
    pub(crate) fn register(&self, key: &str, ignored: usize, limit: Duration) -> EventWaiter {
        let (sender, left) = watch::channel(usize::MAX);
        self.events.lock().insert(key.to_owned(), sender);
        EventWaiter { waiters: self.clone(), key: key.to_owned(), left, ignored, limit }
    }

    /// Triggers of an event were called, and this many are left.
    pub(crate) fn advanced(&self, key: &str, left: usize) {
        if let Some(sender) = self.events.lock().get(key) {
            sender.send_replace(left);
        }
    }
}

impl EventWaiter {
    /// Whether the triggers were called in time.
    pub(crate) async fn wait(mut self) -> bool {
        let (limit, ignored) = (self.limit, self.ignored);
        let called = self.left.wait_for(|left| *left <= ignored);
        matches!(timeout(limit, called).await, Ok(Ok(_)))
    }
}

impl Drop for EventWaiter {
    fn drop(&mut self) {
        self.waiters.events.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_wait_until_the_triggers_were_called_or_time_is_up() {
        let waiters = EventWaiters::default();
        let limit = Duration::from_secs(5);
        let waiter = waiters.register("e/a/0", 1, limit);
        waiters.advanced("e/a/0", 2);
        waiters.advanced("e/a/0", 1);
        assert!(waiter.wait().await);
        let waiter = waiters.register("e/a/1", 0, limit);
        waiters.advanced("e/a/1", 1);
        assert!(!waiter.wait().await);
        assert!(waiters.events.lock().is_empty());
        waiters.advanced("e/a/2", 0);
    }
}
