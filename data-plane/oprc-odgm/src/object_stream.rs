//! Streams of objects: all of them, and their changes.

use futures::{Stream, stream};
use oprc_cp_storage::{Change, Commit, Error as StoreError, Revision, Watch};
use serde::Serialize;

use crate::{
    Error, Grid,
    invocation::Object,
    record::{ObjectRecord, decode, objects_prefix},
};

/// Objects of a page of the list.
const LIST_PAGE: usize = 1000;
/// Objects that a watch reads at once.
const WATCH_PAGE: usize = 16;

/// A change of an object, or the end of those that exist.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub enum WatchEvent {
    Created(Object),
    Updated(Object),
    Deleted(DeletedObject),
    /// All objects that existed when the watch began were sent.
    Synced,
}

impl WatchEvent {
    /// The id of the object.
    fn id(&self) -> Option<&str> {
        match self {
            Self::Created(object) | Self::Updated(object) => Some(&object.id),
            Self::Deleted(object) => Some(&object.id),
            Self::Synced => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeletedObject {
    pub id: String,
    /// The revision of the deletion, larger than all versions of the object.
    pub version: u64,
}

/// What a watch has read: up to which key, at which revision. The last page has no end.
type ReadPages = Vec<(Option<String>, Revision)>;

struct ObjectWatch {
    grid: Grid,
    collection: String,
    /// Of the keys of the collection, and of the objects.
    objects: String,
    prefix: String,
    pages: ReadPages,
    watch: Option<Watch>,
}

impl Grid {
    /// All objects whose ids start with the prefix, in the order of their ids, in pages.
    pub fn list_stream(
        &self,
        collection: Option<&str>,
        prefix: &str,
    ) -> Result<impl Stream<Item = Result<Vec<Object>, Error>> + Send + use<>, Error> {
        let collection = self.class().collection(collection)?.to_owned();
        let begin = (self.clone(), collection, prefix.to_owned(), Some(None::<String>));
        Ok(stream::try_unfold(begin, |(grid, collection, prefix, after)| async move {
            let Some(after) = after else { return Ok(None) };
            let page = grid.list(Some(&collection), &prefix, after.as_deref(), LIST_PAGE).await?;
            let next = page.next.map(Some);
            Ok(Some((page.objects, (grid, collection, prefix, next))))
        }))
    }

    /// The objects of this member whose ids start with the prefix, then [`WatchEvent::Synced`], then each change in order.
    /// Ends with an error if the reader is too slow; it must begin again.
    pub fn watch_stream(
        &self,
        collection: Option<&str>,
        prefix: &str,
    ) -> Result<impl Stream<Item = Result<Vec<WatchEvent>, Error>> + Send + use<>, Error> {
        let collection = self.class().collection(collection)?.to_owned();
        let objects = objects_prefix(&collection);
        let prefix = format!("{objects}{prefix}");
        let (grid, pages, watch) = (self.clone(), Vec::new(), None);
        let begin = ObjectWatch { grid, collection, objects, prefix, pages, watch };
        Ok(stream::try_unfold(begin, |mut watch| async move {
            let events = watch.next().await?;
            Ok(Some((events, watch)))
        }))
    }
}

impl ObjectWatch {
    async fn next(&mut self) -> Result<Vec<WatchEvent>, Error> {
        let Some(watch) = &mut self.watch else { return self.next_page().await };
        loop {
            let commit = watch.next().await.map_err(|error| match error {
                StoreError::Gap => {
                    Error::Unavailable("the watch has missed changes, begin again".to_owned())
                }
                other => other.into(),
            })?;
            let mut events = events(&commit, &self.objects, &self.pages)?;
            let class = self.grid.class();
            events.retain(|it| it.id().is_none_or(|id| class.has_object(&self.collection, id)));
            // All that was read is older.
            if self.pages.iter().all(|(_, revision)| *revision < commit.revision) {
                self.pages.clear();
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    async fn next_page(&mut self) -> Result<Vec<WatchEvent>, Error> {
        let after = self.pages.last().and_then(|(end, _)| end.clone());
        let page = self.grid.store().range(&self.prefix, after.as_deref(), WATCH_PAGE).await;
        let page = page.map_err(|error| match error {
            StoreError::Invalid { reason } => Error::InvalidId(reason),
            other => other.into(),
        })?;
        let (class, mut all) = (self.grid.class(), Vec::with_capacity(page.entries.len() + 1));
        for entry in &page.entries {
            let object = object(&self.objects, &entry.key, &entry.value, entry.version)?.0;
            if class.has_object(&self.collection, &object.id) {
                all.push(WatchEvent::Created(object));
            }
        }
        let end = page.entries.last().filter(|_| page.more).map(|it| it.key.clone());
        self.pages.push((end, page.revision));
        if !page.more {
            let first = self.pages.first().map(|(_, revision)| *revision);
            self.watch = Some(self.grid.store().watch(&self.prefix, first).await?);
            all.push(WatchEvent::Synced);
        }
        Ok(all)
    }
}

/// The object, and how often it was changed.
fn object(
    objects: &str,
    key: &str,
    value: &[u8],
    version: Revision,
) -> Result<(Object, u64), Error> {
    let record: ObjectRecord = decode(key, value)?;
    let id = key.strip_prefix(objects).unwrap_or_default().to_owned();
    Ok((Object { id, version: version.0, state: record.state }, record.changes))
}

/// The changes of a commit that aren't part of the pages.
fn events(commit: &Commit, objects: &str, pages: &ReadPages) -> Result<Vec<WatchEvent>, Error> {
    let is_read = |key: &str| {
        let at = pages.partition_point(|(end, _)| end.as_deref().is_some_and(|end| end < key));
        pages.get(at).is_some_and(|(_, revision)| commit.revision <= *revision)
    };
    let mut all = Vec::new();
    for change in commit.changes.iter().filter(|it| !is_read(it.key())) {
        all.push(match change {
            Change::Delete { key } => WatchEvent::Deleted(DeletedObject {
                id: key.strip_prefix(objects).unwrap_or_default().to_owned(),
                version: commit.revision.0,
            }),
            Change::Put { key, value } => match object(objects, key, value, commit.revision)? {
                (object, 0) => WatchEvent::Created(object),
                (object, _) => WatchEvent::Updated(object),
            },
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
