//! Tests of a process run concurrently, because most of them only wait. This module limits that
//! where tests would disturb each other.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit};

/// Bounds how many tests have a cluster of their own at once: each takes up to a gigabyte of memory,
/// and all CPUs while it starts.
static CLUSTERS: Semaphore = Semaphore::const_new(3);
/// Read by each test, written by one that measures time.
static RUNNING: RwLock<()> = RwLock::const_new(());
/// The guard that parts under light load share.
static LIGHT_LOAD: Mutex<Weak<RwLockWriteGuard<'static, ()>>> = Mutex::const_new(Weak::new());

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
    alone(RUNNING.write(), part).await
}

/// Like [`exclusively`], but together with other such parts: each leaves most of the CPU time unused, and
/// mostly waits.
pub async fn under_light_load<T>(part: impl Future<Output = T>) -> T {
    let guard = async {
        let mut present = LIGHT_LOAD.lock().await;
        if let Some(guard) = present.upgrade() {
            return guard;
        }
        let guard = Arc::new(RUNNING.write().await);
        *present = Arc::downgrade(&guard);
        guard
    };
    alone(guard, part).await
}

async fn alone<T, G>(guard: impl Future<Output = G>, part: impl Future<Output = T>) -> T {
    // Its own read guard would block the write lock.
    GUARD.with(RefCell::take);
    let outcome = {
        let _guard = guard.await;
        part.await
    };
    let guard = RUNNING.read().await;
    GUARD.with(|own| own.replace(Some(guard)));
    outcome
}

pub(crate) async fn cluster_permit() -> SemaphorePermit<'static> {
    CLUSTERS.acquire().await.expect("the semaphore is never closed")
}
