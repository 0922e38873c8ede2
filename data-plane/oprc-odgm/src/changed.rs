//! Objects that have new events, for the task that delivers them.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Changed {
    objects: Mutex<HashSet<String>>,
    added: Notify,
}

impl Changed {
    pub(crate) fn add(&self, object: &str) {
        self.objects.lock().insert(object.to_owned());
        self.added.notify_one();
    }

    /// Waits for objects, and removes them. Nothing is lost if the future is dropped.
    pub(crate) async fn take(&self) -> HashSet<String> {
        loop {
            let added = self.added.notified();
            let objects = std::mem::take(&mut *self.objects.lock());
            if !objects.is_empty() {
                return objects;
            }
            added.await;
        }
    }
}
