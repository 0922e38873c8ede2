//! Packages: which there are, in which versions, and what is in them.
//!
//! The store holds them; what is read comes from an index in memory that follows the store, so
//! that reads cost no call. Whoever writes waits until the index has it, and so reads it after.
//!
//! A version stays while something uses it. Who comes to use one, such as a package that depends
//! on it or a deployment ([`Registry::hold`]), writes the package's head as it is, in the same
//! transaction; who deletes one checks that the head is as it was when users were looked for. So of
//! two that come at the same time, the second is told.

mod catalogue;
mod choose;
mod deprecate;
mod follow;
mod index;
mod marks;
mod prepare;
mod publish;
mod remove;
mod search;
mod tag;

use std::{collections::BTreeMap, sync::Arc};

use oprc_cp_storage::{Check, Store, Transaction};
use oprc_models::{ResolvedPackage, Version, VersionRange};
use oprc_rest::{PackageSummary, PackageVersion, VersionSummary};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use self::{
    follow::Followed,
    index::{Package, Settled},
};
pub use self::{
    search::{Filter, MOST_ON_A_PAGE, Paging, labels},
    tag::tag,
};
use crate::{error::Error, records};

/// How many packages are kept settled.
const MOST_SETTLED: usize = 256;
/// How often something is tried again that others came before.
const ATTEMPTS: usize = 16;

/// The packages there are. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    followed: Arc<Followed>,
    follower: AbortHandle,
    /// By name, version and digest.
    settled: Mutex<BTreeMap<[String; 3], Arc<ResolvedPackage>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registry")
    }
}

impl Registry {
    /// Reads all packages, and follows the store from there on.
    pub async fn new(store: Store) -> Result<Self, Error> {
        let (followed, follower) = follow::start(store.clone()).await?;
        let inner = Inner { store, followed, follower, settled: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Why what is read may be old, where the store can't be followed just now.
    pub fn stale(&self) -> Option<String> {
        self.inner.followed.trouble()
    }

    /// How many packages there are, and how many versions of them.
    pub fn count(&self) -> (usize, usize) {
        self.inner.followed.read(|index| {
            let versions = index.packages().values().map(|it| it.versions.len()).sum();
            (index.packages().len(), versions)
        })
    }

    /// A package, and a tag that differs once it does.
    pub fn package(&self, name: &str) -> Result<(PackageSummary, String), Error> {
        let package = self.known(name)?;
        Ok((package.summary.clone(), package.tag()))
    }

    /// The versions of a package, newest first.
    pub fn versions(&self, name: &str) -> Result<Vec<VersionSummary>, Error> {
        Ok(self.known(name)?.summary.versions.clone())
    }

    /// A version of a package, by its exact number.
    pub fn version(&self, name: &str, version: &str) -> Result<Arc<PackageVersion>, Error> {
        let package = self.known(name)?;
        let parsed = parse_version(version)?;
        let found = package.versions.get(&parsed).cloned();
        found.ok_or_else(|| Error::not_found("version", format!("{name} {version}")))
    }

    /// The version that is taken where any of a range will do: the newest that isn't deprecated,
    /// or else the newest. Without a range, the latest.
    pub fn find(
        &self,
        name: &str,
        range: Option<&VersionRange>,
    ) -> Result<Arc<PackageVersion>, Error> {
        let package = self.known(name)?;
        let found = match range {
            None => package.latest(),
            Some(range) => package.matching(range).next(),
        };
        let wanted = || range.map_or_else(|| name.to_owned(), |range| format!("{name} {range}"));
        found.cloned().ok_or_else(|| Error::not_found("version", wanted()))
    }

    /// Makes a transaction one that comes to use a version: it fails if the package changes before
    /// it is made, with the key of the package's head as what is in conflict. The caller may then
    /// begin anew; whoever deletes the version meanwhile is refused.
    pub fn hold(
        &self,
        transaction: Transaction,
        name: &str,
        version: &str,
    ) -> Result<Transaction, Error> {
        let package = self.known(name)?;
        let there = parse_version(version).is_ok_and(|it| package.versions.contains_key(&it));
        match &package.head {
            Some((at, head)) if there => {
                let key = records::package(name);
                let value = records::write(head)?;
                Ok(transaction.check(key.clone(), Check::Version(*at)).put(key, value))
            }
            _ => Err(Error::not_found("version", format!("{name} {version}"))),
        }
    }

    /// Waits until a package's head isn't any more as it was checked to be, as a transaction that
    /// was refused for it has said.
    pub async fn passed(&self, key: &str, check: Option<Check>) {
        self.inner.followed.passed(key, check).await;
    }

    fn known(&self, name: &str) -> Result<Arc<Package>, Error> {
        let found = self.inner.followed.read(|index| index.package(name));
        found.ok_or_else(|| Error::not_found("package", name))
    }

    fn settle(&self, version: &PackageVersion) -> Result<Arc<ResolvedPackage>, Error> {
        let package = &version.package;
        // What it was settled with is as much a part of it as its own text.
        let content = format!("{} {:?}", version.digest, version.resolved);
        let key = [package.name.clone(), package.version.to_string(), content];
        let settled = || self.inner.settled.lock();
        if let Some(found) = settled().get(&key) {
            return Ok(found.clone());
        }
        let others: Settled = self.inner.followed.read(|index| index.others(version));
        let resolved = oprc_models::resolve(package, &others).map_err(|faults| {
            Error::Internal(format!("{} {} can't be settled: {faults}", package.name, key[1]))
        })?;
        let resolved = Arc::new(resolved);
        let mut settled = settled();
        if settled.len() >= MOST_SETTLED {
            // Which one goes matters little: it is settled again in a moment.
            settled.pop_first();
        }
        settled.insert(key, resolved.clone());
        Ok(resolved)
    }

    /// Makes a transaction and waits until the index has it. Gives false where others came before,
    /// and then the index has what they did.
    async fn commit(&self, transaction: Transaction) -> Result<bool, Error> {
        use oprc_cp_storage::Error as Trouble;

        let checked: BTreeMap<String, Check> = transaction.checks.iter().cloned().collect();
        match self.inner.store.commit(transaction).await {
            Ok(revision) => {
                self.inner.followed.wait(revision).await;
                Ok(true)
            }
            Err(Trouble::Conflict { key, .. }) => {
                self.passed(&key, checked.get(&key).copied()).await;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn parse_version(text: &str) -> Result<Version, Error> {
    text.parse().map_err(|message| Error::Parameter { field: "version", message })
}

/// What is said when others came before too often.
fn race(name: &str) -> Error {
    Error::Conflict {
        reason: "RACE",
        detail: format!("{name} is changed by others all the time"),
        blockers: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
