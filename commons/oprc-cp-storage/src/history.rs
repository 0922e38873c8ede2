//! Recent commits, for watches of stores that only this process changes.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{
    Commit, Error, Result, Revision,
    watch::{Feed, Watch},
};

/// Limits of the retained history.
const MAX_COMMITS: usize = 4096;
const MAX_BYTES: usize = 16 << 20;

#[derive(Default)]
pub(crate) struct History {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commits: VecDeque<Commit>,
    bytes: usize,
    /// All commits after it are retained.
    oldest: Revision,
    /// All commits up to it were sent to watchers.
    published: Revision,
    /// Readers may have seen commits up to it that aren't published yet.
    visible: Revision,
    watchers: Vec<Watcher>,
}

struct Watcher {
    prefix: String,
    after: Revision,
    feed: Weak<Feed>,
}

impl History {
    /// Drops all history and ends all watches: the store is at this revision now.
    pub(crate) fn reset(&self, revision: Revision) {
        let mut state = self.state.lock();
        state.end_watches();
        *state =
            State { oldest: revision, published: revision, visible: revision, ..State::default() };
    }

    /// Ends all watches with a gap.
    pub(crate) fn end_watches(&self) {
        self.state.lock().end_watches();
    }

    /// Announces commits up to a revision, which readers may see before they are published.
    pub(crate) fn announce(&self, revision: Revision) {
        self.state.lock().visible = revision;
    }

    pub(crate) fn publish(&self, commit: Commit) {
        let mut state = self.state.lock();
        state.published = commit.revision;
        state.visible = state.visible.max(commit.revision);
        state.watchers.retain(|watcher| watcher.publish(&commit));
        state.bytes += commit.bytes();
        state.commits.push_back(commit);
        while state.commits.len() > MAX_COMMITS || state.bytes > MAX_BYTES {
            let Some(oldest) = state.commits.pop_front() else { break };
            state.bytes = state.bytes.saturating_sub(oldest.bytes());
            state.oldest = oldest.revision;
        }
    }

    /// Watches commits after a revision, or from now on.
    pub(crate) fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        let mut state = self.state.lock();
        let after = after.unwrap_or(state.published);
        if after < state.oldest || after > state.visible {
            return Err(Error::Gap);
        }
        let feed = Arc::new(Feed::default());
        let watcher = Watcher { prefix: prefix.to_owned(), after, feed: Arc::downgrade(&feed) };
        if state.commits.iter().all(|commit| watcher.publish(commit)) {
            state.watchers.push(watcher);
        }
        Ok(Watch { feed, _task: JoinSet::new() })
    }
}

impl State {
    fn end_watches(&mut self) {
        for watcher in std::mem::take(&mut self.watchers) {
            if let Some(feed) = watcher.feed.upgrade() {
                feed.end(Error::Gap);
            }
        }
    }
}

impl Watcher {
    /// Returns false once the watch has ended.
    fn publish(&self, commit: &Commit) -> bool {
        let Some(feed) = self.feed.upgrade() else { return false };
        if commit.revision <= self.after {
            return true;
        }
        let matching =
            commit.changes.iter().filter(|change| change.key().starts_with(&self.prefix));
        let changes: Vec<_> = matching.cloned().collect();
        changes.is_empty() || feed.push(Commit { revision: commit.revision, changes })
    }
}
