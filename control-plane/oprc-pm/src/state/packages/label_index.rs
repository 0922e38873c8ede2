//! Package names by tag and label.

use std::collections::{BTreeMap, BTreeSet};

use oprc_rest::PackageSummary;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexKey {
    Tag(String),
    /// With this value, or with any.
    Label(String, Option<String>),
}

fn keys(about: &PackageSummary) -> impl Iterator<Item = IndexKey> {
    let tags = about.tags.iter().cloned().map(IndexKey::Tag);
    let labels = about.labels.iter().flat_map(|(key, value)| {
        [None, Some(value.clone())].map(|value| IndexKey::Label(key.clone(), value))
    });
    tags.chain(labels)
}

#[derive(Debug, Default)]
pub struct LabelIndex(BTreeMap<IndexKey, BTreeSet<String>>);

impl LabelIndex {
    pub fn insert(&mut self, about: &PackageSummary) {
        for key in keys(about) {
            self.0.entry(key).or_default().insert(about.name.clone());
        }
    }

    pub fn remove(&mut self, about: &PackageSummary) {
        for key in keys(about) {
            if let Some(names) = self.0.get_mut(&key) {
                names.remove(&about.name);
                if names.is_empty() {
                    self.0.remove(&key);
                }
            }
        }
    }

    /// The smallest set of names that contains all packages with these keys; none without keys.
    pub fn narrowest(&self, keys: impl Iterator<Item = IndexKey>) -> Option<&BTreeSet<String>> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        keys.map(|key| self.0.get(&key).unwrap_or(&NONE)).min_by_key(|names| names.len())
    }
}
