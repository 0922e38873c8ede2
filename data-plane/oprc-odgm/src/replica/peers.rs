//! Whether the other nodes of the grid respond.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{
    cluster::Cluster,
    file_size::SpaceReport,
    peer_client::{PeerClient, PeerError},
};
use crate::config::{ReplicaConfig, index_of};

const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// A node that is silent for longer hangs.
const MAX_SILENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PingReply {
    /// Whether the node serves calls and may own partitions.
    pub(crate) is_ready: bool,
    #[serde(default)]
    pub(crate) space: SpaceReport,
}

#[derive(Clone, Copy, Debug)]
struct PeerState {
    /// When it last responded; at first, when it became known.
    responded: Instant,
    /// It doesn't accept connections.
    is_refusing: bool,
    is_ready: bool,
    space: SpaceReport,
}

impl PeerState {
    fn new() -> Self {
        let (responded, space) = (Instant::now(), SpaceReport::default());
        Self { responded, is_refusing: false, is_ready: false, space }
    }

    fn is_dead(&self) -> bool {
        self.is_refusing || self.responded.elapsed() > MAX_SILENCE
    }
}

/// The other nodes, by name.
#[derive(Debug)]
pub(crate) struct Peers {
    config: ReplicaConfig,
    client: Arc<PeerClient>,
    states: Mutex<HashMap<String, PeerState>>,
    rounds: watch::Sender<u64>,
}

impl Peers {
    pub(crate) fn new(config: ReplicaConfig, client: Arc<PeerClient>) -> Self {
        Self { config, client, states: Mutex::default(), rounds: watch::Sender::new(0) }
    }

    /// Whether a node refuses connections or hangs.
    pub(crate) fn is_dead(&self, name: &str) -> bool {
        self.states.lock().get(name).is_some_and(PeerState::is_dead)
    }

    /// For how long a node hasn't responded, if it is dead.
    pub(crate) fn dead_for(&self, name: &str) -> Option<Duration> {
        let states = self.states.lock();
        let state = states.get(name).filter(|it| it.is_dead())?;
        Some(state.responded.elapsed())
    }

    pub(crate) fn is_ready(&self, name: &str) -> bool {
        self.states.lock().get(name).is_some_and(|it| it.is_ready && !it.is_dead())
    }

    /// Whether the file of a node that responds has no space for writes of callers.
    pub(crate) fn is_reserve_used(&self) -> bool {
        let states = self.states.lock();
        states.values().any(|it| it.space.is_reserve_used && !it.is_dead())
    }

    /// The last report of a node that responds. One that doesn't keeps no other from freeing space.
    pub(crate) fn space(&self, name: &str) -> SpaceReport {
        let states = self.states.lock();
        states.get(name).filter(|it| !it.is_dead()).map(|it| it.space).unwrap_or_default()
    }

    /// When a node last responded.
    pub(crate) fn responded(&self, name: &str) -> Option<Instant> {
        self.states.lock().get(name).map(|it| it.responded)
    }

    /// Resolves when a node is dead.
    pub(crate) async fn died(&self, name: &str) {
        let mut rounds = self.rounds.subscribe();
        // The sender is part of this.
        let _ = rounds.wait_for(|_| self.is_dead(name)).await;
    }

    /// Pings all other members until the future is dropped.
    pub(crate) async fn monitor(&self, cluster: &Cluster) {
        let mut ticks = interval(PING_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let names = cluster.others();
            self.states.lock().retain(|name, _| names.contains(name));
            let mut pings = JoinSet::new();
            for name in names {
                let Some(index) = index_of(&name) else { continue };
                self.states.lock().entry(name.clone()).or_insert_with(PeerState::new);
                let (client, address) = (self.client.clone(), self.config.peer_address(index));
                pings.spawn(async move {
                    let reply = client.call(&address, "/ping", &(), PING_TIMEOUT).await;
                    (name, reply)
                });
            }
            while let Some(ended) = pings.join_next().await {
                if let Ok((name, reply)) = ended {
                    self.record(&name, &reply);
                }
            }
            self.rounds.send_modify(|round| *round += 1);
        }
    }

    fn record(&self, name: &str, reply: &Result<PingReply, PeerError>) {
        let mut states = self.states.lock();
        let Some(state) = states.get_mut(name) else { return };
        let was_dead = state.is_dead();
        match reply {
            Ok(PingReply { is_ready, space }) => {
                *state = PeerState {
                    responded: Instant::now(),
                    is_refusing: false,
                    is_ready: *is_ready,
                    space: *space,
                };
            }
            Err(PeerError::NotSent(_)) => (state.is_refusing, state.is_ready) = (true, false),
            Err(PeerError::Broken(_) | PeerError::Status(..)) => state.is_ready = false,
        }
        if was_dead != state.is_dead() {
            tracing::info!(node = name, is_dead = state.is_dead(), "peer liveness changed");
        }
    }
}
