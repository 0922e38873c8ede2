//! Tests of a process run side by side, since most of them only wait. What can't be done side by
//! side takes its turn here.

use std::cell::RefCell;

use tokio::sync::{RwLock, RwLockReadGuard, Semaphore, SemaphorePermit};

/// So many clusters of tests' own may be there at once: each takes up to a gigabyte, and all there
/// is of the processors while it starts.
static CLUSTERS: Semaphore = Semaphore::const_new(3);
/// Held by many, or by one that measures time.
static OTHERS: RwLock<()> = RwLock::const_new(());

tokio::task_local! {
    /// A test has one turn, however many places it uses.
    static TURN: RefCell<Option<RwLockReadGuard<'static, ()>>>;
}

/// Runs a test beside others, but not beside one that is [`alone`].
pub(crate) async fn beside_others<T>(test: impl Future<Output = T>) -> T {
    if TURN.try_with(|_| ()).is_ok() {
        return test.await;
    }
    let turn = OTHERS.read().await;
    TURN.scope(RefCell::new(Some(turn)), test).await
}

/// Runs the part of a test that measures time, while no other test uses a cluster. It waits for all
/// that run and others wait for it, so tests with such parts are in a module whose name comes last.
pub async fn alone<T>(part: impl Future<Output = T>) -> T {
    // With a turn of its own it would wait for itself.
    TURN.with(RefCell::take);
    let outcome = {
        let _turn = OTHERS.write().await;
        part.await
    };
    let turn = OTHERS.read().await;
    TURN.with(|own| own.replace(Some(turn)));
    outcome
}

/// A turn for a cluster of a test's own.
pub(crate) async fn cluster() -> SemaphorePermit<'static> {
    CLUSTERS.acquire().await.expect("it is never closed")
}
