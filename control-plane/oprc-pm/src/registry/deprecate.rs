//! Deprecation of versions: they stay available to those who use them.

use oprc_cp_storage::{Check, Transaction};
use oprc_rest::PackageVersion;

use super::{Registry, check_tag, etag, missing_head};
use crate::{
    error::Error,
    state::{
        Attempt,
        schema::{encode, package_key, version_key},
    },
};

const MAX_REASON_BYTES: usize = 1024;

impl Registry {
    /// Deprecates a version, or lifts the deprecation if no reason is given. `expected` is the ETag
    /// that it must have, if given.
    pub async fn deprecate(
        &self,
        name: &str,
        version: &str,
        reason: Option<&str>,
        expected: Option<&str>,
    ) -> Result<PackageVersion, Error> {
        let reason = reason.map(str::trim);
        if reason.is_some_and(|it| it.is_empty() || it.len() > MAX_REASON_BYTES) {
            let message = format!("must be given, with {MAX_REASON_BYTES} bytes at most");
            return Err(Error::parameter("reason", message));
        }
        let build = || async move {
            let package = self.known(name)?;
            let found = self.version(name, version)?;
            check_tag(expected, etag(&found))?;
            if found.deprecated.as_deref() == reason {
                return Ok(Attempt::Done((PackageVersion::clone(&found), false)));
            }
            let (at, mut head) = package.head.clone().ok_or_else(|| missing_head(name))?;
            let changed = PackageVersion {
                deprecated: reason.map(ToOwned::to_owned),
                ..PackageVersion::clone(&found)
            };
            let written = changed.package.version.to_string();
            head.versions.insert(written.clone(), changed.deprecated.clone());
            let key = package_key(name);
            let transaction = Transaction::new()
                .check(key.clone(), Check::Version(at))
                .put(key, encode(&head)?)
                .put(version_key(name, &written), encode(&changed)?);
            Ok(Attempt::Commit(transaction, (changed, true)))
        };
        let (version, changed) = self.cache.commit_with_retry(build).await?;
        if changed {
            let version = version.package.version.to_string();
            tracing::info!(package = name, version, reason, "changed the deprecation of a version");
        }
        Ok(version)
    }
}
