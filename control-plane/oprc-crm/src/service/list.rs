//! Paginated listing. A page token is the last key of the previous page, so that classes created or
//! deleted in between neither repeat nor hide others.

use std::sync::Arc;

use super::{Error, Service, parse_selector};
use crate::{cache::Key, crd::Phase, reconcile::ObservedClass};

const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 1000;

/// An empty field doesn't filter.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub namespace: String,
    pub environment: String,
    pub package: String,
    pub phase: String,
    pub label_selector: String,
}

pub struct Page {
    pub classes: Vec<Arc<ObservedClass>>,
    /// The token of the next page; none on the last.
    pub next: Option<String>,
    /// Whether the cache may be out of date.
    pub stale: bool,
}

impl Service {
    pub fn list(&self, filter: &Filter, size: i32, token: &str) -> Result<Page, Error> {
        let size = match usize::try_from(size) {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) if size <= MAX_PAGE_SIZE => size,
            _ => {
                let message = format!("{size} is not between 0 and {MAX_PAGE_SIZE}");
                return Err(Error::invalid("page_size", message));
            }
        };
        self.ready()?;
        self.check_namespace(&filter.namespace)?;
        let names = Phase::ALL.map(Phase::as_str);
        if !filter.phase.is_empty() && !names.contains(&filter.phase.as_str()) {
            let message = format!("{:?} is not one of {}", filter.phase, names.join(", "));
            return Err(Error::invalid("phase", message));
        }
        let labels = parse_selector(&filter.label_selector)?;
        let after = parse_token(token)?;
        let mut classes = self.cache.classes_after(after.as_ref());
        classes.retain(|class| {
            let spec = class.spec.as_ref().ok();
            let environment =
                spec.and_then(|it| it.target_environment.as_deref()).unwrap_or_default();
            let unit = spec.and_then(|it| it.deployment_unit.as_ref());
            let package = unit.and_then(|it| it.package.as_deref()).unwrap_or_default();
            let phase = class.status.as_ref().map(|it| it.phase).unwrap_or_default();
            let fields = [
                (&filter.namespace, class.namespace.as_str()),
                (&filter.environment, environment),
                (&filter.package, package),
                (&filter.phase, phase.as_str()),
            ];
            fields.iter().all(|(wanted, value)| wanted.is_empty() || wanted == value)
                && labels.iter().all(|(key, value)| class.labels.get(key) == Some(value))
        });
        let more = classes.len() > size;
        classes.truncate(size);
        let next =
            classes.last().filter(|_| more).map(|it| format!("{}/{}", it.namespace, it.name));
        Ok(Page { classes, next, stale: self.api_health.is_stale() })
    }
}

fn parse_token(token: &str) -> Result<Option<Key>, Error> {
    if token.is_empty() {
        return Ok(None);
    }
    let (namespace, name) = token
        .split_once('/')
        .ok_or_else(|| Error::invalid("page_token", "is not a token of a previous page"))?;
    Ok(Some((namespace.to_owned(), name.to_owned())))
}
