//! References to objects of other classes, resolved on request.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{
    Error, Grid,
    class::{Access, Reference, State},
    http_client::HttpClient,
    other_grid::OtherGrid,
};

/// Objects that one read resolves, and how many of them at once.
const MAX_OBJECTS: usize = 100;
const MAX_AT_ONCE: usize = 8;
/// Of all of them.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The objects that an object refers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resolved {
    /// By key: an object or null, or a list of them.
    pub resolved: Map<String, Value>,
    /// Why objects are null.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<Unresolved>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unresolved {
    pub key: String,
    pub id: String,
    pub reason: String,
}

/// The ids of a key, and whether they are a list.
fn ids(value: Option<&Value>) -> Result<(Vec<String>, bool), &'static str> {
    let expected = "is neither an id nor a list of ids";
    match value {
        None | Some(Value::Null) => Ok((Vec::new(), false)),
        Some(Value::String(id)) => Ok((vec![id.clone()], false)),
        Some(Value::Array(all)) => {
            let ids = all.iter().map(|it| it.as_str().map(str::to_owned));
            Ok((ids.collect::<Option<_>>().ok_or(expected)?, true))
        }
        Some(_) => Err(expected),
    }
}

impl Grid {
    /// The objects that keys of a state refer to. Those that can't be read are null, with a reason.
    pub async fn resolve(
        &self,
        state: &State,
        keys: &[&str],
        caller: Access,
    ) -> Result<Resolved, Error> {
        let class = self.class();
        let mut wanted: Vec<(&str, &Reference, String)> = Vec::new();
        let mut found = Resolved::default();
        for key in keys {
            let reference = class.reference(key, caller)?;
            match ids(state.get(*key)) {
                Ok((ids, is_list)) => {
                    wanted.extend(ids.into_iter().map(|id| (*key, reference, id)));
                    let empty = if is_list { Value::Array(Vec::new()) } else { Value::Null };
                    found.resolved.insert((*key).to_owned(), empty);
                }
                Err(reason) => {
                    found.resolved.insert((*key).to_owned(), Value::Null);
                    found.add_unresolved(key, "", reason);
                }
            }
        }
        for (key, _, id) in wanted.split_off(wanted.len().min(MAX_OBJECTS)) {
            found.add_unresolved(key, &id, &format!("more than {MAX_OBJECTS} objects"));
        }
        let deadline = Instant::now() + TIMEOUT;
        // Futures that borrow from a closure's arguments aren't `Send`.
        let mut reads = Vec::with_capacity(wanted.len());
        for (_, reference, id) in &wanted {
            reads.push(read(
                self.client.clone(),
                Reference::clone(reference),
                id.clone(),
                deadline,
            ));
        }
        let read: Vec<_> = stream::iter(reads).buffered(MAX_AT_ONCE).collect().await;
        for ((key, _, id), object) in wanted.iter().zip(read) {
            let object = object.unwrap_or_else(|error| {
                found.add_unresolved(key, id, &error.to_string());
                Value::Null
            });
            match found.resolved.get_mut(*key) {
                Some(Value::Array(all)) => all.push(object),
                Some(single) => *single = object,
                None => {}
            }
        }
        Ok(found)
    }
}

async fn read(
    client: HttpClient,
    reference: Reference,
    id: String,
    deadline: Instant,
) -> Result<Value, Error> {
    let Reference { url, class, .. } = &reference;
    let limit = deadline.saturating_duration_since(Instant::now());
    OtherGrid { client: &client, url, class }.get(&id, limit).await
}

impl Resolved {
    fn add_unresolved(&mut self, key: &str, id: &str, reason: &str) {
        let (key, id, reason) = (key.to_owned(), id.to_owned(), reason.to_owned());
        self.unresolved.push(Unresolved { key, id, reason });
    }
}
