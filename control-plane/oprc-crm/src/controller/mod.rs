//! The loop: classes that should be looked at, a few at a time, each by one worker only.

mod perform;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use oprc_unit::Platform;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tracing::Instrument as _;

pub use self::perform::Hands;
use crate::{
    cluster::{Cache, Contact, Key},
    metrics::Metrics,
    reconcile::{Action, Input, ObservedClass, decide, report::Failure},
};

/// The time of day, replaceable for tests.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// The environment that classes meet, which changes when the cluster's abilities do.
pub type PlatformNow = Arc<dyn Fn() -> Platform + Send + Sync>;

/// From the how-manieth time on a class is told that something fails which may yet pass.
const TELL: u32 = 5;
/// How long what is under way may take when the process stops.
const STOP: Duration = Duration::from_secs(1);
/// The shortest and the longest pause before something that failed is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));
/// The longest pause before a class is looked at that failed, though there is news of it: that may
/// be no more than that it was told so.
const NEWS: Duration = Duration::from_secs(1);

/// What the loop works with.
pub struct Controller {
    /// What is seen.
    pub cache: Arc<Cache>,
    /// Whether the API server asks for patience.
    pub contact: Contact,
    /// What performs actions.
    pub hands: Arc<Hands>,
    /// What classes meet.
    pub environment: PlatformNow,
    /// The time.
    pub clock: Clock,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// How many classes are looked at at once.
    pub concurrency: usize,
}

/// What came of looking at a class.
enum Outcome {
    /// All is done, until then.
    Done(Option<Duration>),
    /// Something failed, and should be tried again.
    Failed,
    /// The API server has asked for a pause.
    Patient(Duration),
    /// This process doesn't lead any more: whoever does will look at it.
    NotLeading,
}

impl Controller {
    /// Looks at classes as they arrive, for as long as this process leads, until it is to stop.
    /// Nothing is under way any more when this has ended.
    pub async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let arriving = self.cache.dirty();
        let mut stop = std::pin::pin!(stop);
        let mut leading = self.hands.leadership.changes();
        let (requests, queue) = mpsc::unbounded_channel();
        let queue = futures::stream::unfold(queue, |mut queue| async move {
            queue.recv().await.map(|request| (request, queue))
        });
        let mut due = std::pin::pin!(scheduler(queue));
        let mut running: HashSet<Key> = HashSet::new();
        let mut waiting: HashSet<Key> = HashSet::new();
        let mut attempts: HashMap<Key, u32> = HashMap::new();
        let mut tasks: JoinSet<(Key, Outcome)> = JoinSet::new();
        let ask = |waiting: &mut HashSet<Key>, key: Key, after: Duration| {
            waiting.insert(key.clone());
            let run_at = (Instant::now() + after).into();
            let _ = requests.send(ScheduleRequest { message: key, run_at });
        };
        loop {
            let leads = *leading.borrow();
            let limit = self.concurrency;
            tokio::select! {
                () = &mut stop => break,
                changed = leading.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    if *leading.borrow_and_update() {
                        self.metrics.leads();
                        self.cache.mark_all();
                    }
                }
                keys = arriving.next() => {
                    // Whoever begins to lead looks at everything anyway.
                    for key in keys.into_iter().filter(|_| leads) {
                        let failed = attempts.get(&key).map(|count| backoff(*count));
                        ask(&mut waiting, key, failed.unwrap_or_default().min(NEWS));
                    }
                }
                Some(key) = async {
                    let free = |key: &Key| running.len() < limit && !running.contains(key);
                    due.as_mut().hold_unless(free).next().await
                }, if leads => {
                    waiting.remove(&key);
                    running.insert(key.clone());
                    let controller = Arc::clone(&self);
                    let failed = attempts.get(&key).copied().unwrap_or_default();
                    tasks.spawn(async move {
                        let outcome = controller.look_at(&key, failed).await;
                        (key, outcome)
                    });
                }
                Some(ended) = tasks.join_next() => {
                    let Ok((key, outcome)) = ended else { continue };
                    running.remove(&key);
                    match outcome {
                        Outcome::Done(again) => {
                            attempts.remove(&key);
                            if let Some(again) = again {
                                ask(&mut waiting, key, again);
                            }
                        }
                        Outcome::Patient(pause) => ask(&mut waiting, key, pause),
                        Outcome::Failed => {
                            let count = attempts.entry(key.clone()).or_default();
                            *count = count.saturating_add(1);
                            self.metrics.requeues.inc();
                            let pause = backoff(*count);
                            ask(&mut waiting, key, pause);
                        }
                        Outcome::NotLeading => {
                            attempts.remove(&key);
                        }
                    }
                }
            }
            let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            self.metrics.running.set(gauge(running.len()));
            self.metrics.waiting.set(gauge(waiting.len()));
        }
        // What is being written is let end, where it does so soon.
        let _ = timeout(STOP, async { while tasks.join_next().await.is_some() {} }).await;
        tasks.shutdown().await;
    }

    /// Looks at one class. Whatever goes wrong with it harms no other. `failed` says how often this
    /// went wrong in a row.
    async fn look_at(&self, key: &Key, failed: u32) -> Outcome {
        if let Some(pause) = self.contact.patience() {
            return Outcome::Patient(pause);
        }
        let Some(class) = self.cache.class(key) else { return Outcome::Done(None) };
        let span = tracing::info_span!(
            "reconcile",
            namespace = key.0,
            name = key.1,
            deployment_id = class.deployment_id.as_deref().unwrap_or(&class.name),
            correlation_id = class.correlation_id.as_deref().unwrap_or_default(),
        );
        let begun = Instant::now();
        let work =
            std::panic::AssertUnwindSafe(self.work(key, failed)).catch_unwind().instrument(span);
        let outcome = work.await.unwrap_or_else(|_| {
            tracing::error!(namespace = key.0, name = key.1, "a defect: looking at it panicked");
            Outcome::Failed
        });
        let result = match outcome {
            Outcome::Done(_) | Outcome::Patient(_) => "ok",
            Outcome::Failed => "error",
            Outcome::NotLeading => "not_leading",
        };
        self.metrics.reconciled(result, begun.elapsed());
        outcome
    }

    async fn work(&self, key: &Key, failed: u32) -> Outcome {
        let Some(class) = self.cache.class(key) else { return Outcome::Done(None) };
        let environment = (self.environment)();
        let decide = |failures: &[Failure]| {
            decide(&Input {
                class: &class,
                environment: &environment,
                sight: &*self.cache,
                now: (self.clock)(),
                failures,
            })
        };
        let decision = decide(&[]);
        let mut version = class.resource_version.clone();
        let mut failures: Vec<Failure> = Vec::new();
        for action in &decision.actions {
            if !failures.is_empty() && !action.stands_alone() {
                continue;
            }
            match self.perform(&class, &mut version, action).await {
                Ok(()) => {}
                Err(perform::Error::NotLeading) => return Outcome::NotLeading,
                Err(perform::Error::Told(failure)) => {
                    tracing::warn!(reason = failure.reason, message = failure.message, "refused");
                    failures.push(failure);
                }
                // Whoever is away needn't be asked for more.
                Err(perform::Error::Passing(failure)) => {
                    let (reason, message) = (failure.reason, &failure.message);
                    if failed < TELL {
                        tracing::debug!(reason, message, "not done yet; it is tried again");
                    } else {
                        tracing::warn!(reason, message, "fails again and again");
                        failures.push(failure);
                    }
                    if failures.is_empty() {
                        return Outcome::Failed;
                    }
                    break;
                }
            }
        }
        if failures.is_empty() {
            return Outcome::Done(decision.again_after);
        }
        self.tell(&class, &mut version, &decide(&failures).actions).await;
        Outcome::Failed
    }

    async fn perform(
        &self,
        class: &ObservedClass,
        version: &mut String,
        action: &Action,
    ) -> Result<(), perform::Error> {
        self.hands.perform(class, version, action).await?;
        match action {
            Action::Status(status) => self.metrics.told(class, status),
            Action::RemoveFinalizer => self.metrics.goes(class),
            _ => {}
        }
        Ok(())
    }

    /// Tells a class what has failed.
    async fn tell(&self, class: &ObservedClass, version: &mut String, actions: &[Action]) {
        for action in actions {
            if matches!(action, Action::Status(_) | Action::Event(_))
                && let Err(error) = self.perform(class, version, action).await
            {
                tracing::debug!(%error, "the failure couldn't be told yet");
                return;
            }
        }
    }
}

/// Up to 50 % of jitter keeps classes that failed together from being retried together.
fn backoff(attempt: u32) -> Duration {
    let (min, max) = BACKOFF;
    let delays = ExponentialBuilder::new().with_min_delay(min).with_max_delay(max);
    let delay = delays.without_max_times().build().nth(attempt.saturating_sub(1) as usize);
    delay.unwrap_or(max).mul_f64(1.0 + fastrand::f64() / 2.0)
}
