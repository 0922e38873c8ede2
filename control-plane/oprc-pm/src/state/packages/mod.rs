//! Index of all packages: stored records, and what is derived from them for lists and searches.

mod catalogue;
mod label_index;

use std::{collections::BTreeMap, sync::Arc};

use oprc_cp_storage::{Change, Revision};
use oprc_models::{Lookup, OPackage, Version, VersionRange};
use oprc_rest::{PackageSummary, PackageVersion, VersionSummary};
use sha2::{Digest as _, Sha256};

use super::schema::{PackageHead, decode_or_skip};

pub use self::{
    catalogue::Catalogue,
    label_index::{IndexKey, LabelIndex},
};

/// Orders versions by preference: not deprecated, a release if no range was given, the newest.
pub fn rank(version: &Version, deprecated: bool, ranged: bool) -> (bool, bool, &Version) {
    (!deprecated, ranged || version.0.pre.is_empty(), version)
}

/// A package with all of its versions.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// The stored head and the store revision that it was written at.
    pub head: Option<(Revision, PackageHead)>,
    pub versions: BTreeMap<Version, Arc<PackageVersion>>,
    /// The fields below are derived from the versions.
    pub summary: PackageSummary,
    /// Lower-case text that searches match.
    pub search_text: String,
    pub catalogue: Arc<Catalogue>,
}

impl Package {
    /// The newest release that isn't deprecated, or the best substitute.
    pub fn latest(&self) -> Option<&Arc<PackageVersion>> {
        self.versions
            .values()
            .max_by_key(|it| rank(&it.package.version, it.deprecated.is_some(), false))
    }

    /// Versions in a range: newest first, deprecated ones last.
    pub fn matching(&self, range: &VersionRange) -> impl Iterator<Item = &Arc<PackageVersion>> {
        let in_range = self.versions.iter().rev().filter(|(version, _)| range.matches(version));
        let (good, deprecated): (Vec<_>, Vec<_>) =
            in_range.map(|(_, it)| it).partition(|it| it.deprecated.is_none());
        good.into_iter().chain(deprecated)
    }

    pub fn etag(&self) -> String {
        let mut hash = Sha256::new();
        for (version, it) in &self.versions {
            hash.update(format!("{version}\n{}\n{:?}\n", it.digest, it.deprecated));
        }
        hex::encode(hash.finalize())
    }

    fn derive(&mut self, name: &str, latest: &PackageVersion, catalogue: Catalogue) {
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
        self.search_text = words.collect::<Vec<_>>().join("\n").to_lowercase();
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

/// The versions of other packages that a version was resolved with.
#[derive(Debug, Default)]
pub struct ResolvedDependencies(BTreeMap<String, Arc<PackageVersion>>);

impl ResolvedDependencies {
    fn new<'a>(version: &PackageVersion, find: impl Fn(&str) -> Option<&'a Arc<Package>>) -> Self {
        let found = version.resolved.iter().filter_map(|(name, version)| {
            Some((name.clone(), find(name)?.versions.get(&version.parse().ok()?)?.clone()))
        });
        Self(found.collect())
    }
}

impl Lookup for ResolvedDependencies {
    fn package(&self, name: &str) -> Option<&OPackage> {
        Some(&self.0.get(name)?.package)
    }
}

#[derive(Debug, Default)]
pub struct PackageIndex {
    packages: BTreeMap<String, Arc<Package>>,
    labels: LabelIndex,
}

impl PackageIndex {
    pub fn packages(&self) -> &BTreeMap<String, Arc<Package>> {
        &self.packages
    }

    pub fn labels(&self) -> &LabelIndex {
        &self.labels
    }

    pub fn package(&self, name: &str) -> Option<Arc<Package>> {
        self.packages.get(name).filter(|it| !it.versions.is_empty()).cloned()
    }

    /// The packages of these names, and all that any of their versions may depend on.
    pub fn with_dependencies<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<String, Arc<Package>> {
        let mut found = BTreeMap::new();
        let mut ahead: Vec<String> = names.into_iter().map(str::to_owned).collect();
        while let Some(name) = ahead.pop() {
            let Some(package) = self.packages.get(&name) else { continue };
            if found.insert(name, Arc::clone(package)).is_none() {
                let of = package.versions.values().flat_map(|it| &it.package.dependencies);
                ahead.extend(of.map(|it| it.name.clone()));
            }
        }
        found
    }

    pub fn dependencies(&self, version: &PackageVersion) -> ResolvedDependencies {
        ResolvedDependencies::new(version, |name| self.packages.get(name))
    }

    /// Computes what changes lead to. The expensive part: readers are not blocked by it.
    pub fn stage<'a>(&self, changes: impl IntoIterator<Item = (Revision, &'a Change)>) -> Staged {
        let mut staged = Staged::default();
        for (revision, change) in changes {
            let (key, value) = (change.key(), change.value().map(AsRef::as_ref));
            if let Some(name) = key.strip_prefix("package/") {
                let head = value.and_then(|value| decode_or_skip(key, value));
                staged.package(self, name).head = head.map(|head| (revision, head));
            } else if let Some((name, version)) =
                key.strip_prefix("version/").and_then(|rest| rest.rsplit_once('/'))
            {
                let Ok(version) = version.parse::<Version>() else {
                    tracing::error!(key, "skipped a stored record: its key has no valid version");
                    continue;
                };
                let package = staged.package(self, name);
                match value.and_then(|value| decode_or_skip::<PackageVersion>(key, value)) {
                    Some(read) => package.versions.insert(version, Arc::new(read)),
                    None => package.versions.remove(&version),
                };
                // Marks the derived fields as outdated.
                package.summary = PackageSummary::default();
            }
        }
        // After all of them are read: packages published together may depend on each other.
        let names: Vec<String> = staged.0.keys().cloned().collect();
        for name in names {
            staged.derive(self, &name);
        }
        staged
    }

    /// Commits staged changes; the caller guarantees that there were none in between.
    pub fn commit(&mut self, staged: Staged) {
        for (name, package) in staged.0 {
            if let Some(before) = self.packages.get(&name) {
                self.labels.remove(&before.summary);
            }
            self.labels.insert(&package.summary);
            if package.head.is_none() && package.versions.is_empty() {
                self.packages.remove(&name);
            } else {
                self.packages.insert(name, package);
            }
        }
    }
}

/// Changed packages that are not in the index yet.
#[derive(Debug, Default)]
pub struct Staged(BTreeMap<String, Arc<Package>>);

impl Staged {
    fn package(&mut self, index: &PackageIndex, name: &str) -> &mut Package {
        let existing = || index.packages.get(name).cloned().unwrap_or_default();
        Arc::make_mut(self.0.entry(name.to_owned()).or_insert_with(existing))
    }

    fn derive(&mut self, index: &PackageIndex, name: &str) {
        let Some(package) = self.0.get(name) else { return };
        // Only the head was rewritten: nothing derived changes.
        if !package.summary.name.is_empty() {
            return;
        }
        let Some(latest) = package.latest().cloned() else { return };
        let find = |name: &str| self.0.get(name).or_else(|| index.packages.get(name));
        let dependencies = ResolvedDependencies::new(&latest, find);
        let catalogue = Catalogue::new(&latest, &dependencies).unwrap_or_else(|error| {
            tracing::error!(package = name, %error, "cannot resolve a published package");
            Catalogue::default()
        });
        self.package(index, name).derive(name, &latest, catalogue);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn apply(index: &mut PackageIndex, changes: &[Change]) {
        let staged = index.stage(changes.iter().map(|change| (Revision(1), change)));
        index.commit(staged);
    }

    #[test]
    fn staging_leaves_the_index_readable_and_unchanged() {
        let package = json!({"name": "a", "version": "1.0.0", "metadata": {"tags": ["t"]},
            "classes": [{"key": "A", "functions": []}], "functions": []});
        let version = json!({"package": package, "digest": "", "published_at": "", "resolved": {}});
        let put = |key: &str, value: serde_json::Value| Change::Put {
            key: key.to_owned(),
            value: value.to_string().into(),
        };
        let changes = [
            put("package/a", json!({"versions": {"1.0.0": null}})),
            put("version/a/1.0.0", version),
        ];
        let mut index = PackageIndex::default();
        let staged = index.stage(changes.iter().map(|change| (Revision(1), change)));
        assert!(index.packages().is_empty());
        index.commit(staged);
        let found = index.package("a").unwrap();
        assert_eq!((found.summary.latest.as_str(), found.catalogue.classes.len()), ("1.0.0", 1));
        let tagged = |index: &PackageIndex| {
            let tags = [IndexKey::Tag("t".to_owned())];
            index.labels().narrowest(tags.into_iter()).unwrap().len()
        };
        assert_eq!(tagged(&index), 1);
        let deleted = changes.map(|change| Change::Delete { key: change.key().to_owned() });
        apply(&mut index, &deleted);
        assert!(index.packages().is_empty());
        assert_eq!(tagged(&index), 0);
    }
}
