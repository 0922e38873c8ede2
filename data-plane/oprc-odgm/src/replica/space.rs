//! Frees space of the store: etcd reuses the space of old versions, but accepts no writes after its file has
//! reached the quota until the file is smaller and the alarm is cleared.

use std::time::{Duration, Instant};

use oprc_cp_storage::{EtcdAdmin, EtcdStatus, Result};
use tokio::time::{MissedTickBehavior, interval};

use super::Replica;

const INTERVAL: Duration = Duration::from_secs(5);
/// A member serves nothing while its file is written again.
const DEFRAGMENT_INTERVAL: Duration = Duration::from_mins(5);

/// What to do about the file of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpaceAction {
    Nothing,
    /// Most of a large file is unused.
    Defragment,
    /// There is space again.
    ClearAlarm,
}

fn action(status: &EtcdStatus, is_out_of_space: bool, quota: u64) -> SpaceAction {
    let is_large = status.bytes > quota / 10 * 8;
    let is_sparse = status.bytes_in_use < status.bytes / 2;
    match () {
        () if is_large && is_sparse => SpaceAction::Defragment,
        () if is_out_of_space && !is_large => SpaceAction::ClearAlarm,
        () => SpaceAction::Nothing,
    }
}

impl Replica {
    /// Keeps the file of the own member small until the future is dropped. `admin` needs a deadline that
    /// allows for writing the file.
    pub(crate) async fn free_space(&self, admin: &EtcdAdmin) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut defragmented = None::<Instant>;
        loop {
            ticks.tick().await;
            if let Err(error) = self.free_space_once(admin, &mut defragmented).await {
                tracing::warn!(%error, "cannot free space of the store, trying again");
            }
        }
    }

    async fn free_space_once(
        &self,
        admin: &EtcdAdmin,
        defragmented: &mut Option<Instant>,
    ) -> Result<()> {
        let status = self.cluster.status();
        let Some(own) = &status.own else { return Ok(()) };
        let is_leader = status.is_leader();
        match action(own, status.is_out_of_space, self.config.etcd_quota_bytes) {
            SpaceAction::Defragment
                if defragmented.is_some_and(|it| it.elapsed() < DEFRAGMENT_INTERVAL) =>
            {
                Ok(())
            }
            // A leader that serves nothing would be replaced by an election.
            SpaceAction::Defragment if is_leader && status.members.len() > 1 => {
                self.move_leader(admin, &status.members).await
            }
            SpaceAction::Defragment => {
                tracing::info!(bytes = own.bytes, in_use = own.bytes_in_use, "defragmenting etcd");
                *defragmented = Some(Instant::now());
                admin.defragment().await
            }
            SpaceAction::ClearAlarm if is_leader => {
                tracing::info!("the store has space again");
                admin.clear_out_of_space().await
            }
            SpaceAction::ClearAlarm | SpaceAction::Nothing => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_with_unused_space_are_written_again() {
        let action = |bytes, bytes_in_use, is_out_of_space| {
            let (leader, errors) = (Some(1), Vec::new());
            let (id, is_learner, term, index) = (1, false, 1, 1);
            let status =
                EtcdStatus { id, leader, is_learner, term, index, bytes, bytes_in_use, errors };
            action(&status, is_out_of_space, 1000)
        };
        assert_eq!(action(900, 100, false), SpaceAction::Defragment);
        assert_eq!(action(900, 100, true), SpaceAction::Defragment);
        assert_eq!(action(900, 800, true), SpaceAction::Nothing);
        assert_eq!(action(500, 100, true), SpaceAction::ClearAlarm);
        assert_eq!(action(500, 100, false), SpaceAction::Nothing);
    }
}
