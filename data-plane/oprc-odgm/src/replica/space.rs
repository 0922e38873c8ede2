//! Frees space of the store.
//!
//! etcd keeps old versions for a while, and accepts no writes after its file has reached the quota until the
//! file is smaller and the alarm is cleared. Space of old versions is reused after they were compacted; the
//! file becomes smaller when it is defragmented.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use oprc_cp_storage::{EtcdAdmin, Result as StoreResult};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    Replica,
    cluster::ClusterStatus,
    defragmentation::{DefragmentOrder, Leadership, NextDefragmentation, next_defragmentation},
    file_size::FileSize,
};

const INTERVAL: Duration = Duration::from_secs(2);
/// History that a grid keeps for watches and backups although space is low.
const LOW_SPACE_HISTORY: Duration = Duration::from_mins(1);

/// Revisions of the store by time.
#[derive(Debug, Default)]
struct Revisions {
    /// In the order of time.
    seen: VecDeque<(Instant, u64)>,
    compacted: u64,
}

impl Revisions {
    fn add(&mut self, now: Instant, revision: u64) {
        self.seen.push_back((now, revision));
        let is_old = |it: &(Instant, u64)| now.duration_since(it.0) >= LOW_SPACE_HISTORY;
        // The first is the newest that is old enough.
        while self.seen.get(1).is_some_and(is_old) {
            self.seen.pop_front();
        }
    }

    /// Up to which revision history is deleted now. `is_refusing` if callers can't write.
    fn due(&self, now: Instant, is_refusing: bool) -> Option<u64> {
        let is_old = |it: &&(Instant, u64)| now.duration_since(it.0) >= LOW_SPACE_HISTORY;
        let target = if is_refusing { self.seen.back() } else { self.seen.front().filter(is_old) };
        target.map(|it| it.1).filter(|it| *it > self.compacted)
    }
}

impl Replica {
    /// Frees space of all members while this node is the leader, until the future is dropped. `admin` needs
    /// a deadline that allows for a compaction.
    pub(crate) async fn free_space(&self, admin: &EtcdAdmin) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut revisions, mut leadership) = (Revisions::default(), Leadership::default());
        loop {
            ticks.tick().await;
            let status = self.cluster.status();
            let term = status.own.as_ref().filter(|_| status.is_leader()).map(|it| it.term);
            let is_settled = leadership.is_settled(term, Instant::now());
            let compacted = self.compact(&status, admin, &mut revisions).await;
            let freed = match compacted {
                Ok(()) if is_settled => self.free_files(&status, admin).await,
                done => done.map_err(|error| error.to_string()),
            };
            if let Err(error) = freed {
                tracing::warn!(error, "cannot free space of the store, retrying");
            }
            // The others report the outcome with their next pings.
            ticks.reset();
        }
    }

    /// The leader deletes history before etcd's own compaction if space is low, and all of it if writes
    /// are refused. Backups that read it fail, and watches begin again.
    async fn compact(
        &self,
        status: &ClusterStatus,
        admin: &EtcdAdmin,
        revisions: &mut Revisions,
    ) -> StoreResult<()> {
        if !status.is_leader() {
            return Ok(());
        }
        let (now, revision) = (Instant::now(), self.ownership.revision().await?);
        revisions.add(now, revision.0);
        if !self.cluster.is_low_on_space() {
            return Ok(());
        }
        let is_refusing = status.is_out_of_space || self.is_reserve_used();
        let Some(revision) = revisions.due(now, is_refusing) else { return Ok(()) };
        tracing::info!(revision, "space is low, compacting the history of the store");
        admin.compact(revision).await?;
        revisions.compacted = revision;
        Ok(())
    }

    /// Has one file defragmented, or clears the alarm after none is large any more.
    async fn free_files(&self, status: &ClusterStatus, admin: &EtcdAdmin) -> Result<(), String> {
        let Some(own) = &status.own else { return Ok(()) };
        let order = DefragmentOrder { leader: own.id, term: own.term };
        let (others, is_reserve_used) = (self.other_members(), self.is_reserve_used());
        let is_refusing = status.is_out_of_space || is_reserve_used;
        match next_defragmentation(self.space_report(), &others, is_refusing) {
            NextDefragmentation::Other(name) => self.order_defragmentation(name, &order).await,
            NextDefragmentation::Own if status.members.len() > 1 => {
                let moved = self.move_leader(admin, &status.members).await;
                moved.map_err(|error| error.to_string())
            }
            NextDefragmentation::Own => self.defragment(admin, &order).await,
            NextDefragmentation::Nothing => {
                let file = FileSize::new(own, self.config.etcd_quota_bytes);
                if !status.is_out_of_space || file.is_large() || is_reserve_used {
                    return Ok(());
                }
                tracing::info!("store has space again, accepting writes");
                admin.clear_out_of_space().await.map_err(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_kept_for_a_minute_unless_writes_are_refused() {
        let (mut revisions, start) = (Revisions::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, revision) in [(0, 10), (30, 20), (59, 30)] {
            revisions.add(at(second), revision);
        }
        assert_eq!(revisions.due(at(59), false), None);
        assert_eq!(revisions.due(at(59), true), Some(30));
        revisions.add(at(61), 40);
        assert_eq!(revisions.due(at(61), false), Some(10));
        revisions.add(at(95), 50);
        assert_eq!(revisions.due(at(95), false), Some(20));
        revisions.compacted = 20;
        assert_eq!(revisions.due(at(95), false), None);
    }
}
