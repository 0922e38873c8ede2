//! Transactions.

use bytes::Bytes;

use super::{
    Client,
    api::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, ResponseOp, TxnRequest,
        TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        kv_client::KvClient,
        request_op::Request,
        response_op::Response,
    },
    auth::with_token,
    call::Retry,
    number, revision,
};
use crate::{Change, Check, Error, Fence, Result, Revision, Transaction};

impl Client {
    pub(super) async fn commit(&self, transaction: Transaction) -> Result<Revision> {
        let fence = transaction.fence.as_ref().map(|fence| self.fence(fence));
        let checks = transaction.checks.iter().map(|(key, check)| self.check(key, *check));
        let compare: Vec<_> = fence.into_iter().chain(checks).collect();
        let request = TxnRequest {
            // On failure: the current versions of all checked keys.
            failure: compare.iter().map(|compare| get_version(compare.key.clone())).collect(),
            compare,
            success: transaction.changes.into_iter().map(|change| self.change(change)).collect(),
        };
        let response = self.transact(Retry::IfNotSent, request).await?;
        if response.succeeded {
            return Ok(revision(response.header.map_or(0, |header| header.revision)));
        }
        let mut versions = response.responses.into_iter().map(version);
        if let Some(fence) = transaction.fence
            && versions.next().flatten().is_none_or(|(_, created)| created.0 != fence.term)
        {
            return Err(Error::LeaseLost { name: fence.name });
        }
        for ((key, check), version) in transaction.checks.into_iter().zip(versions) {
            let version = version.map(|(version, _)| version);
            if !check.holds(version) {
                return Err(Error::Conflict { key, version });
            }
        }
        Err(Error::corrupt("etcd rejected a transaction whose checks hold"))
    }

    pub(super) async fn transact(&self, retry: Retry, request: TxnRequest) -> Result<TxnResponse> {
        self.call(retry, |channel, token| {
            let request = with_token(request.clone(), token);
            async move { KvClient::new(channel).txn(request).await }
        })
        .await
    }

    fn fence(&self, fence: &Fence) -> Compare {
        created(self.owner_key(&fence.name), number(Revision(fence.term)))
    }

    fn check(&self, key: &str, check: Check) -> Compare {
        // A missing key has revision 0.
        let (result, expected) = match check {
            Check::Absent => (CompareResult::Equal, 0),
            Check::Exists => (CompareResult::Greater, 0),
            // No entry has revision 0, but etcd would match a missing one.
            Check::Version(Revision(0)) => (CompareResult::Less, 0),
            Check::Version(expected) => (CompareResult::Equal, number(expected)),
        };
        Compare {
            result: result.into(),
            target: CompareTarget::Mod.into(),
            key: self.key(key),
            target_union: Some(TargetUnion::ModRevision(expected)),
        }
    }

    fn change(&self, change: Change) -> RequestOp {
        let request = match change {
            Change::Put { key, value } => {
                Request::RequestPut(PutRequest { key: self.key(&key), value, lease: 0 })
            }
            Change::Delete { key } => {
                Request::RequestDeleteRange(DeleteRangeRequest { key: self.key(&key) })
            }
        };
        RequestOp { request: Some(request) }
    }
}

/// Requires that a key was created at a revision; 0 requires that it doesn't exist.
pub(super) fn created(key: Bytes, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key,
        target_union: Some(TargetUnion::CreateRevision(revision)),
    }
}

/// Reads a key without its value.
fn get_version(key: Bytes) -> RequestOp {
    let range = RangeRequest { key, keys_only: true, ..Default::default() };
    RequestOp { request: Some(Request::RequestRange(range)) }
}

/// The revisions of the last write and of the creation of a key.
fn version(response: ResponseOp) -> Option<(Revision, Revision)> {
    let Some(Response::ResponseRange(range)) = response.response else { return None };
    let found = range.kvs.first()?;
    Some((revision(found.mod_revision), revision(found.create_revision)))
}
