//! Calls of etcd that free space.

use std::time::Duration;

use oprc_cp_storage::{Error, Result};
use prost::Message;
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// etcd's values of `AlarmAction` and `AlarmType`.
const DEACTIVATE: i32 = 2;
const NO_SPACE: i32 = 1;

/// etcd's `CompactionRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct CompactionRequest {
    #[prost(int64, tag = "1")]
    revision: i64,
    /// Whether the call ends after space was freed.
    #[prost(bool, tag = "2")]
    physical: bool,
}

/// etcd's `AlarmRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct AlarmRequest {
    #[prost(int32, tag = "1")]
    action: i32,
    #[prost(uint64, tag = "2")]
    member: u64,
    #[prost(int32, tag = "3")]
    alarm: i32,
}

/// A response whose fields aren't needed.
#[derive(Clone, PartialEq, Eq, Message)]
struct AnyResponse {}

/// Calls the member of this node. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EtcdSpace {
    channel: Channel,
}

impl EtcdSpace {
    /// Connects with the first call. `deadline` is that of each call.
    pub(crate) fn new(endpoint: &str, deadline: Duration) -> Result<Self> {
        let invalid = |error: tonic::transport::Error| Error::Invalid { reason: error.to_string() };
        let endpoint = Endpoint::from_shared(endpoint.to_owned()).map_err(invalid)?;
        Ok(Self { channel: endpoint.timeout(deadline).connect_lazy() })
    }

    /// Deletes all versions that a later one before or at the revision has replaced.
    pub(crate) async fn compact(&self, revision: u64) -> Result<()> {
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        let request = CompactionRequest { revision, physical: true };
        match self.call("/etcdserverpb.KV/Compact", request).await {
            // By etcd's own compaction.
            Err(status) if status.message().contains("has been compacted") => Ok(()),
            done => done.map_err(|status| unavailable(&status)),
        }
    }

    /// Accepts writes again. Each member has an alarm of its own.
    pub(crate) async fn clear_alarms(&self, members: impl Iterator<Item = u64>) -> Result<()> {
        for member in members {
            let request = AlarmRequest { action: DEACTIVATE, member, alarm: NO_SPACE };
            let cleared = self.call("/etcdserverpb.Maintenance/Alarm", request).await;
            cleared.map_err(|status| unavailable(&status))?;
        }
        Ok(())
    }

    async fn call<T: Message + 'static>(
        &self,
        path: &'static str,
        request: T,
    ) -> Result<(), Status> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<T, AnyResponse>::default();
        client.unary(Request::new(request), PathAndQuery::from_static(path), codec).await.map(drop)
    }
}

fn unavailable(status: &Status) -> Error {
    Error::Unavailable { reason: status.message().to_owned() }
}
