//! Requests that go on while a class changes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval},
};

use crate::http::{client, client_that_keeps, get_by};

/// A request is begun that often.
const PACE: Duration = Duration::from_millis(20);
/// So many may be under way at once.
const AT_ONCE: usize = 64;
/// How long requests take to be answered, in turn: some outlast what they are answered by.
const SLEEPS: [u64; 4] = [0, 50, 0, 600];
/// How long a connection is kept that isn't used: less than the function goes on once it is told to
/// end, when each of its answers ends a connection. Who keeps one for longer may send a request just
/// as the other side closes it, whatever a platform does.
const KEPT: Duration = Duration::from_secs(1);

/// Where requests go: an address within reach of this machine, and the host that is asked for,
/// where that is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The address.
    pub url: String,
    /// The host that is asked for.
    pub host: Option<String>,
}

impl Target {
    /// An address that is asked for by its own name.
    pub fn plain(url: &str) -> Self {
        Self { url: url.to_owned(), host: None }
    }
}

/// What a request travels by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Connection {
    /// One of its own.
    New,
    /// One of those that are kept for the next request.
    Kept,
}

/// How many requests were sent where, and by what.
pub type Sent = BTreeMap<(Target, Connection), usize>;

/// A request that wasn't answered well.
#[derive(Debug)]
pub struct Dropped {
    /// When it was sent, after the load began.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
    /// Where it went.
    pub target: Target,
    /// What it travelled by.
    pub connection: Connection,
    /// What came of it.
    pub problem: String,
}

/// Requests at a steady pace, one half each by a connection of its own, the other by a client that
/// keeps its connections.
pub struct Load {
    target: watch::Sender<Target>,
    over: watch::Sender<bool>,
    task: JoinHandle<(Sent, Vec<Dropped>)>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Load {
    /// Begins.
    pub fn begin(target: Target) -> Self {
        let (target, targets) = watch::channel(target);
        let (over, is_over) = watch::channel(false);
        Self { target, over, task: tokio::spawn(send(targets, is_over)) }
    }

    /// Sends requests elsewhere from now on.
    pub fn turn_to(&self, target: Target) {
        self.target.send_replace(target);
    }

    /// Ends, and gives how many requests were sent. Each must have been answered with 200.
    pub async fn end(mut self) -> Sent {
        self.over.send_replace(true);
        let (sent, dropped) = (&mut self.task).await.unwrap();
        let all: usize = sent.values().sum();
        assert!(dropped.is_empty(), "{} of {all} requests dropped: {dropped:#?}", dropped.len());
        sent
    }
}

async fn send(
    targets: watch::Receiver<Target>,
    mut is_over: watch::Receiver<bool>,
) -> (Sent, Vec<Dropped>) {
    let begun = Instant::now();
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut requests = JoinSet::new();
    let (mut sent, mut dropped) = (Sent::new(), Vec::new());
    let kept = client_that_keeps(KEPT);
    // Each connection with each sleep.
    let turns_of =
        SLEEPS.into_iter().flat_map(|sleep| [(sleep, Connection::New), (sleep, Connection::Kept)]);
    for (sleep, connection) in turns_of.cycle() {
        tokio::select! {
            _ = pace.tick() => {}
            _ = is_over.wait_for(|over| *over) => break,
        }
        let turn = Arc::clone(&turns).acquire_owned().await.unwrap();
        let target = targets.borrow().clone();
        *sent.entry((target.clone(), connection)).or_default() += 1;
        let client = if connection == Connection::Kept { kept.clone() } else { client() };
        requests.spawn(async move {
            let _turn = turn;
            let asked = Instant::now();
            let url = format!("{}/?name=load&sleep_ms={sleep}", target.url);
            let problem = match get_by(&client, &url, target.host.as_deref()).await {
                Ok((status, body)) if status == 200 && body.contains("Hello, load!") => {
                    return None;
                }
                Ok((status, body)) => format!("{status}: {body}"),
                Err(error) => error,
            };
            let (after, took) = (asked.duration_since(begun), asked.elapsed());
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
