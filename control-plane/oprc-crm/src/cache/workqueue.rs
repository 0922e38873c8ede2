use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::key::Key;

/// ClassRuntimes to reconcile, each of them once however often it was added.
#[derive(Clone, Default)]
pub struct WorkQueue(Arc<Inner>);

#[derive(Default)]
struct Inner {
    waiting: Mutex<HashSet<Key>>,
    added: Notify,
}

impl WorkQueue {
    pub(super) fn add(&self, key: Key) {
        self.0.waiting.lock().insert(key);
        self.0.added.notify_one();
    }

    /// Takes everything that was added since the last call, and waits while that is nothing. There
    /// must be only one consumer.
    pub async fn drain(&self) -> HashSet<Key> {
        loop {
            let waiting = std::mem::take(&mut *self.0.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            self.0.added.notified().await;
        }
    }
}
