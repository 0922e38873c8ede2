//! Continuous requests while a class changes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval},
};

use crate::http::{client, client_with_idle_timeout, get_by};

const REQUEST_INTERVAL: Duration = Duration::from_millis(20);
/// Bound on concurrent requests.
const MAX_CONCURRENT: usize = 64;
/// Response times in milliseconds, in turn: some requests outlast the pod that serves them.
const SLEEPS: [u64; 4] = [0, 50, 0, 600];
/// Idle time of pooled connections: shorter than the function's grace period, in which each
/// response closes its connection. A longer one could race with that on any platform.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A URL that this machine reaches, and the Host header if it differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub url: String,
    pub host: Option<String>,
}

impl Target {
    pub fn plain(url: &str) -> Self {
        Self { url: url.to_owned(), host: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connection {
    New,
    /// Pooled.
    Kept,
}

/// Numbers of requests.
pub type Sent = BTreeMap<(Target, Connection), usize>;

/// A failed request.
#[derive(Debug)]
pub struct Dropped {
    /// Since the load started.
    pub after: Duration,
    pub took: Duration,
    pub target: Target,
    pub connection: Connection,
    pub problem: String,
}

/// Requests at a constant rate, half of them on new connections, half on pooled ones.
pub struct Load {
    target: watch::Sender<Target>,
    stop: watch::Sender<bool>,
    task: JoinHandle<(Sent, Vec<Dropped>)>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Load {
    pub fn begin(target: Target) -> Self {
        let (target, targets) = watch::channel(target);
        let (stop, stopped) = watch::channel(false);
        Self { target, stop, task: tokio::spawn(send(targets, stopped)) }
    }

    /// Changes the target.
    pub fn turn_to(&self, target: Target) {
        self.target.send_replace(target);
    }

    /// Stops, and returns the numbers of requests. Each must have succeeded.
    pub async fn end(mut self) -> Sent {
        self.stop.send_replace(true);
        let (sent, dropped) = (&mut self.task).await.unwrap();
        let all: usize = sent.values().sum();
        assert!(dropped.is_empty(), "{} of {all} requests dropped: {dropped:#?}", dropped.len());
        sent
    }
}

async fn send(
    targets: watch::Receiver<Target>,
    mut stopped: watch::Receiver<bool>,
) -> (Sent, Vec<Dropped>) {
    let started = Instant::now();
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut ticks = interval(REQUEST_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut requests = JoinSet::new();
    let (mut sent, mut dropped) = (Sent::new(), Vec::new());
    let pooled = client_with_idle_timeout(IDLE_TIMEOUT);
    // All combinations.
    let combinations =
        SLEEPS.into_iter().flat_map(|sleep| [(sleep, Connection::New), (sleep, Connection::Kept)]);
    for (sleep, connection) in combinations.cycle() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.wait_for(|stop| *stop) => break,
        }
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let target = targets.borrow().clone();
        *sent.entry((target.clone(), connection)).or_default() += 1;
        let client = if connection == Connection::Kept { pooled.clone() } else { client() };
        requests.spawn(async move {
            let _permit = permit;
            let sent_at = Instant::now();
            let url = format!("{}/?name=load&sleep_ms={sleep}", target.url);
            let problem = match get_by(&client, &url, target.host.as_deref()).await {
                Ok((status, body)) if status == 200 && body.contains("Hello, load!") => {
                    return None;
                }
                Ok((status, body)) => format!("{status}: {body}"),
                Err(error) => error,
            };
            let (after, took) = (sent_at.duration_since(started), sent_at.elapsed());
            Some(Dropped { after, took, target, connection, problem })
        });
        while let Some(done) = requests.try_join_next() {
            dropped.extend(done.unwrap());
        }
    }
    dropped.extend(requests.join_all().await.into_iter().flatten());
    dropped.sort_by_key(|one| one.after);
    (sent, dropped)
}
