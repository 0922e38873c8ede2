//! Classes that should be looked at, each of them once however often it is named.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Key;

/// Classes that wait to be looked at: no more than there are.
#[derive(Clone, Default)]
pub struct Dirty(Arc<Inner>);

#[derive(Default)]
struct Inner {
    waiting: Mutex<HashSet<Key>>,
    arrived: Notify,
}

impl Dirty {
    /// Names a class.
    pub(super) fn mark(&self, key: Key) {
        self.0.waiting.lock().insert(key);
        self.0.arrived.notify_one();
    }

    /// All classes that were named since it was asked last, as soon as there are any. Only one may
    /// ask.
    pub async fn next(&self) -> HashSet<Key> {
        loop {
            let waiting = {
                let mut waiting = self.0.waiting.lock();
                std::mem::take(&mut *waiting)
            };
            if !waiting.is_empty() {
                return waiting;
            }
            self.0.arrived.notified().await;
        }
    }
}
