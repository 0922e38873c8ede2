//! How many calls of a function run at once.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Error;

/// Calls that wait for one method.
const MAX_WAITING: usize = 256;

/// The calls of each method that has a limit. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConcurrencyLimits {
    methods: Arc<Mutex<HashMap<String, Arc<Limit>>>>,
}

#[derive(Debug)]
struct Limit {
    max: u32,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A call that runs. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
}

/// A call that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ConcurrencyLimits {
    /// Waits until fewer than `max` calls of the method run; none if there is no limit. The future may be
    /// dropped. After a change of the limit, calls that run under the former one aren't counted.
    pub(crate) async fn acquire(
        &self,
        method: &str,
        max: Option<u32>,
    ) -> Result<Option<Permit>, Error> {
        let Some(max) = max else { return Ok(None) };
        let limit = self.limit(method, max);
        if let Ok(permit) = limit.permits.clone().try_acquire_owned() {
            return Ok(Some(Permit { _permit: permit }));
        }
        let before = limit.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&limit.waiting);
        if before >= MAX_WAITING {
            return Err(Error::Overloaded { what: "the method", waiting: MAX_WAITING });
        }
        let closed = |_| Error::Unavailable("the method was removed".to_owned());
        let permit = limit.permits.clone().acquire_owned().await.map_err(closed)?;
        Ok(Some(Permit { _permit: permit }))
    }

    fn limit(&self, method: &str, max: u32) -> Arc<Limit> {
        let mut methods = self.methods.lock();
        if let Some(known) = methods.get(method).filter(|it| it.max == max) {
            return known.clone();
        }
        let permits = usize::try_from(max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(permits));
        let limit = Arc::new(Limit { max, permits, waiting: AtomicUsize::new(0) });
        methods.insert(method.to_owned(), limit.clone());
        limit
    }

    /// Removes methods that the class no longer has.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.methods.lock().retain(|name, _| is_known(name));
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn calls_wait_for_the_limit_and_the_queue_is_bounded() {
        let limits = ConcurrencyLimits::default();
        assert!(limits.acquire("free", None).await.unwrap().is_none());
        let first = limits.acquire("a", Some(1)).await.unwrap();
        let other = limits.acquire("b", Some(1)).await.unwrap();
        assert!(first.is_some() && other.is_some());
        let mut waiting = JoinSet::new();
        for _ in 0..MAX_WAITING {
            let limits = limits.clone();
            waiting.spawn(async move { limits.acquire("a", Some(1)).await.map(drop) });
        }
        let limit = limits.limit("a", 1);
        while limit.waiting.load(Ordering::SeqCst) < MAX_WAITING {
            tokio::task::yield_now().await;
        }
        let full = limits.acquire("a", Some(1)).await.unwrap_err();
        assert_eq!(full, Error::Overloaded { what: "the method", waiting: MAX_WAITING });
        drop(first);
        assert!(waiting.join_all().await.iter().all(Result::is_ok));
        assert_eq!(limit.waiting.load(Ordering::SeqCst), 0);
        limits.retain(|name| name == "b");
        assert_eq!(limits.methods.lock().len(), 1);
    }
}
