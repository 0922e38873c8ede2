//! Lists classes, page by page. A page's token is the last key of the page before, so that what
//! comes or goes in between neither repeats nor hides others.

use std::sync::Arc;

use super::{Error, Service, parse_selector};
use crate::{cluster::Key, crd::Phase, reconcile::ObservedClass};

const PAGE: usize = 100;
const MOST: usize = 1000;

/// Which classes are asked for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this namespace.
    pub namespace: String,
    /// Of this environment.
    pub environment: String,
    /// Of this package.
    pub package: String,
    /// In this phase.
    pub phase: String,
    /// With these labels.
    pub label_selector: String,
}

/// A page of classes.
pub struct Page {
    /// The classes.
    pub classes: Vec<Arc<ObservedClass>>,
    /// What the next page is asked for with; none on the last.
    pub next: Option<String>,
    /// Whether it may be out of date.
    pub stale: bool,
}

impl Service {
    /// One page of classes.
    pub fn list(&self, filter: &Filter, size: i32, token: &str) -> Result<Page, Error> {
        let size = match usize::try_from(size) {
            Ok(0) => PAGE,
            Ok(size) if size <= MOST => size,
            _ => return Err(Error::invalid("page_size", format!("{size} isn't from 0 to {MOST}"))),
        };
        self.ready()?;
        self.check_namespace(&filter.namespace)?;
        let phase = if filter.phase.is_empty() {
            None
        } else {
            let named = Phase::ALL.into_iter().find(|it| it.as_str() == filter.phase);
            let names: Vec<_> = Phase::ALL.iter().map(|it| it.as_str()).collect();
            Some(named.ok_or_else(|| {
                let message = format!("{:?} is none of {}", filter.phase, names.join(", "));
                Error::invalid("phase", message)
            })?)
        };
        let labels = parse_selector(&filter.label_selector)?;
        let after = parse_token(token)?;
        let mut classes = self.cache.classes_after(after.as_ref());
        classes.retain(|class| {
            let spec = class.spec.as_ref().ok();
            let environment =
                spec.and_then(|it| it.target_environment.as_deref()).unwrap_or_default();
            let unit = spec.and_then(|it| it.deployment_unit.as_ref());
            let package = unit.and_then(|it| it.package.as_deref()).unwrap_or_default();
            let is = class.status.as_ref().map(|it| it.phase).unwrap_or_default();
            (filter.namespace.is_empty() || filter.namespace == class.namespace)
                && (filter.environment.is_empty() || filter.environment == environment)
                && (filter.package.is_empty() || filter.package == package)
                && phase.is_none_or(|phase| phase == is)
                && labels.iter().all(|(key, value)| class.labels.get(key) == Some(value))
        });
        let more = classes.len() > size;
        classes.truncate(size);
        let next =
            classes.last().filter(|_| more).map(|it| format!("{}/{}", it.namespace, it.name));
        Ok(Page { classes, next, stale: self.contact.is_lost() })
    }
}

fn parse_token(token: &str) -> Result<Option<Key>, Error> {
    if token.is_empty() {
        return Ok(None);
    }
    let (namespace, name) = token
        .split_once('/')
        .ok_or_else(|| Error::invalid("page_token", "isn't one that a page has given"))?;
    Ok(Some((namespace.to_owned(), name.to_owned())))
}
