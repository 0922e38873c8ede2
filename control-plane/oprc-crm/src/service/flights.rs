//! Calls that ask for the same at the same time share one write.
//!
//! A call may take the result of another's write only where that began after the call came in: then
//! nothing that anybody was told in between can be undone by it.

use std::{collections::HashMap, sync::Arc, time::Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::Error;
use crate::{cluster::Key, reconcile::ObservedClass};

/// The last write of a key: when it began, what it wrote, and what came of it.
type Last = Option<(Instant, Value, Arc<ObservedClass>)>;

/// Writes that are under way, one at a time for each key.
#[derive(Default)]
pub struct Flights(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Last>>>>);

impl Flights {
    /// Writes, or takes what somebody else has just written.
    pub(super) async fn share<F>(
        &self,
        key: &Key,
        what: &Value,
        write: impl FnOnce() -> F,
    ) -> Result<Arc<ObservedClass>, Error>
    where
        F: Future<Output = Result<Arc<ObservedClass>, Error>>,
    {
        let came = Instant::now();
        let flight = {
            let mut all = self.0.lock();
            Arc::clone(all.entry(key.clone()).or_default())
        };
        let leave = Leave { flights: self, key, flight };
        let mut last = leave.flight.lock().await;
        if let Some((began, wrote, class)) = &*last
            && *began >= came
            && wrote == what
        {
            return Ok(Arc::clone(class));
        }
        let began = Instant::now();
        let class = write().await?;
        *last = Some((began, what.clone(), Arc::clone(&class)));
        Ok(class)
    }
}

/// Forgets a key when the last call leaves, whether it ended or was given up.
struct Leave<'a> {
    flights: &'a Flights,
    key: &'a Key,
    flight: Arc<tokio::sync::Mutex<Last>>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut all = self.flights.0.lock();
        // Given up while nobody else counts: of those who leave together one is the last.
        self.flight = Arc::default();
        if all.get(self.key).is_some_and(|flight| Arc::strong_count(flight) == 1) {
            all.remove(self.key);
        }
    }
}
