//! Transactions.

use bytes::Bytes;

use super::{
    Client,
    api::{
        Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp,
        TxnRequest, TxnResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        kv_client::KvClient,
        request_op::Request,
        response_op::Response,
    },
    auth::with_token,
    call::Retry,
    header_revision, number, revision,
};
use crate::{Change, Check, Error, Result, Revision, Transaction};

impl Client {
    pub(super) async fn commit(&self, mut transaction: Transaction) -> Result<Revision> {
        let fence = transaction.fence.as_ref();
        let fence = fence.map(|it| created(self.owner_key(&it.name), number(Revision(it.term))));
        let checks = transaction.checks.iter().map(|(key, check)| self.check(key, *check));
        let compare: Vec<_> = fence.into_iter().chain(checks).collect();
        let changes = std::mem::take(&mut transaction.changes);
        let request = TxnRequest {
            // On failure: the current versions of all checked keys.
            failure: compare.iter().map(|compare| get_version(compare.key.clone())).collect(),
            compare,
            success: changes.into_iter().map(|change| self.change(change)).collect(),
        };
        let response = self.transact(Retry::IfNotSent, request).await?;
        if response.succeeded {
            return Ok(header_revision(response.header));
        }
        let mut found = response.responses.into_iter().map(first_found);
        if let Some(fence) = &transaction.fence
            && found.next().flatten().is_none_or(|it| revision(it.create_revision).0 != fence.term)
        {
            return Err(Error::LeaseLost { name: fence.name.clone() });
        }
        transaction
            .check_versions(|_| Ok(found.next().flatten().map(|it| revision(it.mod_revision))))?;
        Err(Error::corrupt("etcd rejected a transaction whose checks hold"))
    }

    pub(super) async fn transact(&self, retry: Retry, request: TxnRequest) -> Result<TxnResponse> {
        self.call(retry, async |channel, token| {
            KvClient::new(channel).txn(with_token(request.clone(), token)).await
        })
        .await
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
        operation(match change {
            Change::Put { key, value } => {
                Request::RequestPut(PutRequest { key: self.key(&key), value, lease: 0 })
            }
            Change::Delete { key } => {
                Request::RequestDeleteRange(DeleteRangeRequest { key: self.key(&key) })
            }
        })
    }
}

pub(super) fn operation(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
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
    operation(Request::RequestRange(RangeRequest { key, keys_only: true, ..Default::default() }))
}

/// The first key that a read of a transaction returned.
pub(super) fn first_found(response: ResponseOp) -> Option<KeyValue> {
    let Some(Response::ResponseRange(range)) = response.response else { return None };
    range.kvs.into_iter().next()
}
