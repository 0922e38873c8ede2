//! What happened lately, for watchers of a store that only this process changes.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use crate::{
    Commit, Error, Result, Revision,
    watch::{Feed, Watch},
};
use parking_lot::{Mutex, MutexGuard};

/// How many transactions are kept, and how many bytes of them.
const MAX_COMMITS: usize = 4096;
const MAX_BYTES: usize = 16 << 20;

/// What happened lately, and who wants to know.
#[derive(Default)]
pub(crate) struct History {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    commits: VecDeque<Commit>,
    bytes: usize,
    /// Everything after it is known.
    since: Revision,
    /// Everything up to it was told.
    told: Revision,
    /// Up to it readers may have seen what isn't told yet.
    seen: Revision,
    watchers: Vec<Watcher>,
}

struct Watcher {
    prefix: String,
    after: Revision,
    feed: Weak<Feed>,
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Forgets everything: the store is at this revision, however it came there.
    pub(crate) fn begin(&self, revision: Revision) {
        let mut state = self.state();
        state.break_off();
        *state = State { since: revision, told: revision, seen: revision, ..State::default() };
    }

    /// Ends all watches: what happened isn't known.
    pub(crate) fn break_off(&self) {
        self.state().break_off();
    }

    /// Expects transactions up to a revision: from now on readers may see them.
    pub(crate) fn expect(&self, revision: Revision) {
        self.state().seen = revision;
    }

    /// Tells of a transaction.
    pub(crate) fn tell(&self, commit: Commit) {
        let mut state = self.state();
        state.told = commit.revision;
        state.seen = state.seen.max(commit.revision);
        state.watchers.retain(|watcher| watcher.tell(&commit));
        state.bytes += commit.bytes();
        state.commits.push_back(commit);
        while state.commits.len() > MAX_COMMITS || state.bytes > MAX_BYTES {
            let Some(oldest) = state.commits.pop_front() else { break };
            state.bytes = state.bytes.saturating_sub(oldest.bytes());
            state.since = oldest.revision;
        }
    }

    /// Watches from a revision on, or from now.
    pub(crate) fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        let mut state = self.state();
        let after = after.unwrap_or(state.told);
        if after < state.since || after > state.seen {
            return Err(Error::Gap);
        }
        let feed = Arc::new(Feed::default());
        let watcher = Watcher { prefix: prefix.to_owned(), after, feed: Arc::downgrade(&feed) };
        if state.commits.iter().all(|commit| watcher.tell(commit)) {
            state.watchers.push(watcher);
        }
        Ok(Watch::new(feed, None))
    }
}

impl State {
    fn break_off(&mut self) {
        for watcher in std::mem::take(&mut self.watchers) {
            if let Some(feed) = watcher.feed.upgrade() {
                feed.end(Error::Gap);
            }
        }
    }
}

impl Watcher {
    /// Whether it wants to know more.
    fn tell(&self, commit: &Commit) -> bool {
        let Some(feed) = self.feed.upgrade() else { return false };
        if commit.revision <= self.after {
            return true;
        }
        let concerns =
            commit.changes.iter().filter(|change| change.key().starts_with(&self.prefix));
        let changes: Vec<_> = concerns.cloned().collect();
        changes.is_empty() || feed.tell(Commit { revision: commit.revision, changes })
    }
}
