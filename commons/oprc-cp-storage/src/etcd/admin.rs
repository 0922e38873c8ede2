//! Members and maintenance of an etcd cluster, by way of one of its members.

use std::time::Duration;

use tokio::time::timeout;
use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

use super::api::{
    AlarmMember, AlarmRequest, AlarmType, CompactionRequest, CompactionResponse, DefragmentRequest,
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MoveLeaderRequest, StatusRequest, alarm_request::AlarmAction, cluster_client::ClusterClient,
    kv_client::KvClient, maintenance_client::MaintenanceClient,
};
use crate::{Error, Result};

/// Calls one member without TLS and retries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EtcdAdmin {
    channel: Channel,
    deadline: Duration,
}

/// A member of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMember {
    pub id: u64,
    /// Empty if it was added and has never started.
    pub name: String,
    pub peer_urls: Vec<String>,
    /// Whether it has ever started.
    pub is_started: bool,
    /// Whether it has no vote yet.
    pub is_learner: bool,
}

/// The state of a member, as it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdStatus {
    pub id: u64,
    /// None if there is no leader, so that nothing can be written.
    pub leader: Option<u64>,
    pub is_learner: bool,
    pub term: u64,
    pub index: u64,
    /// Size of the file.
    pub bytes: u64,
    pub bytes_in_use: u64,
    pub errors: Vec<String>,
}

impl From<Member> for EtcdMember {
    fn from(member: Member) -> Self {
        Self {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_ur_ls,
            is_started: !member.client_ur_ls.is_empty(),
            is_learner: member.is_learner,
        }
    }
}

impl EtcdAdmin {
    /// Connects with the first call. `deadline` is that of each call.
    pub fn new(endpoint: &str, deadline: Duration) -> Result<Self> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned()).map_err(Error::invalid)?;
        Ok(Self { channel: endpoint.connect_timeout(deadline).connect_lazy(), deadline })
    }

    /// The same connection with another deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    async fn call<T>(
        &self,
        request: impl Future<Output = std::result::Result<Response<T>, Status>>,
    ) -> Result<T> {
        match timeout(self.deadline, request).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Error::unavailable(status.message())),
            Err(_) => Err(Error::unavailable("etcd did not respond in time")),
        }
    }

    fn cluster(&self) -> ClusterClient<Channel> {
        ClusterClient::new(self.channel.clone())
    }

    fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    pub async fn status(&self) -> Result<EtcdStatus> {
        let status = self.call(self.maintenance().status(StatusRequest {})).await?;
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(EtcdStatus {
            id: status.header.map_or(0, |header| header.member_id),
            leader: Some(status.leader).filter(|leader| *leader != 0),
            is_learner: status.is_learner,
            term: status.raft_term,
            index: status.raft_index,
            bytes: bytes(status.db_size),
            bytes_in_use: bytes(status.db_size_in_use),
            errors: status.errors,
        })
    }

    /// The members as a majority knows them; as this member knows them if `stale`.
    pub async fn members(&self, stale: bool) -> Result<Vec<EtcdMember>> {
        let request = MemberListRequest { linearizable: !stale };
        let list = self.call(self.cluster().member_list(request)).await?;
        Ok(list.members.into_iter().map(EtcdMember::from).collect())
    }

    /// Adds a member without a vote. Returns it and all members.
    pub async fn add_learner(&self, peer_url: &str) -> Result<(EtcdMember, Vec<EtcdMember>)> {
        let request = MemberAddRequest { peer_ur_ls: vec![peer_url.to_owned()], is_learner: true };
        let added = self.call(self.cluster().member_add(request)).await?;
        let member = added.member.ok_or_else(|| Error::corrupt("etcd returned no member"))?;
        let members = added.members.into_iter().map(EtcdMember::from).collect();
        Ok((member.into(), members))
    }

    /// Fails until the member has caught up with the leader.
    pub async fn promote(&self, id: u64) -> Result<()> {
        self.call(self.cluster().member_promote(MemberPromoteRequest { id })).await.map(drop)
    }

    pub async fn remove(&self, id: u64) -> Result<()> {
        self.call(self.cluster().member_remove(MemberRemoveRequest { id })).await.map(drop)
    }

    /// Makes another member the leader. Only the leader accepts this.
    pub async fn move_leader(&self, target_id: u64) -> Result<()> {
        self.call(self.maintenance().move_leader(MoveLeaderRequest { target_id })).await.map(drop)
    }

    /// Returns unused bytes of this member's file to the file system. It serves nothing meanwhile.
    pub async fn defragment(&self) -> Result<()> {
        self.call(self.maintenance().defragment(DefragmentRequest {})).await.map(drop)
    }

    /// Deletes all versions that a later one before or at the revision has replaced, and returns after
    /// their space was freed.
    pub async fn compact(&self, revision: u64) -> Result<()> {
        let revision = i64::try_from(revision).map_err(Error::invalid)?;
        let request = CompactionRequest { revision, physical: true };
        let mut client = KvClient::new(self.channel.clone());
        let compacted = self.call(async {
            match client.compact(request).await {
                // By etcd's own compaction, or by an earlier call.
                Err(status) if status.message().contains("has been compacted") => {
                    Ok(Response::new(CompactionResponse {}))
                }
                done => done,
            }
        });
        compacted.await.map(drop)
    }

    /// Accepts writes again, after space has become free. Each member raises an alarm of its own, and etcd
    /// ignores a request that names none.
    pub async fn clear_out_of_space(&self) -> Result<()> {
        for AlarmMember { member_id, .. } in self.alarms(AlarmAction::Get, 0).await? {
            self.alarms(AlarmAction::Deactivate, member_id).await?;
        }
        Ok(())
    }

    async fn alarms(&self, action: AlarmAction, member_id: u64) -> Result<Vec<AlarmMember>> {
        let alarm = AlarmType::Nospace.into();
        let request = AlarmRequest { action: action.into(), member_id, alarm };
        Ok(self.call(self.maintenance().alarm(request)).await?.alarms)
    }
}
