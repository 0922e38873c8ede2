//! What a node knows about the members of its grid.

use std::time::{Duration, Instant};

use oprc_cp_storage::{EtcdAdmin, EtcdMember, EtcdStatus};
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::file_size::FileSize;
use crate::{
    Error, WatchedFile,
    config::{MAX_MEMBERS, ReplicaConfig, index_of},
};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// While the file is large, so that writes of callers are refused before they use the reserve.
const LARGE_FILE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// An election takes less time. Calls wait for it.
const QUORUM_GRACE: Duration = Duration::from_secs(4);

/// The document with the desired number of members.
#[derive(Debug, Deserialize)]
pub(crate) struct MembersDocument {
    members: u32,
}

impl MembersDocument {
    pub(crate) fn read(file: &WatchedFile) -> Result<u32, String> {
        match file.read::<Self>()?.members {
            members @ 1..=MAX_MEMBERS => Ok(members),
            members => Err(format!("members is {members}; expected: 1 to {MAX_MEMBERS}")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for the other first members.
    Starting,
    /// Waits to be added to the grid.
    Joining,
    /// Its etcd runs.
    Member,
    /// Fewer members are desired, and this node isn't one of them.
    Removed,
}

#[derive(Clone, Debug)]
pub(crate) struct ClusterStatus {
    pub(crate) phase: Phase,
    /// The last state of the own member.
    pub(crate) own: Option<EtcdStatus>,
    pub(crate) members: Vec<EtcdMember>,
    /// When the own member last had a leader and a vote.
    pub(crate) quorum_at: Option<Instant>,
    pub(crate) is_out_of_space: bool,
}

impl ClusterStatus {
    /// Whether the own member had a leader and a vote a moment ago.
    pub(crate) fn has_quorum(&self) -> bool {
        self.quorum_at.is_some_and(|at| at.elapsed() < QUORUM_GRACE)
    }

    fn has_quorum_now(&self) -> bool {
        self.own.as_ref().is_some_and(|it| it.leader.is_some() && !it.is_learner)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.own.as_ref().is_some_and(|it| it.leader == Some(it.id) && !it.is_learner)
    }

    pub(crate) fn leader(&self) -> Option<&EtcdMember> {
        let leader = self.own.as_ref()?.leader?;
        self.members.iter().find(|it| it.id == leader)
    }
}

/// Shared by all parts of a node.
#[derive(Debug)]
pub(crate) struct Cluster {
    config: ReplicaConfig,
    desired: watch::Sender<u32>,
    status: watch::Sender<ClusterStatus>,
}

impl Cluster {
    pub(crate) fn new(config: ReplicaConfig, desired: u32) -> Self {
        let status = ClusterStatus {
            phase: Phase::Starting,
            own: None,
            members: Vec::new(),
            quorum_at: None,
            is_out_of_space: false,
        };
        Self { config, desired: watch::Sender::new(desired), status: watch::Sender::new(status) }
    }

    pub(crate) fn desired(&self) -> u32 {
        *self.desired.borrow()
    }

    pub(crate) fn status(&self) -> ClusterStatus {
        self.status.borrow().clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<ClusterStatus> {
        self.status.subscribe()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.phase, phase) != phase);
    }

    pub(crate) fn has_quorum(&self) -> bool {
        self.status.borrow().has_quorum()
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.status.borrow().is_leader()
    }

    /// Members with a vote that aren't to be removed, by name.
    pub(crate) fn voters(&self) -> Vec<String> {
        let (status, desired) = (self.status.borrow(), self.desired());
        let stays = |name: &str| index_of(name).is_some_and(|index| index < desired);
        let voters = status.members.iter().filter(|it| !it.is_learner && stays(&it.name));
        voters.map(|it| it.name.clone()).collect()
    }

    /// The other members that have started, by name.
    pub(crate) fn others(&self) -> Vec<String> {
        let status = self.status.borrow();
        let names = status.members.iter().map(|it| it.name.clone());
        names.filter(|it| !it.is_empty() && *it != self.config.name).collect()
    }

    /// The file of the own member, if its state is known.
    pub(crate) fn file_size(&self) -> Option<FileSize> {
        let status = self.status.borrow();
        status.own.as_ref().map(|own| FileSize::new(own, self.config.etcd_quota_bytes))
    }

    /// Whether etcd refuses writes.
    pub(crate) fn is_out_of_space(&self) -> bool {
        self.status.borrow().is_out_of_space
    }

    /// Whether most of the quota is used.
    pub(crate) fn is_low_on_space(&self) -> bool {
        self.is_out_of_space() || self.file_size().is_some_and(|it| it.is_low_on_space())
    }

    /// Waits for a leader as long as an election takes.
    pub(crate) async fn wait_for_quorum(&self) -> Result<(), Error> {
        let mut changes = self.changes();
        let has_lost = {
            let status = changes.borrow();
            if status.has_quorum_now() {
                return Ok(());
            }
            !status.has_quorum()
        };
        let leader = changes.wait_for(ClusterStatus::has_quorum_now);
        if !has_lost && matches!(timeout(QUORUM_GRACE, leader).await, Ok(Ok(_))) {
            return Ok(());
        }
        let members = self.status.borrow().members.len();
        let reason = format!("no majority of its {members} members is reachable");
        Err(Error::Unavailable(reason))
    }

    /// Reads the state of the own member until the future is dropped.
    pub(crate) async fn follow(&self, admin: &EtcdAdmin) {
        loop {
            self.refresh(admin).await;
            let is_large = self.file_size().is_some_and(|it| it.is_large());
            sleep(if is_large { LARGE_FILE_POLL_INTERVAL } else { POLL_INTERVAL }).await;
        }
    }

    async fn refresh(&self, admin: &EtcdAdmin) {
        let own = admin.status().await.ok();
        let members = match &own {
            Some(_) => admin.members(true).await.ok(),
            None => None,
        };
        self.status.send_if_modified(|status| {
            let had_quorum = status.has_quorum_now();
            let before = status.own.as_ref().map(|it| (it.id, it.leader, it.is_learner));
            status.own = own;
            if let Some(own) = &status.own {
                status.is_out_of_space = own.errors.iter().any(|it| it.contains("NOSPACE"));
            }
            if status.has_quorum_now() {
                status.quorum_at = Some(Instant::now());
            }
            let after = status.own.as_ref().map(|it| (it.id, it.leader, it.is_learner));
            let is_same = members.as_ref().is_none_or(|it| *it == status.members);
            status.members = members.unwrap_or_else(|| std::mem::take(&mut status.members));
            had_quorum != status.has_quorum_now() || before != after || !is_same
        });
    }

    /// Follows the file with the desired number of members.
    pub(crate) async fn follow_desired(&self, mut file: WatchedFile) {
        loop {
            match MembersDocument::read(&file) {
                Ok(desired) => {
                    self.desired.send_if_modified(|it| std::mem::replace(it, desired) != desired);
                }
                Err(error) => tracing::warn!(
                    error,
                    "cannot read the desired number of members, keeping the former"
                ),
            }
            if let Err(error) = file.changed().await {
                tracing::error!(%error, "cannot watch the desired number of members, ignoring further changes");
                return;
            }
        }
    }
}
