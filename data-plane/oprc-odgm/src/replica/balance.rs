//! Moves partitions to the nodes that should own them.

use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{
    Replica, Serving,
    ownership::{Takeover, home},
};

const INTERVAL: Duration = Duration::from_secs(1);
/// How often partitions move back to their home from a node that responds.
const REBALANCE_INTERVAL: Duration = Duration::from_secs(10);
/// A node that restarts keeps its partitions unless they are called.
const MAX_DEAD: Duration = Duration::from_secs(5);
/// How long a node that shuts down waits for running calls.
const TURNS_TIMEOUT: Duration = Duration::from_secs(5);

impl Replica {
    /// Takes partitions whose home is this node until the future is dropped.
    pub(crate) async fn balance(&self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rebalanced = None::<Instant>;
        loop {
            ticks.tick().await;
            if !self.is_ready() || !self.ownership.is_complete() {
                rebalanced = None;
                continue;
            }
            let is_due = rebalanced.is_none_or(|it| it.elapsed() >= REBALANCE_INTERVAL);
            let wanted = self.wanted(is_due);
            if wanted.is_empty() {
                // Until then another node may have been faster.
                rebalanced = if is_due { Some(Instant::now()) } else { rebalanced };
                continue;
            }
            match self.ownership.take(wanted).await {
                Ok(taken) => tracing::info!(partitions = taken, "took over partitions"),
                Err(error) => tracing::warn!(%error, "cannot take over partitions, retrying"),
            }
        }
    }

    /// Partitions that this node should take now: those without an owner that can serve, and all others
    /// whose home it is if `is_due`.
    fn wanted(&self, is_due: bool) -> Vec<Takeover> {
        let (candidates, voters) = (self.candidates(), self.cluster.voters());
        // A node that isn't known to be ready yet may be, and keeps its partitions.
        let living: Vec<_> = voters.iter().filter(|it| !self.peers.is_dead(it)).cloned().collect();
        let mut wanted = Vec::new();
        for key in self.ownership.keys() {
            let owner = self.ownership.owner(&key);
            let home = match &owner {
                None => home(&key, &candidates),
                Some(owner) if self.ownership.is_own(owner) => continue,
                Some(owner) => {
                    let node = &owner.record.node;
                    let is_dead = self.peers.dead_for(node).is_some_and(|it| it > MAX_DEAD);
                    match () {
                        () if is_dead || !voters.contains(node) => home(&key, &candidates),
                        () if is_due => home(&key, &living),
                        () => continue,
                    }
                }
            };
            if home == Some(&self.config.name) {
                wanted.push((key, owner));
            }
        }
        wanted
    }

    /// Gives all partitions to other nodes, after `idle`: when no call runs. Calls that come meanwhile wait
    /// for this, and are then forwarded.
    pub(crate) async fn hand_over(&self, idle: impl Future<Output = ()>) {
        self.serving.send_replace(Serving::HandingOver);
        if timeout(TURNS_TIMEOUT, idle).await.is_err() {
            tracing::warn!("calls still run, other nodes will repeat them");
        }
        let candidates = self.candidates();
        let own = self.ownership.keys().filter_map(|key| {
            let owner = self.ownership.owner(&key).filter(|it| self.ownership.is_own(it))?;
            let target = self.record_of(home(&key, &candidates)?)?;
            Some((key, Some(owner), target))
        });
        match self.ownership.assign(own.collect()).await {
            Ok(partitions) => tracing::info!(partitions, "handed over partitions"),
            Err(error) => tracing::warn!(%error, "cannot hand over partitions"),
        }
        self.serving.send_replace(Serving::HandedOver);
    }
}
