//! Deployments and units as they are stored, in memory: it follows the store, a transaction at a
//! time, so that what was stored together is seen together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use oprc_cp_storage::{Change, Entry, Revision, Store};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::{
    clusters::delays,
    error::Error,
    planner::Asks,
    records::{self, DeploymentRecord, UnitRecord},
    stamp,
};

/// What the keys of deployments and units begin with.
pub(super) const PREFIX: &str = "deployment";
const DEPLOYMENT: &str = "deployment/";
const UNIT: &str = "deployment-unit/";
/// How long a write may take to be seen here.
pub(super) const SEEN: Duration = Duration::from_secs(10);

/// By cluster and id.
pub type UnitKey = (String, String);

/// Something that is stored.
#[derive(Debug)]
pub struct Kept<T> {
    /// Its version in the store.
    pub version: Revision,
    /// What it is.
    pub record: Arc<T>,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self { version: self.version, record: Arc::clone(&self.record) }
    }
}

/// A unit with what it is known by.
pub type KeptUnit = (UnitKey, Kept<UnitRecord>);
/// A deployment, where there is one, and its units.
pub type Whole = (Option<Kept<DeploymentRecord>>, Vec<KeptUnit>);

/// Everything that is stored of deployments and units.
#[derive(Debug, Default)]
pub struct Book {
    pages: RwLock<Pages>,
    revision: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct Pages {
    deployments: BTreeMap<String, Kept<DeploymentRecord>>,
    units: BTreeMap<UnitKey, Kept<UnitRecord>>,
    by_deployment: BTreeMap<String, BTreeSet<UnitKey>>,
    /// What units ask of their clusters, where they are to be there.
    asks: BTreeMap<UnitKey, Asks>,
}

fn parsed<T: DeserializeOwned>(key: &str, value: &[u8], version: Revision) -> Option<Kept<T>> {
    match records::read(key, value) {
        Ok(record) => Some(Kept { version, record: Arc::new(record) }),
        Err(error) => {
            tracing::error!(key, %error, "left out");
            None
        }
    }
}

impl Pages {
    fn put(&mut self, key: &str, value: &[u8], version: Revision) {
        if let Some(name) = key.strip_prefix(DEPLOYMENT) {
            if let Some(kept) = parsed::<DeploymentRecord>(key, value, version) {
                stamp::meet(&kept.record.revision);
                self.deployments.insert(name.to_owned(), kept);
            }
        } else if let Some(unit) = unit_key(key)
            && let Some(kept) = parsed::<UnitRecord>(key, value, version)
        {
            self.remove(key);
            let of = kept.record.deployment.clone();
            self.by_deployment.entry(of).or_default().insert(unit.clone());
            if let Some(spec) = &kept.record.spec {
                self.asks.insert(unit.clone(), Asks::read(spec));
            }
            self.units.insert(unit, kept);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some(name) = key.strip_prefix(DEPLOYMENT) {
            self.deployments.remove(name);
        } else if let Some(unit) = unit_key(key)
            && let Some(kept) = self.units.remove(&unit)
            && let Some(of) = self.by_deployment.get_mut(&kept.record.deployment)
        {
            of.remove(&unit);
            if of.is_empty() {
                self.by_deployment.remove(&kept.record.deployment);
            }
            self.asks.remove(&unit);
        }
    }

    fn version(&self, key: &str) -> Option<Revision> {
        match key.strip_prefix(DEPLOYMENT) {
            Some(name) => self.deployments.get(name).map(|kept| kept.version),
            None => self.units.get(&unit_key(key)?).map(|kept| kept.version),
        }
    }
}

fn unit_key(key: &str) -> Option<UnitKey> {
    let (cluster, id) = key.strip_prefix(UNIT)?.split_once('/')?;
    Some((cluster.to_owned(), id.to_owned()))
}

impl Book {
    /// Reads everything.
    pub async fn read(store: &Store) -> Result<Self, Error> {
        let book = Self::default();
        let page = store.list(PREFIX).await?;
        book.replace(&page.entries, page.revision);
        Ok(book)
    }

    fn replace(&self, entries: &[Entry], revision: Revision) {
        let mut pages = Pages::default();
        for entry in entries {
            pages.put(&entry.key, &entry.value, entry.version);
        }
        *self.pages.write() = pages;
        self.revision.send_replace(revision);
    }

    /// Follows the store. Never returns.
    pub async fn follow(&self, store: &Store) {
        let mut waits = delays(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let error = self.until_it_ends(store).await;
            tracing::info!(%error, "deployments are read anew");
            tokio::time::sleep(waits.next().unwrap_or(Duration::from_secs(5))).await;
            match store.list(PREFIX).await {
                Ok(page) => {
                    self.replace(&page.entries, page.revision);
                    waits = delays(Duration::from_millis(100), Duration::from_secs(5));
                }
                Err(error) => tracing::warn!(%error, "deployments can't be read"),
            }
        }
    }

    async fn until_it_ends(&self, store: &Store) -> oprc_cp_storage::Error {
        let after = *self.revision.borrow();
        let mut watch = match store.watch(PREFIX, Some(after)).await {
            Ok(watch) => watch,
            Err(error) => return error,
        };
        loop {
            let commit = match watch.next().await {
                Ok(commit) => commit,
                Err(error) => return error,
            };
            let mut pages = self.pages.write();
            for change in &commit.changes {
                match change {
                    Change::Put { key, value } => pages.put(key, value, commit.revision),
                    Change::Delete { key } => pages.remove(key),
                }
            }
            drop(pages);
            self.revision.send_replace(commit.revision);
        }
    }

    /// Is told of each change.
    pub fn changes(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// Waits until a write is seen here, so that whoever made it reads it.
    pub async fn reach(&self, revision: Revision) -> Result<(), Error> {
        let mut changes = self.changes();
        let reached = changes.wait_for(|at| *at >= revision);
        match tokio::time::timeout(SEEN, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::Unavailable("it is stored, and can't be read yet".to_owned())),
        }
    }

    fn with<T>(&self, read: impl FnOnce(&Pages) -> T) -> T {
        read(&self.pages.read())
    }

    /// A deployment.
    pub fn deployment(&self, key: &str) -> Option<Kept<DeploymentRecord>> {
        self.with(|pages| pages.deployments.get(key).cloned())
    }

    /// All deployments, by key.
    pub fn deployments(&self) -> Vec<Kept<DeploymentRecord>> {
        self.with(|pages| pages.deployments.values().cloned().collect())
    }

    /// A deployment and all of its units, as they are at one time.
    pub fn whole(&self, key: &str) -> Whole {
        self.with(|pages| {
            let keys = pages.by_deployment.get(key).into_iter().flatten();
            let units = keys.filter_map(|key| Some((key.clone(), pages.units.get(key)?.clone())));
            (pages.deployments.get(key).cloned(), units.collect())
        })
    }

    /// A unit.
    pub fn unit(&self, key: &UnitKey) -> Option<Kept<UnitRecord>> {
        self.with(|pages| pages.units.get(key).cloned())
    }

    /// All units of a cluster.
    pub fn units_on(&self, cluster: &str) -> Vec<KeptUnit> {
        let begin = (cluster.to_owned(), String::new());
        self.with(|pages| {
            let units = pages.units.range(begin..).take_while(|((on, _), _)| on == cluster);
            units.map(|(key, kept)| (key.clone(), kept.clone())).collect()
        })
    }

    /// What is asked of a cluster by all deployments but one.
    pub fn asks(&self, cluster: &str, but: &str) -> Asks {
        self.with(|pages| {
            let begin = (cluster.to_owned(), String::new());
            let asks = pages.asks.range(begin..).take_while(|((on, _), _)| on == cluster);
            let own = pages.by_deployment.get(but);
            let others = asks.filter(|(key, _)| own.is_none_or(|own| !own.contains(*key)));
            others.fold(Asks::default(), |sum, (_, asks)| sum.and(*asks))
        })
    }

    /// The version of an entry in the store, where there is one.
    pub fn version(&self, key: &str) -> Option<Revision> {
        self.with(|pages| pages.version(key))
    }

    /// How many units there are on each cluster, configured or not.
    pub fn count(&self) -> BTreeMap<String, usize> {
        self.with(|pages| {
            let mut counts = BTreeMap::new();
            for (cluster, _) in pages.units.keys() {
                *counts.entry(cluster.clone()).or_default() += 1;
            }
            counts
        })
    }
}
