//! Another node takes over from an owner that doesn't respond, and the former owner overwrites nothing.

use std::time::{Duration, Instant};

use oprc_tests::{
    etcd,
    grid::{
        client::{Attempt, Client, Delivery},
        history::{Args, History, Kind, Operation},
        nodes::Nodes,
    },
};
use rustix::process::Signal;
use serde_json::json;
use tokio::{join, time::sleep};

const OBJECT: &str = "counter";
const LIMIT: Duration = Duration::from_mins(1);
/// More than a node needs to send a commit, and less than it waits for its outcome.
const COMMIT_TIME: Duration = Duration::from_millis(500);
const BACKOFF: Duration = Duration::from_millis(50);

/// Retries an operation until its outcome is known, and records it.
async fn certainly(history: &History, node: &str, kind: Kind, args: Args, key: Option<&str>) {
    let (client, started, call) = (Client::default(), Instant::now(), history.now());
    loop {
        match client.send(node, OBJECT, kind, &args, key, Delivery::Normal).await {
            Attempt::Done(response) => {
                let (object, returned) = (OBJECT.to_owned(), history.now());
                let result = Some(response);
                history.record(Operation { client: 0, object, kind, args, result, call, returned });
                return;
            }
            attempt => assert!(started.elapsed() < LIMIT, "{kind:?}: {attempt:?}"),
        }
        sleep(BACKOFF).await;
    }
}

async fn increment(history: &History, node: &str, by: u64, key: &str) {
    let args = Args { by: Some(by), ..Args::default() };
    certainly(history, node, Kind::Increment, args, Some(key)).await;
}

/// The owner of an object is paused when its function has responded, but before it can store that, and
/// continues after others have changed the object.
async fn pause_owner() -> History {
    let nodes = Nodes::replicated(3, &[], &etcd::program()).await;
    let (urls, history) = (nodes.urls(), History::default());
    let state = [("count".to_owned(), json!(0))].into_iter().collect();
    let args = Args { state: Some(state), ..Args::default() };
    certainly(&history, &urls[0], Kind::Put, args, None).await;
    let hold = nodes.functions.calls().hold("slow");
    let slow = increment(&history, &urls[0], 10, "slow");
    let others = async {
        let owner = format!("//{}:", hold.caller.await.unwrap());
        let owner = urls.iter().position(|url| url.contains(&owner)).unwrap();
        let (paused, other) = (&nodes.processes[owner], &urls[(owner + 1) % urls.len()]);
        paused.signal(Signal::STOP);
        paused.signal_children(Signal::STOP);
        drop(hold.release);
        for key in ["first", "second"] {
            increment(&history, other, 1, key).await;
        }
        // It commits before its etcd can tell it that it isn't the owner any more.
        paused.signal(Signal::CONT);
        sleep(COMMIT_TIME).await;
        paused.signal_children(Signal::CONT);
        nodes.serves(paused).await;
        increment(&history, other, 1, "third").await;
    };
    join!(slow, others);
    for url in &urls {
        certainly(&history, url, Kind::Get, Args::default(), None).await;
    }
    history
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_paused_overwrites_nothing() {
    let history = pause_owner().await;
    history.assert_linearizable("paused-owner");
    assert_eq!(history.last_read(OBJECT).unwrap()["count"], json!(13));
}
