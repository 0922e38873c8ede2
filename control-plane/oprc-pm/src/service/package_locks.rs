//! Serialises changes of the deployments of one package: each rewrites the package's head, so that
//! of several at once all but one would have to retry.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

use crate::error::Error;

/// Packages are hashed to this number of locks.
const LOCKS: u64 = 64;
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct PackageLocks(Vec<Mutex<()>>);

impl Default for PackageLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl PackageLocks {
    pub(super) async fn lock(&self, package: &str) -> Result<Option<MutexGuard<'_, ()>>, Error> {
        let mut hasher = DefaultHasher::new();
        package.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % LOCKS).unwrap_or_default();
        let Some(lock) = self.0.get(at) else { return Ok(None) };
        let locked = timeout(LOCK_TIMEOUT, lock.lock()).await;
        let busy = |_| Error::Unavailable(format!("too many changes of {package}: try again"));
        locked.map(Some).map_err(busy)
    }
}
