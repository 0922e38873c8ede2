//! Bugs that a grid could have: the checker finds each of them in a history of the same load in which it
//! finds nothing without the bug.
//!
//! The bugs are in a store between the grid and its real one. Each node has a grid of its own on that
//! store, so that their calls of one object don't wait for each other.

use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use oprc_cp_storage::{
    Backend, Check, Entry, Error, Lease, Page, Result, Revision, Store, Transaction, Watch,
};
use oprc_odgm::{
    Grid,
    class::{Access, Class},
};
use oprc_tests::grid::{
    function::Functions,
    history::{History, Verdict},
    workload::Workload,
};
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc},
    task::JoinSet,
    time::sleep,
};

const NODES: usize = 3;
const OPERATIONS: usize = 2500;
/// Keys of objects and of invocations in the store.
const OBJECTS: &str = "o/";
const INVOCATIONS: &str = "i/";
/// How long a bug needs to matter: as long as a few calls.
const DELAY: Duration = Duration::from_millis(5);
const QUEUE: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Objects are written whatever version they have.
    NoVersionCheck,
    /// A node checks versions itself and writes then, although it isn't the owner any more.
    NoFence,
    /// A change is acknowledged before it is stored.
    EarlyAcknowledgement,
    /// A repeated idempotency key isn't recognised.
    NoDeduplication,
}

/// A store with a bug.
struct Planted {
    bug: Bug,
    /// Decides whether a transaction succeeds.
    accepting: Store,
    /// What is read.
    visible: Store,
    /// Accepted transactions that aren't visible, in their order.
    accepted: Mutex<mpsc::Sender<Transaction>>,
}

async fn store(bug: Bug, class: &Class) -> Store {
    let (accepted, mut queue) = mpsc::channel(QUEUE);
    let accepting = Store::memory();
    let visible =
        if bug == Bug::EarlyAcknowledgement { Store::memory() } else { accepting.clone() };
    // What a grid stores when it is opened first is there, so that both stores have the same revisions.
    for store in [&accepting, &visible] {
        Grid::open(store.clone(), class.clone()).await.unwrap();
    }
    let applying = visible.clone();
    tokio::spawn(async move {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, QUEUE).await > 0 {
            sleep(DELAY).await;
            for transaction in batch.drain(..) {
                applying.commit(transaction).await.unwrap();
            }
        }
    });
    Store::new(Planted { bug, accepting, visible, accepted: Mutex::new(accepted) })
}

impl Planted {
    async fn commit_early(&self, mut transaction: Transaction) -> Result<Revision> {
        // One at a time, so that both stores have the same revisions.
        let accepted = self.accepted.lock().await;
        let revision = self.accepting.commit(transaction.clone()).await?;
        transaction.checks.clear();
        accepted.send(transaction).await.map_err(|_| unavailable())?;
        Ok(revision)
    }

    async fn commit_unfenced(&self, mut transaction: Transaction) -> Result<Revision> {
        for (key, check) in std::mem::take(&mut transaction.checks) {
            let version = self.visible.get(&key).await?.map(|it| it.version);
            if !Check::holds(check, version) {
                return Err(Error::Conflict { key, version });
            }
        }
        transaction.fence = None;
        // Another node may write here.
        sleep(DELAY).await;
        self.visible.commit(transaction).await
    }
}

fn unavailable() -> Error {
    Error::Unavailable { reason: "the test has ended".to_owned() }
}

#[async_trait]
impl Backend for Planted {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.visible.get(key).await
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Entry>>> {
        self.visible.get_many(keys).await
    }

    async fn range(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page> {
        self.visible.range(prefix, after, limit).await
    }

    async fn commit(&self, mut transaction: Transaction) -> Result<Revision> {
        match self.bug {
            Bug::None => {}
            Bug::EarlyAcknowledgement => return self.commit_early(transaction).await,
            Bug::NoFence => return self.commit_unfenced(transaction).await,
            Bug::NoVersionCheck => transaction.checks.retain(|(key, _)| !key.starts_with(OBJECTS)),
            Bug::NoDeduplication => {
                transaction.checks.retain(|(key, _)| !key.starts_with(INVOCATIONS));
                transaction.changes.retain(|it| !it.key().starts_with(INVOCATIONS));
            }
        }
        self.visible.commit(transaction).await
    }

    async fn watch(&self, prefix: &str, after: Option<Revision>) -> Result<Watch> {
        self.visible.watch(prefix, after).await
    }

    async fn acquire_lease(&self, name: &str, identity: &str) -> Result<Lease> {
        self.visible.acquire_lease(name, identity).await
    }

    async fn close(&self) {
        self.visible.close().await;
    }
}

/// The history of a grid with a bug.
async fn history(bug: Bug) -> (Workload, History) {
    let functions = Functions::local().await;
    let class: Class = serde_json::from_value(functions.class(&[])).unwrap();
    let store = store(bug, &class).await;
    let (mut servers, mut nodes) = (JoinSet::new(), Vec::new());
    for _ in 0..NODES {
        let grid = Grid::open(store.clone(), class.clone()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        nodes.push(format!("http://{}", listener.local_addr().unwrap()));
        let router: Router = oprc_odgm::router(grid, Access::Internal);
        servers.spawn(async { axum::serve(listener, router).await.unwrap() });
    }
    let workload =
        Workload { max_pause: Duration::ZERO, lost_responses: 5, ..Workload::new(1, nodes) };
    let history = workload.run(functions.calls(), async |it| it.reaches(OPERATIONS).await).await;
    (workload, history)
}

async fn assert_found(bug: Bug) {
    let verdict = history(bug).await.1.check();
    assert!(matches!(verdict, Verdict::Illegal(_)), "{bug:?} wasn't found: {verdict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_without_a_bug_are_linearizable_also_without_owners() {
    let (workload, history) = history(Bug::None).await;
    history.assert_linearizable("no-bug");
    assert!(workload.assert_counts(&history) > 0);
    assert!(history.unknown() > 0, "no response was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_version_check_is_found() {
    assert_found(Bug::NoVersionCheck).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_fence_is_found() {
    assert_found(Bug::NoFence).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_before_the_commit_is_found() {
    assert_found(Bug::EarlyAcknowledgement).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_deduplication_is_found() {
    assert_found(Bug::NoDeduplication).await;
}
