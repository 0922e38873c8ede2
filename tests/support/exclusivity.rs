//! Tests of a process run concurrently, because most of them only wait. This module limits that
//! where tests would disturb each other.

use std::cell::RefCell;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit};

/// Bounds how many tests have a cluster of their own at once: each takes up to a gigabyte of memory,
/// and all CPUs while it starts.
static CLUSTERS: Semaphore = Semaphore::const_new(3);
/// Read by each test, written by one that measures time.
static RUNNING: RwLock<()> = RwLock::const_new(());

tokio::task_local! {
    /// A test takes the lock once, however many namespaces it uses.
    static GUARD: RefCell<Option<RwLockReadGuard<'static, ()>>>;
}

/// Runs a test concurrently with others, except those in [`exclusively`].
pub(crate) async fn shared<T>(test: impl Future<Output = T>) -> T {
    if GUARD.try_with(|_| ()).is_ok() {
        return test.await;
    }
    let guard = RUNNING.read().await;
    GUARD.scope(RefCell::new(Some(guard)), test).await
}

/// Runs a part of a test while no other test of this process uses a cluster. It waits for running
/// tests and blocks new ones, so `tools/test.sh` runs modules named `exclusive` last.
pub async fn exclusively<T>(part: impl Future<Output = T>) -> T {
    // Its own read guard would block the write lock.
    GUARD.with(RefCell::take);
    let outcome = {
        let _guard = RUNNING.write().await;
        part.await
    };
    let guard = RUNNING.read().await;
    GUARD.with(|own| own.replace(Some(guard)));
    outcome
}

/// Begins a part of a test that [`exclusively`] would run; it ends when the guard is dropped. The rest of
/// the test then runs beside all others, also beside their exclusive parts, so it must be light.
pub async fn begin_exclusive() -> RwLockWriteGuard<'static, ()> {
    GUARD.with(RefCell::take);
    RUNNING.write().await
}

pub(crate) async fn cluster_permit() -> SemaphorePermit<'static> {
    CLUSTERS.acquire().await.expect("the semaphore is never closed")
}
