//! The number of objects of each collection.

use std::collections::HashMap;

use oprc_cp_storage::Store;
use parking_lot::Mutex;

use crate::{Error, record::objects_prefix};

/// Objects that are read at once.
const PAGE: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_collection: Mutex<HashMap<String, u64>>,
}

impl Counts {
    /// Counts the objects of collections. None may change meanwhile.
    pub(crate) async fn read(store: &Store, collections: &[String]) -> Result<Self, Error> {
        let mut by_collection = HashMap::new();
        for collection in collections {
            let prefix = objects_prefix(collection);
            let (mut count, mut after) = (0, None::<String>);
            loop {
                let page = store.range(&prefix, after.as_deref(), PAGE).await?;
                count += u64::try_from(page.entries.len()).unwrap_or_default();
                after = page.entries.last().map(|it| it.key.clone());
                if !page.more {
                    break;
                }
            }
            by_collection.insert(collection.clone(), count);
        }
        Ok(Self { by_collection: Mutex::new(by_collection) })
    }

    pub(crate) fn of(&self, collection: &str) -> u64 {
        self.by_collection.lock().get(collection).copied().unwrap_or_default()
    }

    pub(crate) fn created(&self, collection: &str) {
        *self.by_collection.lock().entry(collection.to_owned()).or_default() += 1;
    }

    pub(crate) fn deleted(&self, collection: &str) {
        let mut all = self.by_collection.lock();
        let count = all.entry(collection.to_owned()).or_default();
        *count = count.saturating_sub(1);
    }
}
