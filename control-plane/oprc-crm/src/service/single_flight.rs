//! Identical concurrent calls share one write.
//!
//! A call may take the result of another's write only if that write started after the call arrived,
//! so that no response in between is invalidated.

use std::{collections::HashMap, sync::Arc, time::Instant};

use oprc_unit::UnitSpec;
use parking_lot::Mutex;

use super::Error;
use crate::{cache::Key, reconcile::ObservedClass};

/// The last write of a key: when it started, what it wrote, and its result.
type Last = Option<(Instant, UnitSpec, Arc<ObservedClass>)>;

/// One write at a time for each key.
#[derive(Default)]
pub struct SingleFlight(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Last>>>>);

impl SingleFlight {
    /// Writes, or takes the result of an identical write.
    pub(super) async fn share<F>(
        &self,
        key: &Key,
        spec: &UnitSpec,
        write: impl FnOnce() -> F,
    ) -> Result<Arc<ObservedClass>, Error>
    where
        F: Future<Output = Result<Arc<ObservedClass>, Error>>,
    {
        let arrived = Instant::now();
        let flight = {
            let mut all = self.0.lock();
            Arc::clone(all.entry(key.clone()).or_default())
        };
        let guard = FlightGuard { single_flight: self, key, flight };
        let mut last = guard.flight.lock().await;
        if let Some((started, wrote, class)) = &*last
            && *started >= arrived
            && wrote == spec
        {
            return Ok(Arc::clone(class));
        }
        let started = Instant::now();
        let class = write().await?;
        *last = Some((started, spec.clone(), Arc::clone(&class)));
        Ok(class)
    }
}

/// Removes a key when its last call completes or is cancelled.
struct FlightGuard<'a> {
    single_flight: &'a SingleFlight,
    key: &'a Key,
    flight: Arc<tokio::sync::Mutex<Last>>,
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.single_flight.0.lock();
        // Released under the lock, so that exactly one of several calls that end together is the
        // last.
        self.flight = Arc::default();
        if all.get(self.key).is_some_and(|flight| Arc::strong_count(flight) == 1) {
            all.remove(self.key);
        }
    }
}
