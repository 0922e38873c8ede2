//! Watches: commits are queued until the reader takes them.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinSet};

use crate::{Commit, Error, Result};

/// A watch that falls behind by more commits or bytes ends with a gap. The byte limit exceeds the
/// maximum size of a transaction.
const MAX_QUEUED_COMMITS: usize = 4096;
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// A stream of the changes under a prefix.
pub struct Watch {
    pub(crate) feed: Arc<Feed>,
    /// The task that fills the feed, if any; aborted when this is dropped.
    pub(crate) _task: JoinSet<()>,
}

impl Watch {
    /// Waits for the next commit. Nothing is lost if the future is dropped.
    ///
    /// An error ends the watch: [`Error::Gap`] if the history was compacted or this reader was too
    /// slow.
    pub async fn next(&mut self) -> Result<Commit> {
        loop {
            let changed = self.feed.changed.notified();
            if let Some(next) = self.feed.take() {
                return next;
            }
            changed.await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.feed.end(Error::Gap);
    }
}

/// The queue between the publisher and one watch.
#[derive(Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    commits: VecDeque<Commit>,
    bytes: usize,
    end: Option<Error>,
}

impl State {
    /// A gap also drops the queue, because the reader lists again anyway.
    fn end(&mut self, error: Error) {
        if error == Error::Gap {
            self.commits = VecDeque::new();
            self.bytes = 0;
        }
        self.end.get_or_insert(error);
    }
}

impl Feed {
    /// Returns false once the watch has ended.
    pub(crate) fn push(&self, commit: Commit) -> bool {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return false;
        }
        state.bytes += commit.bytes();
        state.commits.push_back(commit);
        if state.commits.len() > MAX_QUEUED_COMMITS || state.bytes > MAX_QUEUED_BYTES {
            state.end(Error::Gap);
        }
        self.changed.notify_one();
        state.end.is_none()
    }

    pub(crate) fn end(&self, error: Error) {
        self.state.lock().end(error);
        self.changed.notify_one();
    }

    fn take(&self) -> Option<Result<Commit>> {
        let mut state = self.state.lock();
        match state.commits.pop_front() {
            Some(commit) => {
                state.bytes = state.bytes.saturating_sub(commit.bytes());
                Some(Ok(commit))
            }
            None => state.end.clone().map(Err),
        }
    }
}
