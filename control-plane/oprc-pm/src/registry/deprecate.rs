//! Versions that shouldn't be used any more, and still are there for who uses them.

use oprc_cp_storage::{Check, Transaction};
use oprc_rest::PackageVersion;

use super::{ATTEMPTS, Registry, race, tag};
use crate::{error::Error, records};

/// How many bytes a reason may have.
const MOST_BYTES: usize = 1024;

impl Registry {
    /// Deprecates a version, or takes that back where there is no reason given. `expected` is the
    /// tag that it must have, where that matters.
    pub async fn deprecate(
        &self,
        name: &str,
        version: &str,
        reason: Option<&str>,
        expected: Option<&str>,
    ) -> Result<PackageVersion, Error> {
        let reason = reason.map(str::trim);
        if reason.is_some_and(|it| it.is_empty() || it.len() > MOST_BYTES) {
            let message = format!("must be given, with {MOST_BYTES} bytes at most");
            return Err(Error::Parameter { field: "reason", message });
        }
        for _ in 0..ATTEMPTS {
            let package = self.known(name)?;
            let found = self.version(name, version)?;
            if expected.is_some_and(|it| it != tag(&found)) {
                return Err(Error::Changed(tag(&found)));
            }
            if found.deprecated.as_deref() == reason {
                return Ok(PackageVersion::clone(&found));
            }
            let Some((at, mut head)) = package.head.clone() else { return Err(race(name)) };
            let changed = PackageVersion {
                deprecated: reason.map(ToOwned::to_owned),
                ..PackageVersion::clone(&found)
            };
            let written = changed.package.version.to_string();
            head.versions.insert(written.clone(), changed.deprecated.clone());
            let key = records::package(name);
            let transaction = Transaction::new()
                .check(key.clone(), Check::Version(at))
                .put(key, records::write(&head)?)
                .put(records::version(name, &written), records::write(&changed)?);
            if self.commit(transaction).await? {
                tracing::info!(package = name, version, reason, "Deprecation changed");
                return Ok(changed);
            }
        }
        Err(race(name))
    }
}
