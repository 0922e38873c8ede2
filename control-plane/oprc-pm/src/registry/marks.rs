//! Packages by what is said of them: so that who asks for a few doesn't look at all.

use std::collections::{BTreeMap, BTreeSet};

use oprc_rest::PackageSummary;

/// What packages are found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Tag(String),
    /// With this value, or with any.
    Label(String, Option<String>),
}

fn of(about: &PackageSummary) -> impl Iterator<Item = Mark> {
    let tags = about.tags.iter().cloned().map(Mark::Tag);
    let labels = about.labels.iter().flat_map(|(key, value)| {
        [None, Some(value.clone())].map(|value| Mark::Label(key.clone(), value))
    });
    tags.chain(labels)
}

/// The names of packages by mark.
#[derive(Debug, Default)]
pub(super) struct Marks(BTreeMap<Mark, BTreeSet<String>>);

impl Marks {
    pub(super) fn add(&mut self, about: &PackageSummary) {
        for mark in of(about) {
            self.0.entry(mark).or_default().insert(about.name.clone());
        }
    }

    pub(super) fn remove(&mut self, about: &PackageSummary) {
        for mark in of(about) {
            if let Some(names) = self.0.get_mut(&mark) {
                names.remove(&about.name);
                if names.is_empty() {
                    self.0.remove(&mark);
                }
            }
        }
    }

    /// The fewest packages that hold all those with these marks; none where no mark is given.
    pub(super) fn narrowest(&self, marks: impl Iterator<Item = Mark>) -> Option<&BTreeSet<String>> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        marks.map(|mark| self.0.get(&mark).unwrap_or(&NONE)).min_by_key(|names| names.len())
    }
}
