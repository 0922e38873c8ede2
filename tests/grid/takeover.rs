//! Another node takes over from an owner that doesn't respond, and the former owner changes nothing.

use std::time::Duration;

use oprc_tests::{
    etcd, eventually,
    grid::{
        client::{Attempt, Client, Delivery},
        function::Hold,
        history::{Args, History, Kind, Operation},
        node::NodeProcess,
        nodes::Nodes,
    },
};
use rustix::process::Signal;
use serde_json::json;
use tokio::join;

const OBJECT: &str = "counter";
const SLOW: &str = "slow";
const LIMIT: Duration = Duration::from_mins(1);

/// Retries an operation until its outcome is known, and records it.
async fn certainly(history: &History, node: &str, kind: Kind, args: Args, key: Option<&str>) {
    let (client, call) = (Client::default(), history.now());
    let what = format!("{kind:?} at {node}");
    let response = eventually(&what, LIMIT, || async {
        match client.send(node, OBJECT, kind, &args, key, Delivery::Normal).await {
            Attempt::Done(response) => Ok(response),
            attempt => Err(format!("{attempt:?}")),
        }
    });
    let (object, result, returned) = (OBJECT.to_owned(), Some(response.await), history.now());
    history.record(Operation { client: 0, object, kind, args, result, call, returned });
}

async fn increment(history: &History, node: &str, by: u64, key: &str) {
    let args = Args { by: Some(by), ..Args::default() };
    certainly(history, node, Kind::Increment, args, Some(key)).await;
}

/// Pauses the owner of the object while its function is held. The response of the function arrives
/// meanwhile. Returns the owner, and the URL of another node.
async fn pause_owner(nodes: &Nodes, hold: Hold) -> (&NodeProcess, String) {
    let (urls, owner) = (nodes.urls(), format!("//{}:", hold.caller.await.unwrap()));
    let owner = urls.iter().position(|url| url.contains(&owner)).unwrap();
    nodes.processes[owner].signal(Signal::STOP);
    drop(hold.release);
    (&nodes.processes[owner], urls[(owner + 1) % urls.len()].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_paused_overwrites_nothing() {
    let history = History::default();
    let nodes = Nodes::replicated(3, &[], &etcd::program()).await;
    let state = [("count".to_owned(), json!(0))].into_iter().collect();
    let args = Args { state: Some(state), ..Args::default() };
    certainly(&history, &nodes.processes[0].url, Kind::Put, args, None).await;
    let hold = nodes.functions.calls().hold(SLOW);
    let slow = increment(&history, &nodes.processes[0].url, 10, SLOW);
    let others = async {
        let (owner, other) = pause_owner(&nodes, hold).await;
        for key in ["first", "second"] {
            increment(&history, &other, 1, key).await;
        }
        owner.signal(Signal::CONT);
        nodes.serves(owner).await;
        increment(&history, &other, 1, "third").await;
    };
    join!(slow, others);
    for url in nodes.urls() {
        certainly(&history, &url, Kind::Get, Args::default(), None).await;
    }
    history.assert_linearizable("paused-owner");
    assert_eq!(history.last_read(OBJECT).unwrap()["count"], json!(13));
}
