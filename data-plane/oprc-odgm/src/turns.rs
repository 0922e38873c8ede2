//! One turn at a time for each object.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard},
    time::timeout,
};

use crate::Error;

/// Calls that may wait for one object.
const MAX_WAITING: usize = 256;
const MAX_WAIT: Duration = Duration::from_mins(1);

/// The objects that have a turn now. They are taken in the order of their calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    objects: Arc<Mutex<HashMap<String, Object>>>,
    /// Notified when the last call has ended.
    idle: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Object {
    lock: Arc<AsyncMutex<()>>,
    /// Calls that wait or have the turn.
    calls: usize,
}

/// The turn of a call. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _place: Place,
    _guard: OwnedMutexGuard<()>,
}

/// A call that waits or has the turn.
#[derive(Debug)]
struct Place {
    turns: Turns,
    key: String,
}

impl Turns {
    /// Waits for the turn of a call on an object. The future may be dropped.
    pub(crate) async fn take(&self, key: &str) -> Result<Turn, Error> {
        self.take_if(key, MAX_WAITING).await
    }

    /// Waits for the turn without a limit of waiting calls.
    pub(crate) async fn take_always(&self, key: &str) -> Result<Turn, Error> {
        self.take_if(key, usize::MAX).await
    }

    /// Resolves when no call waits or has a turn.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.objects.lock().is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// Calls that wait or have a turn.
    pub(crate) fn calls(&self) -> usize {
        self.objects.lock().values().map(|it| it.calls).sum()
    }

    async fn take_if(&self, key: &str, max_waiting: usize) -> Result<Turn, Error> {
        let (lock, place) = {
            let mut objects = self.objects.lock();
            let object = objects.entry(key.to_owned()).or_default();
            if object.calls > max_waiting {
                return Err(Error::Overloaded { what: "the object", waiting: max_waiting });
            }
            object.calls += 1;
            (object.lock.clone(), Place { turns: self.clone(), key: key.to_owned() })
        };
        match timeout(MAX_WAIT, lock.lock_owned()).await {
            Ok(guard) => Ok(Turn { _place: place, _guard: guard }),
            Err(_) => {
                let seconds = MAX_WAIT.as_secs();
                Err(Error::Unavailable(format!("the object was busy for {seconds} s")))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut objects = self.turns.objects.lock();
        if let Some(object) = objects.get_mut(&self.key) {
            object.calls -= 1;
            if object.calls == 0 {
                objects.remove(&self.key);
                self.turns.idle.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;

    use super::*;

    impl Turns {
        /// Objects with calls.
        fn len(&self) -> usize {
            self.objects.lock().len()
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_object_has_one_turn_at_a_time() {
        let (turns, active) = (Turns::default(), Arc::new(AtomicUsize::new(0)));
        let mut calls = JoinSet::new();
        for _ in 0..100 {
            let (turns, active) = (turns.clone(), active.clone());
            calls.spawn(async move {
                let _turn = turns.take("a").await.unwrap();
                assert_eq!(active.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                active.fetch_sub(1, Ordering::SeqCst);
            });
        }
        calls.join_all().await;
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_do_not_wait_for_each_other_and_a_dropped_call_leaves_nothing() {
        let turns = Turns::default();
        let first = turns.take("a").await.unwrap();
        drop(turns.take("b").await.unwrap());
        timeout(Duration::from_secs(1), turns.take("a")).await.unwrap_err();
        drop(first);
        assert_eq!(turns.len(), 0);
        drop(turns.take("a").await.unwrap());
    }

    #[tokio::test]
    async fn waiting_calls_are_bounded() {
        let turns = Turns::default();
        let first = turns.take("a").await.unwrap();
        let mut waiting = JoinSet::new();
        for _ in 0..MAX_WAITING {
            let turns = turns.clone();
            waiting.spawn(async move { turns.take("a").await.map(drop) });
        }
        while turns.objects.lock()["a"].calls <= MAX_WAITING {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            turns.take("a").await.unwrap_err(),
            Error::Overloaded { what: "the object", waiting: MAX_WAITING }
        );
        drop(first);
        assert!(waiting.join_all().await.iter().all(Result::is_ok));
        assert_eq!(turns.len(), 0);
    }
}
