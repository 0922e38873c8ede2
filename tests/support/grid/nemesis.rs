//! Faults of the nodes of a grid, by a seed.

use std::{ops::Range, time::Duration};

use fastrand::Rng;
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::proof;

use super::{history::History, network::Cut, nodes::Nodes};

/// After a fault, clients make progress within this time without anyone's help.
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);
/// Operations that show that clients make progress.
const PROGRESS: usize = 100;
/// Most faults are shorter than what makes another node take over from one that doesn't respond.
const SHORT_MILLIS: Range<u64> = 100..3000;
const LONG_MILLIS: Range<u64> = 8000..20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` of a node and its children.
    Kill,
    /// `kill -9` of all nodes at once.
    KillAll,
    /// SIGSTOP of a node, but not of its children.
    Pause,
    FullDisk,
    /// Restarts one node after the other, as an update does.
    RollingRestart,
    /// `kill -9` of the etcd of a node.
    KillEtcd,
    /// SIGSTOP of the etcd of a node.
    PauseEtcd,
    Cut,
}

impl Fault {
    /// Faults of a grid with one node.
    pub const SINGLE: [Self; 4] = [Self::Kill, Self::Pause, Self::FullDisk, Self::RollingRestart];
    /// Faults of a grid with replicas.
    pub const REPLICATED: [Self; 8] = [
        Self::Kill,
        Self::KillAll,
        Self::Pause,
        Self::FullDisk,
        Self::RollingRestart,
        Self::KillEtcd,
        Self::PauseEtcd,
        Self::Cut,
    ];
}

/// Injects `count` of these faults one after the other, each once before one is repeated. After each,
/// waits until the clients make progress.
pub async fn inject(nodes: &Nodes, history: &History, seed: u64, faults: &[Fault], count: usize) {
    let mut random = Rng::with_seed(seed);
    let mut order = Vec::new();
    while order.len() < count {
        let mut each = faults.to_vec();
        random.shuffle(&mut each);
        order.extend(each);
    }
    for fault in order.into_iter().take(count) {
        progress(history, "before a fault").await;
        let is_long = proof::whole() && random.u32(0..8) == 0;
        let millis = if is_long { LONG_MILLIS } else { SHORT_MILLIS };
        let duration = Duration::from_millis(random.u64(millis));
        inject_one(nodes, fault, &mut random, duration).await;
        progress(history, &format!("after {fault:?}, seed {seed}")).await;
    }
}

/// Waits until clients have done some operations more.
pub async fn progress(history: &History, when: &str) {
    let len = history.len();
    let reached = timeout(RECOVERY_TIMEOUT, history.reaches(len + PROGRESS)).await;
    assert!(reached.is_ok(), "no progress {when}: {} operations", history.len() - len);
}

async fn inject_one(nodes: &Nodes, fault: Fault, random: &mut Rng, duration: Duration) {
    let at = random.usize(0..nodes.processes.len());
    let (process, disk) = nodes.processes.iter().zip(&nodes.disks).nth(at).expect("a node");
    match fault {
        Fault::Kill => {
            process.kill().await;
            sleep(duration).await;
            process.up();
        }
        Fault::KillAll => {
            for process in &nodes.processes {
                process.kill().await;
            }
            for process in &nodes.processes {
                process.up();
            }
        }
        Fault::Pause => {
            process.signal(Signal::STOP);
            sleep(duration).await;
            process.signal(Signal::CONT);
        }
        Fault::FullDisk => {
            disk.fill();
            sleep(duration).await;
            // A node that starts with a full disk must not damage anything either.
            process.kill().await;
            process.up();
            sleep(duration).await;
            disk.free();
        }
        Fault::RollingRestart => {
            for process in &nodes.processes {
                process.stop().await;
                process.up();
                nodes.serves(process).await;
            }
        }
        Fault::KillEtcd => process.signal_children(Signal::KILL),
        Fault::PauseEtcd => {
            process.signal_children(Signal::STOP);
            sleep(duration).await;
            process.signal_children(Signal::CONT);
        }
        Fault::Cut => {
            let network = nodes.network.as_ref().expect("a network");
            let count = u8::try_from(nodes.processes.len()).unwrap();
            let one = u8::try_from(at).unwrap();
            let other = (one + random.u8(1..count)) % count;
            let cuts = [Cut::Isolate(one), Cut::Link(one, other), Cut::OneWay(one, other)];
            network.cut(random.choice(cuts).unwrap());
            sleep(duration).await;
            network.heal();
        }
    }
}
