//! Deleting versions and packages that nothing uses.

use std::collections::BTreeSet;

use oprc_cp_storage::{Check, Transaction};
use oprc_models::Version;

use super::{Registry, check_tag, etag, missing_head, parse_version};
use crate::{
    error::Error,
    rollout::DeploymentRecord,
    state::{
        Attempt, Cache,
        packages::Package,
        schema::{deployment_key, encode, package_key, version_key},
    },
};

/// Versions deleted in one transaction, which also writes the head.
const MAX_BATCH: usize = 90;
/// Users named in an error.
const MAX_BLOCKERS: usize = 20;

impl Registry {
    /// Deletes a version that nothing uses. `expected` is the ETag that it must have, if given.
    pub async fn delete_version(
        &self,
        name: &str,
        version: &str,
        expected: Option<&str>,
    ) -> Result<(), Error> {
        let build = || async move {
            let package = self.known(name)?;
            let found = self.version(name, version)?;
            check_tag(expected, etag(&found))?;
            let versions = BTreeSet::from([parse_version(version)?]);
            Ok(Attempt::Commit(self.deletion(name, &package, &versions).await?, ()))
        };
        self.cache.commit_with_retry(build).await?;
        tracing::info!(package = name, version, "deleted a version");
        Ok(())
    }

    /// Deletes all versions of a package that nothing uses, a batch of [`MAX_BATCH`] at a time.
    /// `expected` is the ETag that it must have, if given.
    pub async fn delete_package(&self, name: &str, expected: Option<&str>) -> Result<(), Error> {
        // Versions published meanwhile stay, because the caller didn't ask to delete them.
        let all: Vec<Version> = self.known(name)?.versions.keys().cloned().collect();
        let all = &all;
        for (at, batch) in all.chunks(MAX_BATCH).enumerate() {
            let build = || async move {
                let Ok(package) = self.known(name) else { return Ok(Attempt::Done(())) };
                if at == 0 {
                    // Later batches change the ETag themselves.
                    check_tag(expected, package.etag())?;
                    self.check_unused(name, &all.iter().cloned().collect()).await?;
                }
                let exists = |version: &&Version| package.versions.contains_key(version);
                let versions: BTreeSet<_> = batch.iter().filter(exists).cloned().collect();
                if versions.is_empty() {
                    return Ok(Attempt::Done(()));
                }
                Ok(Attempt::Commit(self.deletion(name, &package, &versions).await?, ()))
            };
            self.cache.commit_with_retry(build).await?;
        }
        tracing::info!(package = name, versions = all.len(), "deleted a package");
        Ok(())
    }

    async fn deletion(
        &self,
        name: &str,
        package: &Package,
        versions: &BTreeSet<Version>,
    ) -> Result<Transaction, Error> {
        // The head was read before users are looked for: a transaction that begins to
        // use one of the versions afterwards rewrites it.
        let (at, mut head) = package.head.clone().ok_or_else(|| missing_head(name))?;
        self.check_unused(name, versions).await?;
        let key = package_key(name);
        let mut transaction = Transaction::new().check(key.clone(), Check::Version(at));
        for version in versions {
            head.versions.remove(&version.to_string());
            transaction = transaction.delete(version_key(name, &version.to_string()));
        }
        Ok(if head.versions.is_empty() {
            transaction.delete(key)
        } else {
            transaction.put(key, encode(&head)?)
        })
    }

    async fn check_unused(&self, name: &str, versions: &BTreeSet<Version>) -> Result<(), Error> {
        let texts: BTreeSet<String> = versions.iter().map(ToString::to_string).collect();
        if users(&self.cache, name, &texts).is_empty() {
            return Ok(());
        }
        // The cache may still show deployments that are already deleted or changed.
        for stored in self.cache.deployments() {
            if used_versions(&stored.record, name, &texts).next().is_some() {
                let key = deployment_key(&stored.record.deployment.key);
                let entry = self.cache.store().get(&key).await?;
                if entry.map(|it| it.version) != Some(stored.version) {
                    let check = Check::Version(stored.version);
                    self.cache.wait_until_changed(&key, Some(check)).await;
                }
            }
        }
        let users = users(&self.cache, name, &texts);
        if users.is_empty() { Ok(()) } else { Err(in_use(name, versions, users)) }
    }
}

fn in_use(name: &str, versions: &BTreeSet<Version>, mut users: Vec<String>) -> Error {
    let more = users.len().saturating_sub(MAX_BLOCKERS);
    users.truncate(MAX_BLOCKERS);
    if more > 0 {
        users.push(format!("and {more} more"));
    }
    let what = match versions.first() {
        Some(version) if versions.len() == 1 => format!("{name} {version}"),
        _ => name.to_owned(),
    };
    let detail = format!("{what} is in use by {}", users.join(", "));
    Error::Conflict { reason: "IN_USE", detail, blockers: users }
}

/// Those of the versions that a deployment uses.
fn used_versions<'a>(
    record: &'a DeploymentRecord,
    name: &str,
    versions: &BTreeSet<String>,
) -> impl Iterator<Item = &'a str> {
    let used: BTreeSet<_> = record.used_versions().collect();
    let used =
        used.into_iter().filter(move |(of, version)| *of == name && versions.contains(*version));
    used.map(|(_, version)| version)
}

/// Everything that uses one of the versions: deployments first.
fn users(cache: &Cache, name: &str, versions: &BTreeSet<String>) -> Vec<String> {
    let mut users = Vec::new();
    for stored in cache.deployments() {
        let key = &stored.record.deployment.key;
        let used = used_versions(&stored.record, name, versions);
        users.extend(used.map(|version| format!("deployment {key} (uses {version})")));
    }
    cache.packages(|index| {
        for (other, package) in index.packages().iter().filter(|(other, _)| *other != name) {
            for (by, it) in &package.versions {
                if let Some(version) = it.resolved.get(name).filter(|it| versions.contains(*it)) {
                    users.push(format!("package {other} {by} (uses {version})"));
                }
            }
        }
    });
    users
}
