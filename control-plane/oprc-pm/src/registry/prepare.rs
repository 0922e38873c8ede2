//! What publishing comes to, before anything is written. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use oprc_cp_storage::{Check, MAX_OPERATIONS, Revision, Transaction};
use oprc_models::{
    Body, Diagnostic, Diagnostics, Document, Lookup, OPackage, ResolvedPackage, Version,
    check_update, resolve,
};
use oprc_rest::{PackageVersion, Published};
use sha2::{Digest as _, Sha256};

use super::{
    choose::{Chosen, Pool, choose},
    index::Package,
};
use crate::{
    error::Error,
    records::{self, PackageHead},
};

/// How many versions a package may have.
const MOST_VERSIONS: usize = 1000;

/// What is there already, as far as it matters.
pub(super) type Known = BTreeMap<String, Arc<Package>>;

/// What publishing comes to.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) published: Vec<Published>,
    /// What is new.
    pub(super) versions: Vec<PackageVersion>,
    /// The same, settled.
    pub(super) resolved: Vec<Arc<ResolvedPackage>>,
    /// What becomes of the heads of these packages and those that they depend on, and what they
    /// must be before.
    heads: BTreeMap<String, (Option<Revision>, PackageHead)>,
}

impl Prepared {
    /// What is to be written, if anything is.
    pub(super) fn transaction(&self) -> Result<Option<Transaction>, Error> {
        if self.versions.is_empty() {
            return Ok(None);
        }
        if self.versions.len() + self.heads.len() > MAX_OPERATIONS {
            let message = format!(
                "{} packages that depend on {} others can't be published at once",
                self.versions.len(),
                self.heads.len().saturating_sub(self.versions.len())
            );
            return Err(Error::Parameter { field: "body", message });
        }
        let mut transaction = Transaction::new();
        for (name, (revision, head)) in &self.heads {
            let check = revision.map_or(Check::Absent, Check::Version);
            let key = records::package(name);
            transaction = transaction.check(key.clone(), check).put(key, records::write(head)?);
        }
        for it in &self.versions {
            let key = records::version(&it.package.name, &it.package.version.to_string());
            transaction =
                transaction.check(key.clone(), Check::Absent).put(key, records::write(it)?);
        }
        Ok(Some(transaction))
    }

    fn head(&mut self, known: &Known, name: &str) -> &mut PackageHead {
        let (_, head) = self.heads.entry(name.to_owned()).or_insert_with(|| {
            let head = known.get(name).and_then(|it| it.head.clone());
            head.map_or_else(Default::default, |(revision, head)| (Some(revision), head))
        });
        head
    }
}

/// The packages of a file.
pub(super) fn packages(
    documents: &[Document],
) -> impl Iterator<Item = (&Document, &OPackage)> + Clone {
    documents.iter().filter_map(|document| match &document.body {
        Body::Package(package) => Some((document, package.as_ref())),
        Body::Deployment(_) => None,
    })
}

/// Checks the packages of a file against each other and against what is there.
pub(super) fn prepare(
    known: &Known,
    documents: &[Document],
    by: Option<&str>,
    now: &str,
) -> Result<Prepared, Error> {
    let pool = pool(known, documents);
    let mut prepared = Prepared::default();
    let mut faults = Diagnostics::default();
    let mut seen = BTreeSet::new();
    for (document, package) in packages(documents) {
        let version = package.version.to_string();
        if !seen.insert((&package.name, &package.version)) {
            let message = format!("{} {version} stands twice in it", package.name);
            faults.append(document.locate(fault("version", message)));
            continue;
        }
        let digest = digest(package)?;
        let there = known.get(&package.name).and_then(|it| it.versions.get(&package.version));
        if let Some(there) = there.filter(|it| it.digest != digest) {
            return Err(exists(package, there));
        }
        let unchanged = there.is_some();
        prepared.published.push(Published { name: package.name.clone(), version, unchanged });
        if unchanged {
            continue;
        }
        if let Err(more) = document.check() {
            faults.append(more);
            continue;
        }
        follows(known, documents, document, package, &mut faults)?;
        match settle(package, &pool) {
            Ok((chosen, resolved)) => {
                prepared.add(known, package, &chosen, (digest, by, now))?;
                prepared.resolved.push(Arc::new(resolved));
            }
            Err(more) => faults.append(document.locate(more)),
        }
    }
    if faults.all.is_empty() { Ok(prepared) } else { Err(faults.into()) }
}

impl Prepared {
    fn add(
        &mut self,
        known: &Known,
        package: &OPackage,
        chosen: &Chosen<'_>,
        (digest, by, now): (String, Option<&str>, &str),
    ) -> Result<(), Error> {
        let head = self.head(known, &package.name);
        head.versions.insert(package.version.to_string(), None);
        if head.versions.len() > MOST_VERSIONS {
            return Err(Error::Conflict {
                reason: "TOO_MANY_VERSIONS",
                detail: format!(
                    "{} has {MOST_VERSIONS} versions, and may not have more: delete some",
                    package.name
                ),
                blockers: Vec::new(),
            });
        }
        for name in chosen.keys() {
            // Written as it is: so whoever deletes that one at the same time is told.
            self.head(known, name);
        }
        let resolved = chosen.iter().map(|(name, it)| ((*name).to_owned(), it.version.to_string()));
        self.versions.push(PackageVersion {
            package: package.clone(),
            digest,
            published_at: now.to_owned(),
            published_by: by.map(ToOwned::to_owned),
            deprecated: None,
            resolved: resolved.collect(),
        });
        Ok(())
    }
}

/// What there is to choose from: newest first, deprecated last.
fn pool<'a>(known: &'a Known, documents: &'a [Document]) -> Pool<'a> {
    let mut all: BTreeMap<&str, BTreeMap<(bool, &Version), &OPackage>> = BTreeMap::new();
    for (name, package) in known {
        let versions = package.versions.values();
        let versions =
            versions.map(|it| ((it.deprecated.is_none(), &it.package.version), &it.package));
        all.entry(name).or_default().extend(versions);
    }
    for (_, package) in packages(documents) {
        let versions = all.entry(&package.name).or_default();
        // One that is there already, and deprecated, stays so.
        if !versions.contains_key(&(false, &package.version)) {
            versions.insert((true, &package.version), package);
        }
    }
    all.into_iter().map(|(name, it)| (name, it.into_values().rev().collect())).collect()
}

struct Others<'a>(&'a Chosen<'a>);

impl Lookup for Others<'_> {
    fn package(&self, name: &str) -> Option<&OPackage> {
        self.0.get(name).copied()
    }
}

fn settle<'a>(
    package: &'a OPackage,
    pool: &'a Pool<'a>,
) -> Result<(Chosen<'a>, ResolvedPackage), Diagnostics> {
    let chosen = choose(package, pool).map_err(|trouble| {
        fault(&format!("dependencies[{}].{}", trouble.at, trouble.field), trouble.message)
    })?;
    let resolved = resolve(package, &Others(&chosen))?;
    Ok((chosen, resolved))
}

/// Whether it may stand between the version before it and the one after.
fn follows(
    known: &Known,
    documents: &[Document],
    document: &Document,
    package: &OPackage,
    faults: &mut Diagnostics,
) -> Result<(), Error> {
    let there = known.get(&package.name).into_iter().flat_map(|it| it.versions.values());
    let others = there.map(|it| &it.package).chain(packages(documents).map(|(_, it)| it));
    let others = || others.clone().filter(|it| it.name == package.name);
    let before = others().filter(|it| it.version < package.version).max_by_key(|it| &it.version);
    if let Some(Err(more)) = before.map(|before| check_update(before, package)) {
        faults.append(document.locate(more));
    }
    let after = others().filter(|it| it.version > package.version).min_by_key(|it| &it.version);
    match after.map(|after| (after, check_update(package, after))) {
        Some((after, Err(faults))) => Err(Error::Conflict {
            reason: "LATER_VERSION",
            detail: format!(
                "{} can't come before {}, which is there: {faults}",
                package.version, after.version
            ),
            blockers: vec![format!("{} {}", after.name, after.version)],
        }),
        _ => Ok(()),
    }
}

fn exists(package: &OPackage, there: &PackageVersion) -> Error {
    Error::Conflict {
        reason: "VERSION_EXISTS",
        detail: format!(
            "{} {} was published at {} with other content, and versions don't change: publish it \
             under a new version",
            package.name, package.version, there.published_at
        ),
        blockers: Vec::new(),
    }
}

/// A digest of what a package says, however it was written.
fn digest(package: &OPackage) -> Result<String, Error> {
    Ok(hex::encode(Sha256::digest(records::write(package)?)))
}

fn fault(path: &str, message: String) -> Diagnostics {
    let fault = Diagnostic { path: path.to_owned(), location: None, message, hint: None };
    Diagnostics { all: vec![fault], omitted: 0 }
}
