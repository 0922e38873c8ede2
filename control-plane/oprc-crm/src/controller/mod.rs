//! The reconcile loop: a few classes at a time, each by one worker only.

mod apply;
mod certificate;
mod grid_reports;
mod queue;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use k8s_openapi::jiff::Timestamp;
use oprc_unit::Platform;
use tokio::{task::JoinSet, time::timeout};
use tracing::Instrument as _;

use self::queue::Queue;
pub use self::{
    apply::{Applier, NfrStatus},
    grid_reports::GridReports,
};
use crate::{
    cache::{ApiHealth, Cache, Key},
    decode::deployment_id,
    metrics::Metrics,
    reconcile::{Action, Input, ObservedClass, plan_actions, report::Failure},
};

/// The wall clock, replaceable in tests.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// The current platform, which changes when optional APIs appear or disappear.
pub type PlatformNow = Arc<dyn Fn() -> Platform + Send + Sync>;

/// Transient failures are reported in status after this many consecutive attempts.
const REPORT_AFTER_FAILURES: u32 = 5;
/// How long requests in progress may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Controller {
    pub cache: Arc<Cache>,
    pub api_health: ApiHealth,
    pub applier: Arc<Applier>,
    pub platform: PlatformNow,
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub grid_reports: GridReports,
    /// How many classes are reconciled at once.
    pub concurrency: usize,
}

enum Outcome {
    /// Everything was applied; reconcile again after this time.
    Done(Option<Duration>),
    /// Retry with backoff, but not later than after `requeue_after`.
    Failed { transient: bool, requeue_after: Option<Duration> },
    /// The API server requested a pause.
    Throttled(Duration),
    /// The new leader reconciles the class.
    NotLeader,
}

impl Controller {
    /// Reconciles classes as they are enqueued, while this process is the leader, until `stop`
    /// completes. No request is in progress when this returns.
    pub async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let enqueued = self.cache.workqueue();
        let mut stop = std::pin::pin!(stop);
        let mut leadership = self.applier.leadership.changes();
        let mut queue = Queue::new(self.concurrency);
        let mut tasks: JoinSet<(Key, Outcome)> = JoinSet::new();
        loop {
            let is_leader = *leadership.borrow();
            tokio::select! {
                () = &mut stop => break,
                changed = leadership.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    self.on_leadership(*leadership.borrow_and_update(), &mut queue);
                }
                // A new leader reconciles every class anyway.
                keys = enqueued.drain() => for key in keys.into_iter().filter(|_| is_leader) {
                    queue.add(key);
                },
                Some((key, failed)) = queue.next(), if is_leader => {
                    let controller = Arc::clone(&self);
                    tasks.spawn(async move {
                        let outcome = controller.reconcile(&key, failed).await;
                        (key, outcome)
                    });
                }
                Some(ended) = tasks.join_next() => {
                    let Ok((key, outcome)) = ended else { continue };
                    if matches!(outcome, Outcome::Failed { .. }) {
                        self.metrics.requeues.inc();
                    }
                    queue.finish(key, &outcome);
                }
            }
            self.metrics.set_queue(queue.waiting(), queue.running());
        }
        // Requests in progress may complete, if they do so soon.
        let _ =
            timeout(SHUTDOWN_TIMEOUT, async { while tasks.join_next().await.is_some() {} }).await;
        tasks.shutdown().await;
        self.grid_reports.clear();
    }

    fn on_leadership(&self, is_leader: bool, queue: &mut Queue) {
        if is_leader {
            self.metrics.on_leadership_acquired();
            self.cache.enqueue_all();
        } else {
            queue.clear();
            self.grid_reports.clear();
        }
    }

    /// Reconciles one class. A panic is contained, so that it harms no other class. `failed` is the
    /// number of consecutive transient failures.
    async fn reconcile(&self, key: &Key, failed: u32) -> Outcome {
        if let Some(pause) = self.api_health.retry_after() {
            return Outcome::Throttled(pause);
        }
        let Some(class) = self.cache.class(key) else {
            self.grid_reports.follow(key, None);
            return Outcome::Done(None);
        };
        let span = tracing::info_span!(
            "reconcile",
            namespace = key.0,
            class_runtime = key.1,
            deployment_id = deployment_id(&class),
            correlation_id = class.correlation_id.as_deref().unwrap_or_default(),
        );
        let started = Instant::now();
        let work = std::panic::AssertUnwindSafe(self.reconcile_inner(key, &class, failed));
        let outcome = work.catch_unwind().instrument(span).await.unwrap_or_else(|_| {
            let (namespace, class_runtime) = (&key.0, &key.1);
            tracing::error!(namespace, class_runtime, "reconcile panicked, retrying");
            Outcome::Failed { transient: false, requeue_after: None }
        });
        let result = match outcome {
            Outcome::Done(_) | Outcome::Throttled(_) => "ok",
            Outcome::Failed { .. } => "error",
            Outcome::NotLeader => "not_leading",
        };
        self.metrics.reconciled(result, started.elapsed());
        outcome
    }

    async fn reconcile_inner(&self, key: &Key, class: &ObservedClass, failed: u32) -> Outcome {
        let platform = (self.platform)();
        let plan = |failures: &[Failure]| {
            plan_actions(&Input {
                class,
                platform: &platform,
                view: &*self.cache,
                now: (self.clock)(),
                failures,
            })
        };
        let decision = plan(&[]);
        self.grid_reports.follow(key, decision.followed_grid.as_ref());
        let mut version = class.resource_version.clone();
        let mut failures: Vec<Failure> = Vec::new();
        let mut transient = false;
        for action in &decision.actions {
            if !failures.is_empty() && !action.is_independent() {
                continue;
            }
            match self.apply(class, &mut version, action).await {
                Ok(()) => {}
                Err(apply::Error::NotLeader) => return Outcome::NotLeader,
                Err(apply::Error::Permanent(failure)) => {
                    let (reason, error) = (failure.reason.as_str(), &failure.message);
                    tracing::warn!(reason, error, "API server rejected a write, retrying");
                    failures.push(failure);
                }
                // Other writes would most likely fail, too.
                Err(apply::Error::Transient(failure)) => {
                    transient = true;
                    let (reason, error) = (failure.reason.as_str(), &failure.message);
                    if failed < REPORT_AFTER_FAILURES {
                        tracing::debug!(reason, error, "write failed, retrying");
                    } else {
                        tracing::warn!(reason, error, failed, "write keeps failing, retrying");
                        failures.push(failure);
                    }
                    if failures.is_empty() {
                        return Outcome::Failed { transient, requeue_after: None };
                    }
                    break;
                }
            }
        }
        if failures.is_empty() {
            return Outcome::Done(decision.requeue_after);
        }
        let report = plan(&failures);
        self.write_status(class, &mut version, &report.actions).await;
        Outcome::Failed { transient, requeue_after: report.requeue_after }
    }

    async fn apply(
        &self,
        class: &ObservedClass,
        version: &mut String,
        action: &Action,
    ) -> Result<(), apply::Error> {
        self.applier.apply(class, version, action).await?;
        match action {
            Action::Status(status) => self.metrics.on_status_written(class, status),
            Action::RemoveFinalizer => self.metrics.on_deleted(class),
            _ => {}
        }
        Ok(())
    }

    /// Reports failures in status and Events, and applies nothing else.
    async fn write_status(&self, class: &ObservedClass, version: &mut String, actions: &[Action]) {
        for action in actions {
            if matches!(action, Action::Status(_) | Action::Event(_))
                && let Err(error) = self.apply(class, version, action).await
            {
                tracing::debug!(%error, "failed to report the failure in status, retrying");
                return;
            }
        }
    }
}
