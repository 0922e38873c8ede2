//! How the index follows the store: all of it once, then each change as it comes.

use std::{sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use oprc_cp_storage::{Change, Check, Commit, Error as Trouble, Result, Revision, Store};
use parking_lot::RwLock;
use tokio::{
    sync::watch,
    task::{AbortHandle, spawn_blocking},
    time::{sleep, timeout},
};

use super::index::{Index, PREFIXES};
use crate::error::Error;

/// How long is waited for the index to have what is in the store.
const PATIENCE: Duration = Duration::from_secs(5);

/// An index, and up to which revision it has everything.
pub(super) struct Followed {
    index: RwLock<Index>,
    seen: watch::Sender<Seen>,
}

#[derive(Debug, Default, Clone)]
struct Seen {
    revision: Revision,
    trouble: Option<String>,
}

impl Followed {
    pub(super) fn read<T>(&self, what: impl FnOnce(&Index) -> T) -> T {
        what(&self.index.read())
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.seen.borrow().trouble.clone()
    }

    /// Waits until the index has everything up to a revision.
    pub(super) async fn wait(&self, revision: Revision) {
        let mut seen = self.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.revision >= revision);
        if timeout(PATIENCE, reached).await.is_err() {
            tracing::warn!(%revision, "What was written isn't read back yet");
        }
    }

    /// Waits until the entry isn't any more as it was checked to be.
    pub(super) async fn passed(&self, key: &str, check: Option<Check>) {
        let Some(name) = key.strip_prefix("package/") else { return };
        let mut seen = self.seen.subscribe();
        let version = || self.read(|index| Some(index.packages().get(name)?.head.as_ref()?.0));
        let same = || check.is_some_and(|check| check.holds(version()));
        let passed = async { while same() && seen.changed().await.is_ok() {} };
        let _ = timeout(PATIENCE, passed).await;
    }

    /// Waits for any change.
    pub(super) async fn changed(&self) {
        let mut seen = self.seen.subscribe();
        let _ = timeout(PATIENCE, seen.changed()).await;
    }

    fn replace(&self, index: Index, revision: Revision) {
        *self.index.write() = index;
        self.seen.send_replace(Seen { revision, trouble: None });
    }

    fn apply(&self, commit: &Commit, read: &Read) {
        let new = |change: &&Change| {
            read.iter()
                .any(|(prefix, since)| change.key().starts_with(prefix) && commit.revision > *since)
        };
        let changes: Vec<_> =
            commit.changes.iter().filter(new).map(|it| (commit.revision, it)).collect();
        if !changes.is_empty() {
            // Nobody else changes it between the two.
            let staged = self.read(|index| index.stage(changes));
            self.index.write().take(staged);
        }
        self.seen.send_replace(Seen { revision: commit.revision, trouble: None });
    }

    fn stumble(&self, trouble: &Trouble) {
        tracing::warn!(error = %trouble, "The registry can't follow the store");
        self.seen.send_modify(|seen| seen.trouble = Some(trouble.to_string()));
    }
}

/// Reads the store and follows it until the task is aborted.
pub(super) async fn start(store: Store) -> Result<(Arc<Followed>, AbortHandle), Error> {
    let (index, read) = load(&store).await?;
    let seen = Seen { revision: since(&read), trouble: None };
    let followed = Arc::new(Followed { index: RwLock::new(index), seen: watch::Sender::new(seen) });
    let task = tokio::spawn(run(store, followed.clone(), read));
    Ok((followed, task.abort_handle()))
}

/// What was read, and as of which revision.
type Read = Vec<(&'static str, Revision)>;

/// The index has everything up to here. Some of it is newer, and is met again by the watch.
fn since(read: &Read) -> Revision {
    read.iter().map(|(_, revision)| *revision).min().unwrap_or_default()
}

async fn load(store: &Store) -> Result<(Index, Read)> {
    let mut read = Read::new();
    let mut entries = Vec::new();
    for prefix in PREFIXES {
        let page = store.list(prefix).await?;
        read.push((prefix, page.revision));
        entries.extend(page.entries);
    }
    // Thousands of packages are settled here, which takes a while.
    let index = spawn_blocking(move || {
        let changes: Vec<_> = entries
            .into_iter()
            .map(|it| (it.version, Change::Put { key: it.key, value: it.value }))
            .collect();
        let mut index = Index::default();
        index.apply(changes.iter().map(|(version, change)| (*version, change)));
        index
    });
    let index = index.await.map_err(|error| Trouble::Unavailable { reason: error.to_string() })?;
    Ok((index, read))
}

async fn run(store: Store, followed: Arc<Followed>, mut read: Read) {
    let patience = || {
        backon::ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(5))
            .with_jitter()
            .without_max_times()
            .build()
    };
    let mut delays = patience();
    loop {
        let (trouble, followed_some) = follow(&store, &followed, &read).await;
        followed.stumble(&trouble);
        // One that only ever has gaps isn't read anew without a pause.
        if followed_some {
            delays = patience();
        }
        loop {
            sleep(delays.next().unwrap_or(Duration::from_secs(5))).await;
            match load(&store).await {
                Ok((index, anew)) => {
                    followed.replace(index, since(&anew));
                    read = anew;
                    break;
                }
                Err(error) => followed.stumble(&error),
            }
        }
    }
}

/// Until the watch ends: why, and whether it told anything.
async fn follow(store: &Store, followed: &Arc<Followed>, read: &Read) -> (Trouble, bool) {
    // All keys: one watch tells of a transaction at once, whatever it changes.
    let mut watch = match store.watch("", Some(since(read))).await {
        Ok(watch) => watch,
        Err(error) => return (error, false),
    };
    let mut any = false;
    loop {
        match watch.next().await {
            // Versions are settled with what they depend on, which may take a while.
            Ok(commit) if commit.changes.iter().any(|it| it.key().starts_with("version/")) => {
                let (followed, read) = (Arc::clone(followed), read.clone());
                let applied = spawn_blocking(move || followed.apply(&commit, &read)).await;
                if let Err(error) = applied {
                    return (Trouble::Unavailable { reason: error.to_string() }, any);
                }
            }
            Ok(commit) => followed.apply(&commit, read),
            Err(error) => return (error, any),
        }
        any = true;
    }
}
