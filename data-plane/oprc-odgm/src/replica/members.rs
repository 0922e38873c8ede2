//! What the leader does with the members: it promotes those that have caught up, and removes those that
//! aren't desired.

use std::time::Duration;

use oprc_cp_storage::{EtcdAdmin, EtcdMember, Result};
use tokio::time::{MissedTickBehavior, interval};

use super::Replica;

const INTERVAL: Duration = Duration::from_secs(1);

impl Replica {
    /// Manages the members while this node is the leader, until the future is dropped.
    pub(crate) async fn manage_members(&self, admin: &EtcdAdmin) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.cluster.is_leader() {
                continue;
            }
            if let Err(error) = self.manage_once(admin).await {
                tracing::info!(%error, "cannot change the members yet, retrying");
            }
        }
    }

    async fn manage_once(&self, admin: &EtcdAdmin) -> Result<()> {
        let status = self.cluster.status();
        for learner in status.members.iter().filter(|it| it.is_learner && it.is_started) {
            // Fails until it has caught up.
            if admin.promote(learner.id).await.is_ok() {
                tracing::info!(node = learner.name, "promoted a member");
            }
        }
        let index = |member: &EtcdMember| self.config.index_of_member(member);
        let Some(leaving) = surplus(&status.members, self.cluster.desired(), index) else {
            return Ok(());
        };
        if leaving.name == self.config.name {
            return self.move_leader(admin, &status.members).await;
        }
        let others = status.members.iter().filter(|it| it.name != self.config.name);
        let mut staying = others.filter(|it| it.id != leaving.id && !it.is_learner);
        if !staying.all(|it| self.peers.is_ready(&it.name)) {
            tracing::info!(
                node = leaving.name,
                "waiting for all other members to be ready before removing a member"
            );
            return Ok(());
        }
        let owned = self.ownership.counts().get(&leaving.name).copied().unwrap_or_default();
        if owned > 0 && !self.peers.is_dead(&leaving.name) {
            tracing::info!(
                node = leaving.name,
                owned,
                "waiting for a member to hand over its partitions before removing it"
            );
            return Ok(());
        }
        admin.remove(leaving.id).await?;
        tracing::info!(node = leaving.name, "removed a member that is no longer desired");
        Ok(())
    }

    /// Makes another node the leader, if this one is.
    pub(crate) async fn move_leader(
        &self,
        admin: &EtcdAdmin,
        members: &[EtcdMember],
    ) -> Result<()> {
        let voters = self.cluster.voters();
        let is_candidate = |it: &&EtcdMember| {
            it.name != self.config.name
                && voters.contains(&it.name)
                && self.peers.is_ready(&it.name)
        };
        match members.iter().find(is_candidate) {
            Some(target) => admin.move_leader(target.id).await,
            None => Ok(()),
        }
    }
}

/// The member with the highest index that isn't desired.
fn surplus(
    members: &[EtcdMember],
    desired: u32,
    index: impl Fn(&EtcdMember) -> Option<u32>,
) -> Option<&EtcdMember> {
    let index = |it: &&EtcdMember| index(it).filter(|index| *index >= desired);
    members.iter().filter(|it| index(it).is_some()).max_by_key(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::index_of;

    #[test]
    fn the_highest_index_is_removed_first() {
        let member = |index: u32| EtcdMember {
            id: index.into(),
            name: format!("g-{index}"),
            peer_urls: Vec::new(),
            is_started: true,
            is_learner: false,
        };
        let members: Vec<_> = [3, 0, 10, 9].map(member).into();
        let surplus = |members, desired| surplus(members, desired, |it| index_of(&it.name));
        assert_eq!(surplus(&members, 3).unwrap().name, "g-10");
        assert_eq!(surplus(&members[..2], 3).unwrap().name, "g-3");
        assert_eq!(surplus(&members, 11), None);
    }
}
