//! The registry on a store in memory.

mod choices;
mod following;
mod publishing;
mod removing;
mod searching;

use oprc_cp_storage::Store;
use oprc_models::{Document, parse};

use super::Registry;
use crate::error::Error;

async fn registry() -> Registry {
    Registry::new(Store::memory()).await.unwrap()
}

fn file(text: &str) -> Vec<Document> {
    parse(text, "test.yaml").unwrap()
}

/// A package of one class with one function, and what more there is to say.
fn package(name: &str, version: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: {version}\n\
         functions:\n  - key: greet\n    provision: {{docker: {{image: greet}}}}\n\
         classes:\n  - key: Greeter\n    functions:\n      - {{name: greet, function: greet}}\n\
         {more}\n"
    )
}

/// One that depends on others.
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
