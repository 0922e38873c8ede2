//! Each change triggers a call: none is lost, and those of an object are in the order of its changes.

use std::{collections::HashSet, time::Duration};

use oprc_tests::{
    eventually,
    grid::{
        client::Client,
        function::Calls,
        history::History,
        nemesis::{Fault, inject},
        nodes::Nodes,
        workload::Workload,
    },
};
use serde_json::{Value, json};
use tokio::{join, time::sleep};

pub(crate) const TRIGGER: &str = "observe";
/// After the last change. A trigger that failed is repeated after at most 30 s.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(2);

/// A load of changes, and the faults meanwhile.
pub(crate) struct EventLoad {
    pub(crate) seed: u64,
    pub(crate) changes: usize,
    pub(crate) faults: usize,
    /// How long the function doesn't respond.
    pub(crate) outage: Duration,
}

/// What was delivered.
#[derive(Default)]
pub(crate) struct Delivered {
    pub(crate) events: usize,
    /// Events that were delivered again.
    pub(crate) repeated: usize,
}

fn workload(seed: u64, nodes: &Nodes) -> Workload {
    Workload {
        counters: 20,
        increments_only: true,
        max_pause: Duration::from_millis(5),
        ..Workload::new(seed, nodes.urls())
    }
}

/// The ids of the events of an object, in the order in which each was delivered first. Ids of later
/// changes are greater.
fn first_deliveries(calls: &Calls, object: &str) -> Vec<String> {
    let (mut seen, mut first) = (HashSet::new(), Vec::new());
    for observed in calls.observed(object) {
        if seen.insert(observed.invocation.clone()) {
            first.push(observed.invocation);
        }
    }
    first
}

/// Waits until all changes of an object were delivered, and asserts their order.
async fn assert_delivered(calls: &Calls, history: &History, object: &str) -> Delivered {
    let changes = history.writes(object);
    let what = format!("events of {object}");
    let delivered = eventually(&what, DELIVERY_TIMEOUT, || async {
        let delivered = first_deliveries(calls, object);
        let count = delivered.len();
        if count < changes { Err(format!("{count} of {changes}")) } else { Ok(delivered) }
    });
    let delivered = delivered.await;
    assert_eq!(delivered.len(), changes, "{object}: events without a change: {delivered:?}");
    assert!(delivered.is_sorted(), "{object}: wrong order: {delivered:?}");
    let repeated = calls.observed(object).len() - changes;
    Delivered { events: changes, repeated }
}

pub(crate) async fn check_events(nodes: &Nodes, faults: &[Fault], load: &EventLoad) -> Delivered {
    let (workload, calls) = (workload(load.seed, nodes), nodes.functions.calls());
    let history = workload
        .run(calls, async |history| {
            let outage = async {
                history.reaches(load.changes / 3).await;
                calls.set_down(true);
                sleep(load.outage).await;
                calls.set_down(false);
            };
            let faults = inject(nodes, history, load.seed, faults, load.faults);
            join!(outage, faults, history.reaches(load.changes));
        })
        .await;
    workload.assert_counts(&history);
    let mut total = Delivered::default();
    for counter in 0..workload.counters {
        let delivered = assert_delivered(calls, &history, &workload.name(counter)).await;
        total.events += delivered.events;
        total.repeated += delivered.repeated;
    }
    total
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_message_blocks_only_its_object_and_is_visible() {
    let nodes = Nodes::single(&[TRIGGER]).await;
    let (workload, calls) = (workload(1, &nodes), nodes.functions.calls());
    let poison = &workload.name(0);
    calls.set_poison(Some(poison));
    let history = workload.run(calls, async |history| history.reaches(200).await).await;
    for counter in 1..workload.counters {
        assert_delivered(calls, &history, &workload.name(counter)).await;
    }
    let (client, url) = (Client::default(), format!("{}/events/parked", nodes.urls()[0]));
    let parked = eventually("a parked event", DELIVERY_TIMEOUT, || async {
        let (_, parked) = client.get(&url).await?;
        let first = parked.get(0).cloned();
        first.ok_or_else(|| format!("{parked}"))
    });
    let parked: Value = parked.await;
    let (key, reason) = (parked["key"].as_str().unwrap(), parked["reason"].as_str().unwrap());
    assert!(key.contains(poison) && reason.contains("poison"), "{parked}");
    assert_eq!(calls.observed(poison), []);
    calls.set_poison(None);
    let (status, _) = client.post(&format!("{url}/retry"), &json!({"key": key})).await.unwrap();
    assert!(status.is_success(), "{status}");
    assert_delivered(calls, &history, poison).await;
    assert_eq!(client.get(&url).await.unwrap().1, json!([]));
}
