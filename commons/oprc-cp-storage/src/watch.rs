//! What a watcher is told, held until it asks.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::Notify, task::AbortHandle};

use crate::{Commit, Error, Result};

/// A watcher that is so many transactions behind has to begin anew.
const MAX_COMMITS: usize = 4096;
/// The same for so many bytes. More than one transaction may have.
const MAX_BYTES: usize = 16 << 20;

/// All changes under a prefix, as they come.
pub struct Watch {
    feed: Arc<Feed>,
    task: Option<AbortHandle>,
}

impl Watch {
    pub(crate) fn new(feed: Arc<Feed>, task: Option<AbortHandle>) -> Self {
        Self { feed, task }
    }

    /// Waits for the next transaction. Nothing is lost if the future is dropped.
    ///
    /// An error ends the watch: [`Error::Gap`] when not everything can be told, because history is
    /// gone or because this reader was too slow.
    pub async fn next(&mut self) -> Result<Commit> {
        loop {
            let told = self.feed.told.notified();
            if let Some(next) = self.feed.take() {
                return next;
            }
            told.await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.feed.end(Error::Gap);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// From who tells to one who is told.
#[derive(Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
    told: Notify,
}

#[derive(Default)]
struct State {
    commits: VecDeque<Commit>,
    bytes: usize,
    end: Option<Error>,
}

impl Feed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether there will be more to tell.
    pub(crate) fn tell(&self, commit: Commit) -> bool {
        let mut state = self.state();
        if state.end.is_some() {
            return false;
        }
        state.bytes += commit.bytes();
        state.commits.push_back(commit);
        if state.commits.len() > MAX_COMMITS || state.bytes > MAX_BYTES {
            drop(state);
            self.end(Error::Gap);
            return false;
        }
        drop(state);
        self.told.notify_one();
        true
    }

    /// Ends it. What wasn't taken is dropped after a gap: it would have to be read anew anyway.
    pub(crate) fn end(&self, error: Error) {
        let mut state = self.state();
        if error == Error::Gap {
            state.commits = VecDeque::new();
            state.bytes = 0;
        }
        state.end.get_or_insert(error);
        drop(state);
        self.told.notify_one();
    }

    fn take(&self) -> Option<Result<Commit>> {
        let mut state = self.state();
        match state.commits.pop_front() {
            Some(commit) => {
                state.bytes = state.bytes.saturating_sub(commit.bytes());
                Some(Ok(commit))
            }
            None => state.end.clone().map(Err),
        }
    }
}
