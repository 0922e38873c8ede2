//! All stored records in memory. The cache lists the store once and then follows its watch, one
//! transaction at a time, so that records written together become visible together.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use oprc_cp_storage::{Change, Check, Commit, Error as StoreError, Revision, Store};
use parking_lot::RwLock;
use tokio::{sync::watch, task::spawn_blocking, time::timeout};

use super::{
    deployments::{DeploymentIndex, DeploymentWithUnits, Versioned, VersionedUnit},
    packages::PackageIndex,
};
use crate::{
    backoff,
    error::Error,
    rollout::{DeploymentRecord, UnitKey, UnitRecord},
};
use oprc_unit::Capacity;

const PACKAGES: &str = "package/";
const VERSIONS: &str = "version/";
/// Of deployments and units.
const DEPLOYMENTS: &str = "deployment";
/// In the order in which they are listed: users of versions after the heads they have written.
const PREFIXES: [&str; 3] = [PACKAGES, VERSIONS, DEPLOYMENTS];

/// How long a commit may take to show in the cache.
const VISIBLE_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_RELIST_DELAY: Duration = Duration::from_millis(50);
const MAX_RELIST_DELAY: Duration = Duration::from_secs(5);

pub struct Cache {
    store: Store,
    records: RwLock<Records>,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Default)]
struct Records {
    packages: PackageIndex,
    deployments: DeploymentIndex,
    /// The revision up to which each of [`PREFIXES`] is included. Prefixes are listed one after the
    /// other, so the watch may repeat changes that are included already.
    included: [Revision; 3],
}

/// How far the cache has followed the store.
#[derive(Debug, Default, Clone)]
pub struct Progress {
    revision: Revision,
    /// Why the store can't be followed now.
    error: Option<String>,
}

impl Records {
    fn included_up_to(&self) -> Revision {
        self.included.into_iter().min().unwrap_or_default()
    }

    fn is_new(&self, key: &str, revision: Revision) -> bool {
        let mut prefixes = PREFIXES.iter().zip(self.included);
        prefixes.any(|(prefix, included)| key.starts_with(prefix) && revision > included)
    }

    fn apply_deployment(&mut self, revision: Revision, change: &Change) {
        match change {
            Change::Put { key, value } => self.deployments.put(key, value, revision),
            Change::Delete { key } => self.deployments.remove(key),
        }
    }
}

impl Cache {
    /// Lists all records. [`Self::follow`] keeps them up to date.
    pub async fn load(store: Store) -> Result<Self, Error> {
        let records = list(&store).await?;
        let progress = Progress { revision: records.included_up_to(), error: None };
        Ok(Self { store, records: RwLock::new(records), progress: watch::Sender::new(progress) })
    }

    /// Follows the store. Never returns.
    pub async fn follow(self: &Arc<Self>) {
        backoff::repeat(MIN_RELIST_DELAY, MAX_RELIST_DELAY, || async {
            let mut progressed = false;
            let Err(error) = self.list_and_watch(&mut progressed).await;
            tracing::warn!(%error, "lost the watch of the store, listing its records again");
            self.progress.send_modify(|progress| progress.error = Some(error.to_string()));
            progressed
        })
        .await;
    }

    /// Returns why the watch ended. `progressed` is set when it has delivered something.
    async fn list_and_watch(
        self: &Arc<Self>,
        progressed: &mut bool,
    ) -> Result<Infallible, StoreError> {
        if self.stale().is_some() {
            let records = list(&self.store).await?;
            let revision = records.included_up_to();
            *self.records.write() = records;
            self.progress.send_replace(Progress { revision, error: None });
        }
        // One watch of all keys: it delivers a transaction at once, whatever it changes.
        let from = self.read(Records::included_up_to);
        let mut watch = self.store.watch("", Some(from)).await?;
        loop {
            self.apply(watch.next().await?).await?;
            *progressed = true;
        }
    }

    async fn apply(self: &Arc<Self>, commit: Commit) -> Result<(), StoreError> {
        // Versions are resolved with their dependencies, which may take a while.
        if commit.changes.iter().any(|it| it.key().starts_with(VERSIONS)) {
            let cache = Arc::clone(self);
            let applied = spawn_blocking(move || cache.apply_now(&commit)).await;
            return applied.map_err(|error| StoreError::Unavailable { reason: error.to_string() });
        }
        self.apply_now(&commit);
        Ok(())
    }

    fn apply_now(&self, commit: &Commit) {
        let revision = commit.revision;
        let (changes, staged) = self.read(|records| {
            let new = |change: &&Change| records.is_new(change.key(), revision);
            let changes: Vec<_> = commit.changes.iter().filter(new).collect();
            let staged = records.packages.stage(changes.iter().map(|it| (revision, *it)));
            (changes, staged)
        });
        let mut records = self.records.write();
        records.packages.commit(staged);
        for change in changes {
            records.apply_deployment(revision, change);
        }
        for included in &mut records.included {
            *included = revision.max(*included);
        }
        let revision = records.included_up_to();
        drop(records);
        self.progress.send_replace(Progress { revision, error: None });
    }

    fn read<T>(&self, read: impl FnOnce(&Records) -> T) -> T {
        read(&self.records.read())
    }

    /// For records that aren't cached.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Why the records may be outdated, if the store can't be followed now.
    pub fn stale(&self) -> Option<String> {
        self.progress.borrow().error.clone()
    }

    /// Notified of each change.
    pub fn changes(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Waits until the cache includes a commit, so that its writer reads it.
    pub async fn wait_for(&self, revision: Revision) -> Result<(), Error> {
        let mut changes = self.changes();
        let included = changes.wait_for(|progress| progress.revision >= revision);
        match timeout(VISIBLE_TIMEOUT, included).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::Unavailable("it is stored, but cannot be read yet".to_owned())),
        }
    }

    /// Waits until the condition that a transaction failed on no longer holds in the cache either.
    pub async fn wait_until_changed(&self, key: &str, check: Option<Check>) {
        let mut changes = self.changes();
        let unchanged = || check.is_some_and(|check| self.holds(key, check));
        let changed = async { while unchanged() && changes.changed().await.is_ok() {} };
        if timeout(VISIBLE_TIMEOUT, changed).await.is_err() {
            tracing::warn!(key, "the cache does not show a concurrent change yet");
        }
    }

    /// False for keys that aren't cached.
    fn holds(&self, key: &str, check: Check) -> bool {
        self.read(|records| {
            if let Some(name) = key.strip_prefix(PACKAGES) {
                let head = records.packages.packages().get(name).and_then(|it| it.head.as_ref());
                return check.holds(head.map(|(version, _)| *version));
            }
            key.starts_with(DEPLOYMENTS) && check.holds(records.deployments.version(key))
        })
    }

    pub fn packages<T>(&self, read: impl FnOnce(&PackageIndex) -> T) -> T {
        self.read(|records| read(&records.packages))
    }

    pub fn deployment(&self, key: &str) -> Option<Versioned<DeploymentRecord>> {
        self.read(|records| records.deployments.deployments.get(key).cloned())
    }

    /// All deployments, sorted by key.
    pub fn deployments(&self) -> Vec<Versioned<DeploymentRecord>> {
        self.read(|records| records.deployments.deployments.values().cloned().collect())
    }

    /// A deployment and all of its units as of one transaction.
    pub fn deployment_with_units(&self, key: &str) -> DeploymentWithUnits {
        self.read(|records| records.deployments.with_units(key))
    }

    pub fn unit(&self, key: &UnitKey) -> Option<Versioned<UnitRecord>> {
        self.read(|records| records.deployments.units.get(key).cloned())
    }

    pub fn units_on(&self, cluster: &str) -> Vec<VersionedUnit> {
        self.read(|records| records.deployments.units_on(cluster))
    }

    /// What all deployments except one request on each cluster.
    pub fn requested(&self, except: &str) -> BTreeMap<String, Capacity> {
        self.read(|records| records.deployments.requested(except))
    }

    /// Number of units on each cluster, configured or not.
    pub fn units_per_cluster(&self) -> BTreeMap<String, usize> {
        self.read(|records| {
            let mut counts = BTreeMap::new();
            for (cluster, _) in records.deployments.units.keys() {
                *counts.entry(cluster.clone()).or_default() += 1;
            }
            counts
        })
    }
}

async fn list(store: &Store) -> Result<Records, StoreError> {
    let mut included = [Revision::default(); 3];
    let mut changes = Vec::new();
    for (prefix, included) in PREFIXES.into_iter().zip(&mut included) {
        let page = store.list(prefix).await?;
        *included = page.revision;
        let entries = page.entries.into_iter();
        changes
            .extend(entries.map(|it| (it.version, Change::Put { key: it.key, value: it.value })));
    }
    // Thousands of packages are resolved here, which takes a while.
    let index = spawn_blocking(move || {
        let mut records = Records { included, ..Records::default() };
        let staged = records.packages.stage(changes.iter().map(|(at, change)| (*at, change)));
        records.packages.commit(staged);
        for (version, change) in &changes {
            records.apply_deployment(*version, change);
        }
        records
    });
    index.await.map_err(|error| StoreError::Unavailable { reason: error.to_string() })
}
