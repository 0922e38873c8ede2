//! Leases: a key that names the holder, and that etcd deletes when its lease expires.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tonic::{Response, Status};

use super::{
    Client,
    api::{
        LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest,
        PutRequest, RangeRequest, RequestOp, TxnRequest, lease_client::LeaseClient,
        request_op::Request, response_op,
    },
    auth::with_token,
    call::Retry,
    revision,
    write::created,
};
use crate::{Error, Fence, Lease, Result};

pub(super) async fn acquire(client: Arc<Client>, name: &str, identity: &str) -> Result<Lease> {
    let requested = Instant::now();
    let lease = client.grant().await?;
    match client.put_holder(name, identity, lease.id).await {
        Ok(term) => {
            let fence = Fence { name: name.to_owned(), term };
            let (stop, stopped) = oneshot::channel();
            let until = requested + lease.ttl;
            let (held, holds) = watch::channel(Some(until));
            let keeper = Keeper { client, lease, until, held };
            tokio::spawn(keeper.keep(stopped));
            Ok(Lease::renewed(fence, stop, holds))
        }
        Err(error) => {
            // Otherwise it would only expire later.
            let _ = client.revoke(lease.id).await;
            Err(error)
        }
    }
}

#[derive(Clone, Copy)]
struct EtcdLease {
    id: i64,
    ttl: Duration,
}

impl Client {
    async fn grant(&self) -> Result<EtcdLease> {
        let seconds = i64::try_from(self.lease_ttl.as_secs()).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds };
        let granted = self.call(Retry::Always, |channel, token| async move {
            LeaseClient::new(channel).lease_grant(with_token(request, token)).await
        });
        let granted = granted.await?;
        // etcd may grant a longer one.
        let seconds = u64::try_from(granted.ttl).unwrap_or_default();
        Ok(EtcdLease { id: granted.id, ttl: Duration::from_secs(seconds) })
    }

    /// Returns the revision at which the lease was acquired. Idempotent for the same lease id.
    async fn put_holder(&self, name: &str, identity: &str, lease: i64) -> Result<u64> {
        let key = self.owner_key(name);
        let put = PutRequest { key: key.clone(), value: identity.to_owned().into(), lease };
        let get = RangeRequest { key: key.clone(), ..Default::default() };
        let get = RequestOp { request: Some(Request::RequestRange(get)) };
        let request = TxnRequest {
            compare: vec![created(key, 0)],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![get],
        };
        let response = self.transact(Retry::Always, request).await?;
        if response.succeeded {
            return Ok(revision(response.header.map_or(0, |header| header.revision)).0);
        }
        let found = response.responses.into_iter().find_map(|found| match found.response {
            Some(response_op::Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let holder = found.ok_or_else(|| Error::corrupt("etcd returned no holder of the lease"))?;
        if holder.lease == lease {
            return Ok(revision(holder.create_revision).0);
        }
        let holder = String::from_utf8_lossy(&holder.value).into_owned();
        Err(Error::LeaseHeld { name: name.to_owned(), holder })
    }

    /// Returns false if the lease has expired.
    async fn renew(&self, id: i64) -> Result<bool> {
        let response = self.call(Retry::Always, |channel, token| async move {
            // The stream stays open until the response, because etcd takes its end as a cancel.
            let keep_alive = stream::iter([LeaseKeepAliveRequest { id }]).chain(stream::pending());
            let request = with_token(keep_alive, token);
            let mut responses =
                LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
            let response: Option<LeaseKeepAliveResponse> = responses.message().await?;
            response.map(Response::new).ok_or_else(|| Status::unavailable("etcd ended the stream"))
        });
        Ok(response.await?.ttl > 0)
    }

    async fn revoke(&self, id: i64) -> Result<()> {
        let request = LeaseRevokeRequest { id };
        let revoked = self.call(Retry::Always, |channel, token| async move {
            LeaseClient::new(channel).lease_revoke(with_token(request, token)).await
        });
        revoked.await.map(drop)
    }
}

/// Renews a lease until it is released or lost.
struct Keeper {
    client: Arc<Client>,
    lease: EtcdLease,
    /// A lower bound: etcd counts from when it received the request, this from before sending it.
    until: Instant,
    held: watch::Sender<Option<Instant>>,
}

impl Keeper {
    async fn keep(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let last = sleep_until(self.until);
            tokio::select! {
                biased;
                _ = &mut stopped => {
                    let _ = self.client.revoke(self.lease.id).await;
                    break;
                }
                () = last => break,
                renewed = self.wait_and_renew() => match renewed {
                    Ok(Some(until)) => {
                        self.until = until;
                        self.held.send_replace(Some(until));
                    }
                    Ok(None) => break,
                    Err(error) => tracing::warn!(%error, "cannot renew the lease, retrying until it expires"),
                }
            }
        }
        self.held.send_replace(None);
    }

    /// Renews after a third of the lease. Returns the new expiry, or `None` if the lease is lost.
    async fn wait_and_renew(&self) -> Result<Option<Instant>> {
        sleep(self.lease.ttl / 3).await;
        let requested = Instant::now();
        let renewed = timeout_at(self.until, self.client.renew(self.lease.id)).await;
        match renewed {
            Ok(Ok(true)) => Ok(Some(requested + self.lease.ttl)),
            Ok(Ok(false)) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::unavailable("etcd did not respond in time")),
        }
    }
}
