//! The package registry: publishing, resolving, searching and deleting packages.
//!
//! Reads come from the cache of the store. A version that is in use can't be deleted: a transaction
//! that begins to use one ([`Registry::reference`]) rewrites the package's head unchanged, and a
//! deletion checks that the head is the one it looked for users of. Of two concurrent ones, the
//! second fails.

mod deprecate;
mod etag;
mod prepare;
mod publish;
mod remove;
mod search;
mod solver;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use oprc_cp_storage::{Check, Transaction};
use oprc_models::{ResolvedPackage, Version, VersionRange};
use oprc_rest::{PackageSummary, PackageVersion, VersionSummary};
use parking_lot::Mutex;

pub use self::{
    etag::etag,
    search::{Filter, Paging, labels},
};
use crate::{
    error::Error,
    state::{
        Cache,
        packages::Package,
        schema::{encode, package_key},
    },
};

/// Resolved packages kept in memory.
const MAX_RESOLVED: usize = 256;

/// Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    cache: Arc<Cache>,
    /// By name, version and digest.
    resolved: Arc<Mutex<BTreeMap<[String; 3], Arc<ResolvedPackage>>>>,
}

impl Registry {
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache, resolved: Arc::default() }
    }

    /// Why packages may be outdated, if the store can't be followed now.
    pub fn stale(&self) -> Option<String> {
        self.cache.stale()
    }

    /// A package and its ETag.
    pub fn package(&self, name: &str) -> Result<(PackageSummary, String), Error> {
        let package = self.known(name)?;
        Ok((package.summary.clone(), package.etag()))
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

    /// The newest version in a range that isn't deprecated, or else the newest. Without a range, the
    /// latest.
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
        let requested = || range.map_or_else(|| name.to_owned(), |range| format!("{name} {range}"));
        found.cloned().ok_or_else(|| Error::not_found("version", requested()))
    }

    /// Adds to a transaction that it begins to use a version: it then conflicts with any concurrent
    /// change of the package, with the key of the package's head.
    pub fn reference(
        &self,
        transaction: Transaction,
        name: &str,
        version: &str,
    ) -> Result<Transaction, Error> {
        let package = self.known(name)?;
        let exists = parse_version(version).is_ok_and(|it| package.versions.contains_key(&it));
        match &package.head {
            Some((at, head)) if exists => {
                let key = package_key(name);
                let value = encode(head)?;
                Ok(transaction.check(key.clone(), Check::Version(*at)).put(key, value))
            }
            _ => Err(Error::not_found("version", format!("{name} {version}"))),
        }
    }

    fn known(&self, name: &str) -> Result<Arc<Package>, Error> {
        let found = self.cache.packages(|index| index.package(name));
        found.ok_or_else(|| Error::not_found("package", name))
    }

    fn resolve(&self, version: &PackageVersion) -> Result<Arc<ResolvedPackage>, Error> {
        let package = &version.package;
        // The same version could have been resolved with other dependencies in another store.
        let content = format!("{} {:?}", version.digest, version.resolved);
        let key = [package.name.clone(), package.version.to_string(), content];
        let cached = || self.resolved.lock();
        if let Some(found) = cached().get(&key) {
            return Ok(found.clone());
        }
        let dependencies = self.cache.packages(|index| index.dependencies(version));
        let resolved = oprc_models::resolve(package, &dependencies).map_err(|error| {
            Error::Internal(format!("cannot resolve {} {}: {error}", package.name, key[1]))
        })?;
        let resolved = Arc::new(resolved);
        let mut cached = cached();
        if cached.len() >= MAX_RESOLVED {
            cached.pop_first();
        }
        cached.insert(key, resolved.clone());
        Ok(resolved)
    }
}

fn parse_version(text: &str) -> Result<Version, Error> {
    text.parse().map_err(|message: String| Error::parameter("version", message))
}

/// Fails if a resource must have another ETag.
fn check_tag(expected: Option<&str>, tag: String) -> Result<(), Error> {
    if expected.is_none_or(|it| it == tag) { Ok(()) } else { Err(Error::Changed(tag)) }
}

/// A package has no head only while it is being created or deleted by another writer.
fn missing_head(name: &str) -> Error {
    Error::Unavailable(format!("{name} is being changed: try again"))
}
