//! Frees space of the store.
//!
//! etcd keeps old versions for a while, and accepts no writes after its file has reached the quota until the
//! file is smaller and the alarm is cleared. Space of old versions is reused after they were compacted; the
//! file becomes smaller when it is defragmented.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use oprc_cp_storage::{EtcdAdmin, Result};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    Replica,
    cluster::ClusterStatus,
    file_size::FileSize,
};

const INTERVAL: Duration = Duration::from_secs(2);
/// A member serves nothing while its file is written again.
const DEFRAGMENT_INTERVAL: Duration = Duration::from_mins(5);
/// While writes of callers are refused.
const URGENT_DEFRAGMENT_INTERVAL: Duration = Duration::from_mins(1);
/// History that a grid keeps for watches and backups although space is low.
const LOW_SPACE_HISTORY: Duration = Duration::from_mins(1);

/// What to do about the file of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileAction {
    Nothing,
    /// The file is much larger than its contents.
    Defragment,
    /// There is space again.
    ClearAlarm,
}

fn action(file: &FileSize, is_out_of_space: bool) -> FileAction {
    match () {
        () if is_out_of_space && !file.is_large() => FileAction::ClearAlarm,
        () if file.needs_defragmentation(is_out_of_space) => FileAction::Defragment,
        () => FileAction::Nothing,
    }
}

/// The shortest time between two defragmentations of a file.
fn defragment_interval(is_out_of_space: bool, is_reserve_used: bool) -> Duration {
    match () {
        () if is_out_of_space => Duration::ZERO,
        () if is_reserve_used => URGENT_DEFRAGMENT_INTERVAL,
        () => DEFRAGMENT_INTERVAL,
    }
}

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
        let target =
            if is_refusing { self.seen.back() } else { self.seen.front().filter(is_old) };
        target.map(|it| it.1).filter(|it| *it > self.compacted)
    }
}

impl Replica {
    /// Keeps the file of the own member small until the future is dropped. `admin` needs a deadline that
    /// allows for writing the file.
    pub(crate) async fn free_space(&self, admin: &EtcdAdmin) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut revisions, mut defragmented) = (Revisions::default(), None::<Instant>);
        loop {
            ticks.tick().await;
            let status = self.cluster.status();
            let compacted = self.compact(&status, admin, &mut revisions).await;
            let freed = match compacted {
                Ok(()) => self.free_file(&status, admin, &mut defragmented).await,
                error => error,
            };
            if let Err(error) = freed {
                tracing::warn!(%error, "cannot free space of the store, retrying");
            }
        }
    }

    /// The leader deletes history before etcd's own compaction if space is low, and all of it if writes
    /// are refused. Backups that read it fail, and watches begin again.
    async fn compact(
        &self,
        status: &ClusterStatus,
        admin: &EtcdAdmin,
        revisions: &mut Revisions,
    ) -> Result<()> {
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

    async fn free_file(
        &self,
        status: &ClusterStatus,
        admin: &EtcdAdmin,
        defragmented: &mut Option<Instant>,
    ) -> Result<()> {
        let Some(own) = &status.own else { return Ok(()) };
        let (is_leader, is_out_of_space) = (status.is_leader(), status.is_out_of_space);
        let file = FileSize::new(own, self.config.etcd_quota_bytes);
        let least = defragment_interval(is_out_of_space, file.is_reserve_used());
        let is_recent = defragmented.is_some_and(|it| it.elapsed() < least);
        match action(&file, is_out_of_space) {
            FileAction::Defragment if is_recent => Ok(()),
            // A leader that serves nothing would be replaced by an election.
            FileAction::Defragment if is_leader && status.members.len() > 1 => {
                self.move_leader(admin, &status.members).await
            }
            FileAction::Defragment => {
                tracing::info!(bytes = own.bytes, in_use = own.bytes_in_use, "defragmenting etcd");
                *defragmented = Some(Instant::now());
                admin.defragment().await
            }
            FileAction::ClearAlarm if is_leader => {
                tracing::info!("store has space again, accepting writes");
                admin.clear_out_of_space().await
            }
            FileAction::ClearAlarm | FileAction::Nothing => Ok(()),
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
