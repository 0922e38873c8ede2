//! What publishing a file would write. Pure.

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

use super::solver::{Candidates, Solution, solve};
use crate::{
    error::Error,
    state::{
        Attempt,
        packages::Package,
        schema::{PackageHead, encode, package_key, version_key},
    },
};

const MAX_VERSIONS: usize = 1000;

/// Published packages that the file may refer to.
pub(super) type Known = BTreeMap<String, Arc<Package>>;

#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) published: Vec<Published>,
    /// Versions to be stored.
    pub(super) versions: Vec<PackageVersion>,
    /// The same, resolved.
    pub(super) resolved: Vec<Arc<ResolvedPackage>>,
    /// The heads of these packages and of their dependencies, with the revision that each must have
    /// in the store.
    heads: BTreeMap<String, (Option<Revision>, PackageHead)>,
}

impl Prepared {
    /// Stores what isn't published yet.
    pub(super) fn attempt(&self) -> Result<Attempt<Vec<Published>>, Error> {
        if self.versions.is_empty() {
            return Ok(Attempt::Done(self.published.clone()));
        }
        if self.versions.len() + self.heads.len() > MAX_OPERATIONS {
            let message = format!(
                "{} packages that depend on {} others exceed one transaction: publish them in parts",
                self.versions.len(),
                self.heads.len().saturating_sub(self.versions.len())
            );
            return Err(Error::parameter("body", message));
        }
        let mut transaction = Transaction::new();
        for (name, (revision, head)) in &self.heads {
            let check = revision.map_or(Check::Absent, Check::Version);
            let key = package_key(name);
            transaction = transaction.check(key.clone(), check).put(key, encode(head)?);
        }
        for it in &self.versions {
            let key = version_key(&it.package.name, &it.package.version.to_string());
            transaction = transaction.check(key.clone(), Check::Absent).put(key, encode(it)?);
        }
        Ok(Attempt::Commit(transaction, self.published.clone()))
    }

    fn head(&mut self, known: &Known, name: &str) -> &mut PackageHead {
        let (_, head) = self.heads.entry(name.to_owned()).or_insert_with(|| {
            let head = known.get(name).and_then(|it| it.head.clone());
            head.map_or_else(Default::default, |(revision, head)| (Some(revision), head))
        });
        head
    }
}

pub(super) fn packages(
    documents: &[Document],
) -> impl Iterator<Item = (&Document, &OPackage)> + Clone {
    documents.iter().filter_map(|document| match &document.body {
        Body::Package(package) => Some((document, package.as_ref())),
        Body::Deployment(_) => None,
    })
}

/// Checks the packages of a file against each other and against published ones.
pub(super) fn prepare(
    known: &Known,
    documents: &[Document],
    by: Option<&str>,
    now: &str,
) -> Result<Prepared, Error> {
    let candidates = candidates(known, documents);
    let mut prepared = Prepared::default();
    let mut diagnostics = Diagnostics::default();
    let mut seen = BTreeSet::new();
    for (document, package) in packages(documents) {
        let version = package.version.to_string();
        if !seen.insert((&package.name, &package.version)) {
            let message = format!("{} {version} is defined twice", package.name);
            diagnostics.append(document.locate(diagnostic("version", message)));
            continue;
        }
        // It does not depend on the formatting of the file.
        let digest = hex::encode(Sha256::digest(encode(package)?));
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
            diagnostics.append(more);
            continue;
        }
        check_neighbours(known, documents, document, package, &mut diagnostics)?;
        match resolve_package(package, &candidates) {
            Ok((solution, resolved)) => {
                prepared.add(known, package, &solution, (digest, by, now))?;
                prepared.resolved.push(Arc::new(resolved));
            }
            Err(more) => diagnostics.append(document.locate(more)),
        }
    }
    if diagnostics.all.is_empty() { Ok(prepared) } else { Err(diagnostics.into()) }
}

impl Prepared {
    fn add(
        &mut self,
        known: &Known,
        package: &OPackage,
        solution: &Solution<'_>,
        (digest, by, now): (String, Option<&str>, &str),
    ) -> Result<(), Error> {
        let head = self.head(known, &package.name);
        head.versions.insert(package.version.to_string(), None);
        if head.versions.len() > MAX_VERSIONS {
            let name = &package.name;
            let detail = format!("{name} has the maximum of {MAX_VERSIONS} versions: delete some");
            return Err(Error::conflict("TOO_MANY_VERSIONS", detail, &[]));
        }
        for name in solution.keys() {
            // Rewritten unchanged, so that a concurrent deletion of the dependency conflicts.
            self.head(known, name);
        }
        let resolved =
            solution.iter().map(|(name, it)| ((*name).to_owned(), it.version.to_string()));
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

/// Newest first, deprecated last.
fn candidates<'a>(known: &'a Known, documents: &'a [Document]) -> Candidates<'a> {
    let mut all: BTreeMap<&str, BTreeMap<(bool, &Version), &OPackage>> = BTreeMap::new();
    for (name, package) in known {
        let versions = package.versions.values();
        let versions =
            versions.map(|it| ((it.deprecated.is_none(), &it.package.version), &it.package));
        all.entry(name).or_default().extend(versions);
    }
    for (_, package) in packages(documents) {
        let versions = all.entry(&package.name).or_default();
        // A version that is published and deprecated stays so.
        if !versions.contains_key(&(false, &package.version)) {
            versions.insert((true, &package.version), package);
        }
    }
    all.into_iter().map(|(name, it)| (name, it.into_values().rev().collect())).collect()
}

struct Dependencies<'a>(&'a Solution<'a>);

impl Lookup for Dependencies<'_> {
    fn package(&self, name: &str) -> Option<&OPackage> {
        self.0.get(name).copied()
    }
}

fn resolve_package<'a>(
    package: &'a OPackage,
    candidates: &'a Candidates<'a>,
) -> Result<(Solution<'a>, ResolvedPackage), Diagnostics> {
    let solution = solve(package, candidates).map_err(|it| {
        diagnostic(&format!("dependencies[{}].{}", it.dependency, it.field), it.message)
    })?;
    let resolved = resolve(package, &Dependencies(&solution))?;
    Ok((solution, resolved))
}

/// Checks compatibility with the version before it and the one after.
fn check_neighbours(
    known: &Known,
    documents: &[Document],
    document: &Document,
    package: &OPackage,
    diagnostics: &mut Diagnostics,
) -> Result<(), Error> {
    let there = known.get(&package.name).into_iter().flat_map(|it| it.versions.values());
    let others = there.map(|it| &it.package).chain(packages(documents).map(|(_, it)| it));
    let others = || others.clone().filter(|it| it.name == package.name);
    let before = others().filter(|it| it.version < package.version).max_by_key(|it| &it.version);
    if let Some(Err(more)) = before.map(|before| check_update(before, package)) {
        diagnostics.append(document.locate(more));
    }
    let after = others().filter(|it| it.version > package.version).min_by_key(|it| &it.version);
    match after.map(|after| (after, check_update(package, after))) {
        Some((after, Err(diagnostics))) => Err(Error::Conflict {
            reason: "LATER_VERSION",
            detail: format!(
                "{} cannot precede the published {}: {diagnostics}",
                package.version, after.version
            ),
            blockers: vec![format!("{} {}", after.name, after.version)],
        }),
        _ => Ok(()),
    }
}

fn exists(package: &OPackage, there: &PackageVersion) -> Error {
    let detail = format!(
        "{} {} was published at {} with other content, and versions are immutable: publish it \
         under a new version",
        package.name, package.version, there.published_at
    );
    Error::conflict("VERSION_EXISTS", detail, &[])
}

fn diagnostic(path: &str, message: String) -> Diagnostics {
    let diagnostic = Diagnostic { path: path.to_owned(), location: None, message, hint: None };
    Diagnostics { all: vec![diagnostic], omitted: 0 }
}
