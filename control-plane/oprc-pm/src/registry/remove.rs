//! Deleting versions and packages that nothing uses.

use std::collections::BTreeSet;

use oprc_cp_storage::{Check, Transaction};
use oprc_models::Version;

use super::{Registry, check_tag, etag, missing_head, parse_version};
use crate::{
    error::Error,
    state::{
        Attempt, Cache,
        packages::Package,
        schema::{encode, package_key, version_key},
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
            Ok(Attempt::Commit(self.deletion(name, &package, &versions)?, ()))
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
                    check_unused(&self.cache, name, &all.iter().cloned().collect())?;
                }
                let exists = |version: &&Version| package.versions.contains_key(version);
                let versions: BTreeSet<_> = batch.iter().filter(exists).cloned().collect();
                if versions.is_empty() {
                    return Ok(Attempt::Done(()));
                }
                Ok(Attempt::Commit(self.deletion(name, &package, &versions)?, ()))
            };
            self.cache.commit_with_retry(build).await?;
        }
        tracing::info!(package = name, versions = all.len(), "deleted a package");
        Ok(())
    }

    fn deletion(
        &self,
        name: &str,
        package: &Package,
        versions: &BTreeSet<Version>,
    ) -> Result<Transaction, Error> {
        // The head was read before users are looked for: a transaction that begins to
        // use one of the versions afterwards rewrites it.
        let (at, mut head) = package.head.clone().ok_or_else(|| missing_head(name))?;
        check_unused(&self.cache, name, versions)?;
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
}

fn check_unused(cache: &Cache, name: &str, versions: &BTreeSet<Version>) -> Result<(), Error> {
    let mut users = users(cache, name, versions);
    if users.is_empty() {
        return Ok(());
    }
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
    Err(Error::Conflict { reason: "IN_USE", detail, blockers: users })
}

/// Everything that uses one of the versions: deployments first.
fn users(cache: &Cache, name: &str, versions: &BTreeSet<Version>) -> Vec<String> {
    let texts: BTreeSet<String> = versions.iter().map(ToString::to_string).collect();
    let mut users = Vec::new();
    for stored in cache.deployments() {
        let key = &stored.record.deployment.key;
        let used: BTreeSet<_> = stored.record.used_versions().collect();
        let used = used.into_iter().filter(|(of, version)| *of == name && texts.contains(*version));
        users.extend(used.map(|(_, version)| format!("deployment {key} (uses {version})")));
    }
    cache.packages(|index| {
        for (other, package) in index.packages().iter().filter(|(other, _)| *other != name) {
            for (by, it) in &package.versions {
                if let Some(version) = it.resolved.get(name).filter(|it| texts.contains(*it)) {
                    users.push(format!("package {other} {by} (uses {version})"));
                }
            }
        }
    });
    users
}
