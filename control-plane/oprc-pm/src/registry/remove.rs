//! Deleting versions and packages that nothing uses.

use std::collections::BTreeSet;

use oprc_cp_storage::{Check, Transaction};
use oprc_models::Version;

use super::{
    ATTEMPTS, Registry,
    index::{Index, Package, Uses},
    parse_version, race, tag,
};
use crate::{error::Error, records};

/// How many versions go in one transaction; one operation more is the head's.
const AT_ONCE: usize = 90;
/// How many of those who stand in the way are told.
const MOST_TOLD: usize = 20;

/// Something that uses a version.
#[derive(Clone, Debug, PartialEq, Eq)]
enum User {
    Deployment { key: String, version: String },
    Package { name: String, by: Version, version: String },
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deployment { key, version } => write!(f, "deployment {key} (uses {version})"),
            Self::Package { name, by, version } => {
                write!(f, "package {name} {by} (uses {version})")
            }
        }
    }
}

impl Registry {
    /// Deletes a version that nothing uses. `expected` is the digest that it must have, where that
    /// matters.
    pub async fn delete_version(
        &self,
        name: &str,
        version: &str,
        expected: Option<&str>,
    ) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let package = self.known(name)?;
            let found = self.version(name, version)?;
            if expected.is_some_and(|it| it != tag(&found)) {
                return Err(Error::Changed(tag(&found)));
            }
            let wanted = BTreeSet::from([parse_version(version)?]);
            if self.try_delete(name, &package, &wanted).await? {
                tracing::info!(package = name, version, "Deleted");
                return Ok(());
            }
        }
        Err(race(name))
    }

    /// Deletes all versions of a package, if nothing uses any. `expected` is the tag that it must
    /// have, where that matters. A package of more than ninety versions goes in parts.
    pub async fn delete_package(&self, name: &str, expected: Option<&str>) -> Result<(), Error> {
        let all: Vec<Version> = self.known(name)?.versions.keys().cloned().collect();
        let mut begun = false;
        for _ in 0..ATTEMPTS + all.len() {
            let Ok(package) = self.known(name) else { break };
            // Others may have come before; once the deletion has begun, it is what changes the tag.
            if !begun && expected.is_some_and(|it| it != package.tag()) {
                return Err(Error::Changed(package.tag()));
            }
            // Only what was there: what is published meanwhile stays, and nobody's check of what
            // uses the package is passed by for it.
            let mut wanted: BTreeSet<Version> =
                all.iter().filter(|it| package.versions.contains_key(it)).cloned().collect();
            if !begun {
                self.refuse_while_used(name, &wanted).await?;
            }
            while wanted.len() > AT_ONCE {
                wanted.pop_last();
            }
            if wanted.is_empty() {
                break;
            }
            begun |= self.try_delete(name, &package, &wanted).await?;
        }
        let left = self.known(name).is_ok_and(|it| all.iter().any(|v| it.versions.contains_key(v)));
        if left {
            return Err(race(name));
        }
        tracing::info!(package = name, versions = all.len(), "Deleted");
        Ok(())
    }

    /// Deletes versions of a package, as it was seen, if nothing uses any of them. Gives false where
    /// others came before.
    async fn try_delete(
        &self,
        name: &str,
        package: &Package,
        wanted: &BTreeSet<Version>,
    ) -> Result<bool, Error> {
        // The head was seen first: whoever comes to use one of the versions after that has changed
        // it.
        let Some((at, mut head)) = package.head.clone() else { return Err(race(name)) };
        self.refuse_while_used(name, wanted).await?;
        let key = records::package(name);
        let mut transaction = Transaction::new().check(key.clone(), Check::Version(at));
        for version in wanted {
            head.versions.remove(&version.to_string());
            transaction = transaction.delete(records::version(name, &version.to_string()));
        }
        transaction = if head.versions.is_empty() {
            transaction.delete(key)
        } else {
            transaction.put(key, records::write(&head)?)
        };
        self.commit(transaction).await
    }

    async fn refuse_while_used(&self, name: &str, wanted: &BTreeSet<Version>) -> Result<(), Error> {
        for _ in 0..ATTEMPTS {
            let users = self.inner.followed.read(|index| users(index, name, wanted));
            // A deployment that was deleted just now may still be in the index.
            if let Some(User::Deployment { key, version }) = users.first()
                && !self.is_used_by(name, version, key).await?
            {
                self.inner.followed.changed().await;
                continue;
            }
            if users.is_empty() {
                return Ok(());
            }
            return Err(in_use(name, wanted, &users));
        }
        Err(race(name))
    }

    /// Whether a deployment uses a version, by the store itself.
    async fn is_used_by(&self, name: &str, version: &str, deployment: &str) -> Result<bool, Error> {
        let key = records::deployment(deployment);
        let Some(entry) = self.inner.store.get(&key).await? else { return Ok(false) };
        let uses = records::read::<Uses>(&key, &entry.value)?.all();
        Ok(uses.contains(&(name.to_owned(), version.to_owned())))
    }
}

/// Everything that uses one of the versions: deployments first.
fn users(index: &Index, name: &str, wanted: &BTreeSet<Version>) -> Vec<User> {
    let texts: BTreeSet<String> = wanted.iter().map(ToString::to_string).collect();
    let mut users: Vec<User> = Vec::new();
    for (key, uses) in index.uses() {
        let uses =
            uses.iter().filter(|(package, version)| package == name && texts.contains(version));
        users.extend(
            uses.map(|(_, version)| User::Deployment {
                key: key.clone(),
                version: version.clone(),
            }),
        );
    }
    for (other, package) in index.packages().iter().filter(|(other, _)| *other != name) {
        for (by, it) in &package.versions {
            if let Some(version) = it.resolved.get(name).filter(|it| texts.contains(*it)) {
                let (name, version) = (other.clone(), version.clone());
                users.push(User::Package { name, by: by.clone(), version });
            }
        }
    }
    users
}

fn in_use(name: &str, wanted: &BTreeSet<Version>, users: &[User]) -> Error {
    let mut blockers: Vec<String> = users.iter().take(MOST_TOLD).map(ToString::to_string).collect();
    if users.len() > MOST_TOLD {
        blockers.push(format!("and {} more", users.len() - MOST_TOLD));
    }
    let what = match wanted.first() {
        Some(version) if wanted.len() == 1 => format!("{name} {version}"),
        _ => name.to_owned(),
    };
    Error::Conflict {
        reason: "IN_USE",
        detail: format!("{what} is in use by {}", blockers.join(", ")),
        blockers,
    }
}
