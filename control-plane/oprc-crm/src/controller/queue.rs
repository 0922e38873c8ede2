//! What to reconcile next: classes that wait for now or for later, and those in progress.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::{Stream, StreamExt as _};
use kube::runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use tokio::{sync::mpsc, time::Instant};

use super::Outcome;
use crate::cache::Key;

/// The shortest and the longest pause after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));
/// Cap on the requeue delay when a failing class gets a watch event: the event may only be CRM's own
/// status write.
const MAX_EVENT_DELAY: Duration = Duration::from_secs(1);

type Requests = Pin<Box<dyn Stream<Item = ScheduleRequest<Key>> + Send>>;
type Sender = mpsc::UnboundedSender<ScheduleRequest<Key>>;
type Due = Pin<Box<Scheduler<Key, Requests>>>;

/// Consecutive failures of a class.
#[derive(Clone, Copy, Default)]
struct Failures {
    all: u32,
    /// The latest of them that were transient.
    transient: u32,
}

pub(super) struct Queue {
    requests: Sender,
    due: Due,
    waiting: HashSet<Key>,
    running: HashSet<Key>,
    failures: HashMap<Key, Failures>,
    concurrency: usize,
}

impl Queue {
    pub(super) fn new(concurrency: usize) -> Self {
        let (requests, due) = schedule();
        Self {
            requests,
            due,
            waiting: HashSet::new(),
            running: HashSet::new(),
            failures: HashMap::new(),
            concurrency,
        }
    }

    /// Adds a class that a watch event concerns.
    pub(super) fn add(&mut self, key: Key) {
        let delay = self.failures.get(&key).map(|it| backoff(it.all)).unwrap_or_default();
        self.requeue(key, delay.min(MAX_EVENT_DELAY));
    }

    fn requeue(&mut self, key: Key, after: Duration) {
        self.waiting.insert(key.clone());
        let run_at = Instant::now() + after;
        // The receiver is a field next to the sender, so this can't fail.
        let _ = self.requests.send(ScheduleRequest { message: key, run_at });
    }

    /// The next class that is due, and its consecutive transient failures. A class is never reconciled
    /// twice at once. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<(Key, u32)> {
        let (running, concurrency) = (&self.running, self.concurrency);
        let free = |key: &Key| running.len() < concurrency && !running.contains(key);
        let key = self.due.as_mut().hold_unless(free).next().await?;
        self.waiting.remove(&key);
        self.running.insert(key.clone());
        let failed = self.failures.get(&key).copied().unwrap_or_default().transient;
        Some((key, failed))
    }

    pub(super) fn finish(&mut self, key: Key, outcome: &Outcome) {
        self.running.remove(&key);
        match *outcome {
            Outcome::Done(requeue_after) => {
                self.failures.remove(&key);
                if let Some(after) = requeue_after {
                    self.requeue(key, after);
                }
            }
            Outcome::Throttled(pause) => self.requeue(key, pause),
            Outcome::Failed { transient, requeue_after } => {
                let failures = self.failures.entry(key.clone()).or_default();
                failures.all = failures.all.saturating_add(1);
                failures.transient =
                    if transient { failures.transient.saturating_add(1) } else { 0 };
                let pause = backoff(failures.all);
                self.requeue(key, requeue_after.map_or(pause, |after| pause.min(after)));
            }
            Outcome::NotLeader => {
                self.failures.remove(&key);
            }
        }
    }

    /// Drops everything that waits: the next leader reconciles every class anyway.
    pub(super) fn clear(&mut self) {
        (self.requests, self.due) = schedule();
        self.waiting.clear();
        self.failures.clear();
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }
}

fn schedule() -> (Sender, Due) {
    let (requests, receiver) = mpsc::unbounded_channel();
    let receiver = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|request| (request, receiver))
    });
    let receiver: Requests = Box::pin(receiver);
    (requests, Box::pin(scheduler(receiver)))
}

/// Up to 50 % of jitter keeps classes that failed together from being retried together.
fn backoff(failures: u32) -> Duration {
    let (min, max) = BACKOFF;
    let delays = ExponentialBuilder::new().with_min_delay(min).with_max_delay(max);
    let delay = delays.without_max_times().build().nth(failures.clamp(1, 32) as usize - 1);
    delay.unwrap_or(max).mul_f64(1.0 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn lost_leadership_empties_the_queue() {
        let mut queue = Queue::new(4);
        queue.add(key("a"));
        queue.add(key("b"));
        queue.add(key("a"));
        assert_eq!(queue.waiting(), 2);
        let (first, failed) = queue.next().await.unwrap();
        assert_eq!((queue.waiting(), queue.running(), failed), (1, 1, 0));
        queue.clear();
        assert_eq!((queue.waiting(), queue.running()), (0, 1), "one is still in progress");
        queue.finish(first.clone(), &Outcome::NotLeader);
        assert_eq!((queue.waiting(), queue.running()), (0, 0));
        // The next term starts with what is added then.
        queue.add(first.clone());
        assert_eq!(queue.next().await.unwrap().0, first);
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_counted_until_another_outcome() {
        for other in [
            Outcome::Done(Some(Duration::from_secs(1))),
            Outcome::Failed { transient: false, requeue_after: None },
        ] {
            let mut queue = Queue::new(1);
            queue.add(key("a"));
            for failures in 0..3 {
                let (key, failed) = queue.next().await.unwrap();
                assert_eq!(failed, failures);
                queue.finish(key, &Outcome::Failed { transient: true, requeue_after: None });
            }
            let (a, _) = queue.next().await.unwrap();
            queue.finish(a, &other);
            assert_eq!(queue.next().await.unwrap(), (key("a"), 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_cuts_the_backoff() {
        let mut queue = Queue::new(1);
        let after = Some(Duration::from_secs(3));
        queue.add(key("a"));
        for _ in 0..12 {
            let (key, _) = queue.next().await.unwrap();
            queue.finish(key, &Outcome::Failed { transient: false, requeue_after: after });
        }
        let started = Instant::now();
        queue.next().await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        assert!(backoff(1) >= BACKOFF.0 && backoff(1) < BACKOFF.0 * 2);
        assert!(backoff(5) >= BACKOFF.0 * 16);
        assert!(backoff(u32::MAX) <= BACKOFF.1 * 3 / 2);
    }
}
