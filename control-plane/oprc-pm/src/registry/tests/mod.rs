//! The registry on an in-memory store.

mod following;
mod publishing;
mod removing;
mod searching;
mod solver;

use std::sync::Arc;

use oprc_cp_storage::Store;
use oprc_models::{Document, parse};

use super::Registry;
use crate::{error::Error, state::Cache};

impl Registry {
    /// Number of packages and of versions.
    pub(crate) fn count(&self) -> (usize, usize) {
        self.cache.packages(|index| {
            let versions = index.packages().values().map(|it| it.versions.len()).sum();
            (index.packages().len(), versions)
        })
    }
}

async fn registry() -> Registry {
    registry_of(Store::memory()).await.unwrap()
}

/// A registry whose cache follows the store for as long as the test runs.
async fn registry_of(store: Store) -> Result<Registry, Error> {
    let cache = Arc::new(Cache::load(store).await?);
    let following = Arc::clone(&cache);
    tokio::spawn(async move { following.follow().await });
    Ok(Registry::new(cache))
}

fn file(text: &str) -> Vec<Document> {
    parse(text, "test.yaml").unwrap()
}

/// A package of one class with one function, and further fields.
fn package(name: &str, version: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: {version}\n\
         functions:\n  - key: greet\n    provision: {{docker: {{image: greet}}}}\n\
         classes:\n  - key: Greeter\n    functions:\n      - {{name: greet, function: greet}}\n\
         {more}\n"
    )
}

fn depending(name: &str, version: &str, on: &[(&str, &str)]) -> String {
    let on: Vec<String> =
        on.iter().map(|(name, range)| format!("{{name: {name}, version: {range:?}}}")).collect();
    package(name, version, &format!("dependencies: [{}]", on.join(", ")))
}

async fn publish(registry: &Registry, text: &str) -> Result<bool, Error> {
    let published = registry.publish(&file(text), Some("ann")).await?;
    Ok(published.iter().any(|it| !it.unchanged))
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::Invalid(_) => "INVALID",
        Error::NotFound { .. } => "NOT_FOUND",
        Error::Conflict { reason, .. } => reason,
        Error::Changed(_) => "CHANGED",
        Error::Parameter { field, .. } => field,
        Error::Unavailable(_) => "UNAVAILABLE",
        Error::Internal(_) => "INTERNAL",
    }
}
