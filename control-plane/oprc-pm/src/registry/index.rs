//! All packages as they are in the store, in memory. Pure: it is told what has changed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use oprc_cp_storage::{Change, Revision};
use oprc_models::{Lookup, OPackage, Version, VersionRange};
use oprc_rest::{PackageSummary, PackageVersion, VersionSummary};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{catalogue::Catalogue, marks::Marks};
use crate::records::{self, PackageHead};

/// What keys begin with that the index is about, in the order in which they must be read: users of
/// versions after the heads that they have written.
pub(super) const PREFIXES: [&str; 3] = ["package/", "version/", "deployment/"];

/// Of two versions that will do, the one with the higher rank is taken: one that isn't deprecated,
/// a release where no range is said, the newer one.
pub(super) fn rank(version: &Version, deprecated: bool, ranged: bool) -> (bool, bool, &Version) {
    (!deprecated, ranged || version.0.pre.is_empty(), version)
}

/// A package in all of its versions.
#[derive(Clone, Debug, Default)]
pub(super) struct Package {
    /// What is in the store, and since which revision.
    pub(super) head: Option<(Revision, PackageHead)>,
    pub(super) versions: BTreeMap<Version, Arc<PackageVersion>>,
    /// The rest follows from the versions.
    pub(super) summary: PackageSummary,
    /// What searches look at, in small letters.
    pub(super) text: String,
    pub(super) catalogue: Arc<Catalogue>,
}

impl Package {
    /// The newest release that isn't deprecated, or what comes nearest to that.
    pub(super) fn latest(&self) -> Option<&Arc<PackageVersion>> {
        self.versions
            .values()
            .max_by_key(|it| rank(&it.package.version, it.deprecated.is_some(), false))
    }

    /// Those that will do: newest first, deprecated ones last.
    pub(super) fn matching(
        &self,
        range: &VersionRange,
    ) -> impl Iterator<Item = &Arc<PackageVersion>> {
        let wanted = self.versions.iter().rev().filter(|(version, _)| range.matches(version));
        let (good, deprecated): (Vec<_>, Vec<_>) =
            wanted.map(|(_, it)| it).partition(|it| it.deprecated.is_none());
        good.into_iter().chain(deprecated)
    }

    /// A tag of what people see of it.
    pub(super) fn tag(&self) -> String {
        let mut hash = Sha256::new();
        for (version, it) in &self.versions {
            hash.update(format!("{version}\n{}\n{:?}\n", it.digest, it.deprecated));
        }
        hex::encode(hash.finalize())
    }

    fn settle(&mut self, name: &str, catalogue: Catalogue) {
        let Some(latest) = self.latest().cloned() else { return };
        let about = latest.package.metadata.clone().unwrap_or_default();
        let versions = self.versions.iter().rev().map(|(version, it)| VersionSummary {
            version: version.to_string(),
            published_at: it.published_at.clone(),
            deprecated: it.deprecated.clone(),
        });
        let classes: Vec<String> =
            latest.package.classes.iter().map(|class| class.key.clone()).collect();
        let words = [name, about.author.as_deref().unwrap_or_default()];
        let words = words.into_iter().chain(about.description.as_deref());
        let words = words.chain(about.tags.iter().chain(&classes).map(String::as_str));
        self.text = words.collect::<Vec<_>>().join("\n").to_lowercase();
        self.summary = PackageSummary {
            name: name.to_owned(),
            latest: latest.package.version.to_string(),
            versions: versions.collect(),
            description: about.description,
            tags: about.tags,
            labels: about.labels,
            classes,
        };
        self.catalogue = Arc::new(catalogue);
    }
}

/// The versions of other packages that one was settled with.
#[derive(Debug, Default)]
pub(super) struct Settled(pub(super) BTreeMap<String, Arc<PackageVersion>>);

impl Lookup for Settled {
    fn package(&self, name: &str) -> Option<&OPackage> {
        Some(&self.0.get(name)?.package)
    }
}

/// All packages, and what deployments use of them.
#[derive(Debug, Default)]
pub(super) struct Index {
    packages: BTreeMap<String, Arc<Package>>,
    marks: Marks,
    /// By deployment: packages and versions.
    uses: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Index {
    pub(super) fn packages(&self) -> &BTreeMap<String, Arc<Package>> {
        &self.packages
    }

    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    pub(super) fn package(&self, name: &str) -> Option<Arc<Package>> {
        self.packages.get(name).filter(|it| !it.versions.is_empty()).cloned()
    }

    pub(super) fn uses(&self) -> &BTreeMap<String, BTreeSet<(String, String)>> {
        &self.uses
    }

    /// The packages of these names, and all that any of their versions may depend on.
    pub(super) fn reach<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<String, Arc<Package>> {
        let mut found = BTreeMap::new();
        let mut ahead: VecDeque<&str> = names
            .into_iter()
            .filter_map(|name| Some(self.packages.get_key_value(name)?.0.as_str()))
            .collect();
        while let Some(name) = ahead.pop_front() {
            let Some(package) = self.packages.get(name) else { continue };
            if found.insert(name.to_owned(), package.clone()).is_none() {
                let of = package.versions.values().flat_map(|it| &it.package.dependencies);
                ahead.extend(of.map(|it| it.name.as_str()));
            }
        }
        found
    }

    /// What a version was settled with.
    pub(super) fn others(&self, version: &PackageVersion) -> Settled {
        others(version, |name| self.packages.get(name))
    }

    /// Takes in what has changed.
    pub(super) fn apply<'a>(&mut self, changes: impl IntoIterator<Item = (Revision, &'a Change)>) {
        let staged = self.stage(changes);
        self.take(staged);
    }

    /// What changes come to. All that takes a while is done here, where nobody waits who reads.
    pub(super) fn stage<'a>(
        &self,
        changes: impl IntoIterator<Item = (Revision, &'a Change)>,
    ) -> Staged {
        let mut staged = Staged::default();
        for (revision, change) in changes {
            let (key, value) = (change.key(), change.value().map(AsRef::as_ref));
            if let Some(name) = key.strip_prefix("package/") {
                let read = value.and_then(|value| readable(key, value));
                staged.package(self, name).head = read.map(|head| (revision, head));
            } else if let Some((name, version)) =
                key.strip_prefix("version/").and_then(|rest| rest.rsplit_once('/'))
            {
                staged.version(self, key, (name, version), value);
            } else if let Some(deployment) = key.strip_prefix("deployment/") {
                let uses = value.and_then(|value| readable::<Uses>(key, value)).map(Uses::all);
                staged.uses.insert(deployment.to_owned(), uses);
            }
        }
        // All of them are there now: what is published together may depend on each other.
        let names: Vec<String> = staged.packages.keys().cloned().collect();
        for name in names {
            staged.settle(self, &name);
        }
        staged
    }

    /// Puts in its place what was staged since nothing else was.
    pub(super) fn take(&mut self, staged: Staged) {
        for (name, package) in staged.packages {
            if let Some(before) = self.packages.get(&name) {
                self.marks.remove(&before.summary);
            }
            self.marks.add(&package.summary);
            if package.head.is_none() && package.versions.is_empty() {
                self.packages.remove(&name);
            } else {
                self.packages.insert(name, package);
            }
        }
        for (deployment, uses) in staged.uses {
            match uses {
                Some(uses) => self.uses.insert(deployment, uses),
                None => self.uses.remove(&deployment),
            };
        }
    }
}

/// What a version was settled with, of the packages that are found.
fn others<'a>(
    version: &PackageVersion,
    find: impl Fn(&str) -> Option<&'a Arc<Package>>,
) -> Settled {
    let found = version.resolved.iter().filter_map(|(name, version)| {
        Some((name.clone(), find(name)?.versions.get(&version.parse().ok()?)?.clone()))
    });
    Settled(found.collect())
}

/// What changes come to, until the index has it.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Those that have changed, as they will be.
    packages: BTreeMap<String, Arc<Package>>,
    /// By deployment; none where it is gone.
    uses: BTreeMap<String, Option<BTreeSet<(String, String)>>>,
}

impl Staged {
    fn package(&mut self, index: &Index, name: &str) -> &mut Package {
        let known = || index.packages.get(name).cloned().unwrap_or_default();
        Arc::make_mut(self.packages.entry(name.to_owned()).or_insert_with(known))
    }

    fn version(
        &mut self,
        index: &Index,
        key: &str,
        (name, version): (&str, &str),
        value: Option<&[u8]>,
    ) {
        let Ok(version) = version.parse::<Version>() else {
            return tracing::error!(key, "no version");
        };
        let package = self.package(index, name);
        match value.and_then(|value| readable::<PackageVersion>(key, value)) {
            Some(read) => package.versions.insert(version, Arc::new(read)),
            None => package.versions.remove(&version),
        };
        // What follows from the versions doesn't hold any more.
        package.summary = PackageSummary::default();
    }

    fn settle(&mut self, index: &Index, name: &str) {
        let Some(package) = self.packages.get(name) else { return };
        // A head that was written as it is changes nothing that people see.
        if !package.summary.name.is_empty() {
            return;
        }
        let Some(latest) = package.latest().cloned() else { return };
        let others =
            others(&latest, |name| self.packages.get(name).or_else(|| index.packages.get(name)));
        let catalogue = Catalogue::new(&latest, &others).unwrap_or_else(|faults| {
            tracing::error!(package = name, %faults, "What is published can't be settled");
            Catalogue::default()
        });
        self.package(index, name).settle(name, catalogue);
    }
}

/// What of a deployment's record tells which versions it uses.
#[derive(Deserialize)]
pub(super) struct Uses {
    plan: Use,
    former: Option<Former>,
}

#[derive(Deserialize)]
struct Former {
    plan: Use,
}

#[derive(Deserialize)]
struct Use {
    package: String,
    version: String,
}

impl Uses {
    pub(super) fn all(self) -> BTreeSet<(String, String)> {
        let all = [Some(self.plan), self.former.map(|it| it.plan)];
        all.into_iter().flatten().map(|it| (it.package, it.version)).collect()
    }
}

/// What can't be read is as if it weren't there: the rest is served all the same.
fn readable<T: serde::de::DeserializeOwned>(key: &str, value: &[u8]) -> Option<T> {
    records::read(key, value)
        .inspect_err(|error| tracing::error!(%error, "Part of the store is left out"))
        .ok()
}
