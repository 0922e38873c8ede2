//! Reads of objects.

use oprc_cp_storage::Error as StoreError;

use super::Grid;
use crate::{
    Error, ObjectId,
    invocation::{Object, ObjectBatch, ObjectPage},
    record::{ObjectRecord, decode, objects_prefix},
};

const MAX_PAGE: usize = 1000;
/// Objects that are read at once, and bytes after which a page ends.
const CHUNK: usize = 16;
const MAX_PAGE_BYTES: usize = 4 << 20;

impl Grid {
    pub async fn get(&self, collection: Option<&str>, id: &ObjectId) -> Result<Object, Error> {
        let class = self.class();
        let found = self.read(&class, collection, id).await?;
        let version = found.version().unwrap_or_default();
        Ok(Object { id: id.to_string(), version, state: found.state(&class)?.into_owned() })
    }

    /// An object as this node's member of the store knows it, which may be an older state. Succeeds without
    /// a majority of the members.
    pub async fn get_stale(
        &self,
        collection: Option<&str>,
        id: &ObjectId,
    ) -> Result<Object, Error> {
        let class = self.class();
        let key = Self::key(&class, collection, id)?;
        let missing = || Error::NotFound(id.to_string());
        let entry = self.store.get_stale(&key).await?.ok_or_else(missing)?;
        let record: ObjectRecord = decode(&key, &entry.value)?;
        Ok(Object { id: id.to_string(), version: entry.version.0, state: record.state })
    }

    /// Objects of this member whose ids start with the prefix, in the order of their ids.
    pub async fn list(
        &self,
        collection: Option<&str>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ObjectPage, Error> {
        let class = self.class();
        let collection = class.collection(collection)?;
        let objects = objects_prefix(collection);
        let prefix = format!("{objects}{prefix}");
        let mut after = after.map(|after| format!("{objects}{after}"));
        let (limit, mut bytes, mut found) = (limit.clamp(1, MAX_PAGE), 0, Vec::new());
        loop {
            let chunk = CHUNK.min(limit - found.len());
            let page = self.store.range(&prefix, after.as_deref(), chunk).await;
            let page = page.map_err(|error| match error {
                StoreError::Invalid { reason } => Error::InvalidId(reason),
                other => other.into(),
            })?;
            let mut entries = page.entries.into_iter().peekable();
            while bytes < MAX_PAGE_BYTES
                && let Some(entry) = entries.next()
            {
                let id = entry.key.strip_prefix(&objects).unwrap_or_default().to_owned();
                bytes += entry.value.len();
                if class.has_object(collection, &id) {
                    let record: ObjectRecord = decode(&entry.key, &entry.value)?;
                    found.push(Object { id, version: entry.version.0, state: record.state });
                }
                after = Some(entry.key);
            }
            let more = page.more || entries.peek().is_some();
            if !more || found.len() >= limit || bytes >= MAX_PAGE_BYTES {
                let last = after.as_deref().and_then(|it| it.strip_prefix(&objects));
                let next = last.filter(|_| more).map(str::to_owned);
                return Ok(ObjectPage { objects: found, next });
            }
        }
    }

    /// Objects by id. Those that there is no room for in one answer are left.
    pub async fn batch_get(
        &self,
        collection: Option<&str>,
        ids: &[ObjectId],
    ) -> Result<ObjectBatch, Error> {
        if ids.len() > MAX_PAGE {
            let (what, count) = ("the list of ids", ids.len());
            return Err(Error::TooMany { what, count, limit: MAX_PAGE });
        }
        let (class, mut batch, mut bytes) = (self.class(), ObjectBatch::default(), 0);
        for id in ids {
            if bytes >= MAX_PAGE_BYTES {
                batch.left.push(id.to_string());
                continue;
            }
            let found = self.read(&class, collection, id).await?;
            match (found.version(), found.state(&class)) {
                (version, Ok(state)) => {
                    let (version, state) = (version.unwrap_or_default(), state.into_owned());
                    bytes += serde_json::to_vec(&state).map_or(0, |it| it.len());
                    batch.objects.push(Object { id: id.to_string(), version, state });
                }
                (_, Err(_)) => batch.missing.push(id.to_string()),
            }
        }
        Ok(batch)
    }
}
