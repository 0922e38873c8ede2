//! Paged lists and searches of packages, classes and functions.

use std::ops::Bound;

use oprc_models::{LabelRequirement, parse_label_selector};
use oprc_rest::{ClassEntry, FunctionEntry, PackageSummary, Page};

use super::Registry;
use crate::{
    error::Error,
    paging::{page, page_size},
    state::packages::{Catalogue, IndexKey, Package, PackageIndex},
};

const MAX_QUERY_BYTES: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paging {
    /// The `next` of the previous page.
    pub after: Option<String>,
    pub limit: Option<usize>,
}

impl Paging {
    /// The package and the key that the page begins after.
    fn after(&self) -> Result<Option<(&str, &str)>, Error> {
        let Some(after) = &self.after else { return Ok(None) };
        let wrong = || Error::parameter("cursor", "must be the next of the previous page");
        after.split_once('/').ok_or_else(wrong).map(Some)
    }
}

/// All criteria must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Prefix of the package's name.
    pub prefix: Option<String>,
    pub package: Option<String>,
    /// A version that the package has. Classes and functions are listed for that version, which
    /// requires `package`; by default for the latest.
    pub version: Option<String>,
    pub tags: Vec<String>,
    /// With this value, or with any.
    pub labels: Vec<(String, Option<String>)>,
    /// Words in names, descriptions and tags, in any case.
    pub text: Option<String>,
}

/// Parses a label selector such as `team=geometry,tier`.
pub fn labels(selector: &str) -> Result<Vec<LabelRequirement>, Error> {
    parse_label_selector(selector)
        .map_err(|part| Error::parameter("labels", format!("{part:?} is not KEY or KEY=VALUE")))
}

impl Filter {
    fn words(&self) -> Result<Vec<String>, Error> {
        let text = self.text.as_deref().unwrap_or_default();
        if text.len() > MAX_QUERY_BYTES {
            let message = format!("must have at most {MAX_QUERY_BYTES} bytes");
            return Err(Error::parameter("q", message));
        }
        Ok(text.to_lowercase().split_whitespace().map(ToOwned::to_owned).collect())
    }

    /// Whether a package matches, except for the words.
    fn admits(&self, package: &Package) -> bool {
        let about = &package.summary;
        !package.versions.is_empty()
            && self.package.as_ref().is_none_or(|it| *it == about.name)
            && self.prefix.as_ref().is_none_or(|it| about.name.starts_with(it))
            && self
                .version
                .as_ref()
                .is_none_or(|it| about.versions.iter().any(|v| v.version == *it))
            && self.tags.iter().all(|tag| about.tags.contains(tag))
            && self.labels.iter().all(|(key, value)| {
                let found = about.labels.get(key);
                found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found))
            })
    }

    fn index_keys(&self) -> impl Iterator<Item = IndexKey> {
        let tags = self.tags.iter().cloned().map(IndexKey::Tag);
        let labels = self.labels.iter().cloned();
        tags.chain(labels.map(|(key, value)| IndexKey::Label(key, value)))
    }
}

fn holds(text: &str, words: &[String]) -> bool {
    words.iter().all(|word| text.contains(word.as_str()))
}

impl Registry {
    /// Sorted by name.
    pub fn list(&self, filter: &Filter, paging: &Paging) -> Result<Page<PackageSummary>, Error> {
        let (limit, words) = (page_size(paging.limit)?, filter.words()?);
        let start = paging.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.cache.packages(|index| {
            let found = from(index, filter, start);
            let found = found.filter(|it| filter.admits(it) && holds(&it.search_text, &words));
            page(found.map(|it| it.summary.clone()), limit, |it| it.name.clone())
        }))
    }

    /// Classes of the latest versions, sorted by package and key.
    pub fn classes(&self, filter: &Filter, paging: &Paging) -> Result<Page<ClassEntry>, Error> {
        self.entries(filter, paging, |it| &it.classes, |it| (&it.package, &it.key))
    }

    /// Functions of the latest versions, sorted by package and key.
    pub fn functions(
        &self,
        filter: &Filter,
        paging: &Paging,
    ) -> Result<Page<FunctionEntry>, Error> {
        self.entries(filter, paging, |it| &it.functions, |it| (&it.package, &it.key))
    }

    fn entries<T: Clone>(
        &self,
        filter: &Filter,
        paging: &Paging,
        of: impl Fn(&Catalogue) -> &Vec<(T, String)>,
        place: impl Fn(&T) -> (&String, &String),
    ) -> Result<Page<T>, Error> {
        let (limit, words, after) = (page_size(paging.limit)?, filter.words()?, paging.after()?);
        let matches = |(item, text): &&(T, String)| {
            let (package, key) = place(item);
            after.is_none_or(|after| (package.as_str(), key.as_str()) > after)
                && holds(text, &words)
        };
        let cursor = |item: &T| {
            let (package, key) = place(item);
            format!("{package}/{key}")
        };
        if let Some(version) = &filter.version {
            let required = || Error::parameter("version", "requires package");
            let name = filter.package.as_deref().ok_or_else(required)?;
            let version = self.version(name, version)?;
            let catalogue = Catalogue::of(&version, &*self.resolve(&version)?);
            let admitted = filter.admits(&*self.known(name)?);
            let found = of(&catalogue).iter().filter(|_| admitted).filter(matches);
            return Ok(page(found.map(|(item, _)| item.clone()), limit, cursor));
        }
        let start = after.map_or(Bound::Unbounded, |(package, _)| Bound::Included(package));
        Ok(self.cache.packages(|index| {
            let found = from(index, filter, start).filter(|it| filter.admits(it));
            let found = found.flat_map(|it| of(&it.catalogue)).filter(matches);
            page(found.map(|(item, _)| item.clone()), limit, cursor)
        }))
    }
}

/// Packages from a name on that have the prefix of the filter, narrowed by its tags and labels.
fn from<'a>(
    index: &'a PackageIndex,
    filter: &'a Filter,
    start: Bound<&'a str>,
) -> Box<dyn Iterator<Item = &'a Package> + 'a> {
    let prefix = filter.package.as_deref().or(filter.prefix.as_deref()).unwrap_or_default();
    let before = match start {
        Bound::Included(start) | Bound::Excluded(start) => start < prefix,
        Bound::Unbounded => true,
    };
    let start = if before { Bound::Included(prefix) } else { start };
    let (range, packages) = ((start, Bound::Unbounded), index.packages());
    let matches = move |name: &String| name.starts_with(prefix);
    if let Some(names) = index.labels().narrowest(filter.index_keys()) {
        let names = names.range::<str, _>(range).take_while(move |name| matches(name));
        Box::new(names.filter_map(|name| packages.get(name).map(AsRef::as_ref)))
    } else {
        let found = packages.range::<str, _>(range).take_while(move |(name, _)| matches(name));
        Box::new(found.map(|(_, it)| it.as_ref()))
    }
}
