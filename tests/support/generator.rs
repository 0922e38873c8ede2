//! Requests at a rate, whether or not earlier ones were answered.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    http::{client, client_with_idle_timeout, get_by},
    load::{Connection, Target},
};

/// Bound on concurrent requests; further ones count as failed.
const MAX_CONCURRENT: usize = 600;

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Timestamp,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has taken this long until now.
    InProgress(Duration),
    Ok(Duration),
    Failed,
}

impl Sent {
    /// A failed request never ends.
    pub fn latency(&self) -> Duration {
        match self.outcome {
            Outcome::InProgress(took) | Outcome::Ok(took) => took,
            Outcome::Failed => Duration::MAX,
        }
    }
}

type Log = Arc<Mutex<Vec<(Timestamp, Instant, Option<Outcome>)>>>;

pub struct Generator {
    log: Log,
    period: watch::Sender<Duration>,
    task: JoinHandle<()>,
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Generator {
    /// Starts with a rate per second, which isn't zero.
    pub fn start(target: Target, connection: Connection, rate: u32) -> Self {
        Self::every(target, connection, Duration::from_secs(1) / rate)
    }

    pub fn every(target: Target, connection: Connection, period: Duration) -> Self {
        let log = Log::default();
        let (period, periods) = watch::channel(period);
        let task = tokio::spawn(send(target, connection, periods, Arc::clone(&log)));
        Self { log, period, task }
    }

    pub fn set_rate(&self, rate: u32) {
        self.period.send_replace(Duration::from_secs(1) / rate);
    }

    /// All requests so far.
    pub fn sent(&self) -> Vec<Sent> {
        let log = self.log.lock().unwrap();
        let sent = |(at, since, outcome): &(Timestamp, Instant, Option<Outcome>)| Sent {
            at: *at,
            outcome: outcome.unwrap_or(Outcome::InProgress(since.elapsed())),
        };
        log.iter().map(sent).collect()
    }
}

async fn send(
    target: Target,
    connection: Connection,
    mut periods: watch::Receiver<Duration>,
    log: Log,
) {
    let client = match connection {
        Connection::New => client_with_idle_timeout(Duration::from_millis(1)),
        Connection::Kept => client(),
    };
    let slots = Arc::new(Semaphore::new(MAX_CONCURRENT));
    loop {
        let mut ticks = interval(*periods.borrow_and_update());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        // Otherwise each change would send a request at once.
        ticks.reset();
        loop {
            tokio::select! {
                changed = periods.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                _ = ticks.tick() => {}
            }
            let slot = Arc::clone(&slots).try_acquire_owned().ok();
            let since = Instant::now();
            let number = {
                let mut log = log.lock().unwrap();
                let outcome = if slot.is_some() { None } else { Some(Outcome::Failed) };
                log.push((Timestamp::now(), since, outcome));
                log.len() - 1
            };
            let Some(slot) = slot else { continue };
            let (client, target, log) = (client.clone(), target.clone(), Arc::clone(&log));
            tokio::spawn(async move {
                let _slot = slot;
                let outcome = match get_by(&client, &target.url, target.host.as_deref()).await {
                    Ok((status, _)) if status == 200 => Outcome::Ok(since.elapsed()),
                    _ => Outcome::Failed,
                };
                log.lock().unwrap().get_mut(number).unwrap().2 = Some(outcome);
            });
        }
    }
}

/// The 95th percentile.
pub fn p95(mut latencies: Vec<Duration>) -> Option<Duration> {
    latencies.sort();
    latencies.get(latencies.len() * 95 / 100).copied()
}
