//! Leases: a key that names the holder, and that etcd deletes when its lease expires.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until},
};
use tonic::{Response, Status};

use super::{
    Client,
    api::{
        LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest, RangeRequest,
        TxnRequest, lease_client::LeaseClient, request_op::Request,
    },
    auth::with_token,
    call::Retry,
    header_revision, revision,
    write::{created, first_found, operation},
};
use crate::{Error, Fence, Lease, Result};

pub(super) async fn acquire(client: Arc<Client>, name: &str, identity: &str) -> Result<Lease> {
    let requested = Instant::now();
    let (id, ttl) = client.grant().await?;
    let acquired = client.put_holder(name, identity, id).await;
    if acquired.is_err() {
        // Otherwise it would only expire later.
        let _ = client.revoke(id).await;
    }
    let fence = Fence { name: name.to_owned(), term: acquired? };
    let until = requested + ttl;
    let (stop, stopped) = oneshot::channel();
    let (held, holds) = watch::channel(Some(until));
    tokio::spawn(Keeper { client, id, ttl, held }.keep(until, stopped));
    Ok(Lease::renewed(fence, stop, holds))
}

impl Client {
    /// Returns the id and the duration of a new lease.
    async fn grant(&self) -> Result<(i64, Duration)> {
        let ttl = i64::try_from(self.lease_ttl.as_secs()).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl };
        let granted = self.call(Retry::Always, async |channel, token| {
            LeaseClient::new(channel).lease_grant(with_token(request, token)).await
        });
        let granted = granted.await?;
        // etcd may grant a longer one.
        let seconds = u64::try_from(granted.ttl).unwrap_or_default();
        Ok((granted.id, Duration::from_secs(seconds)))
    }

    /// Returns the revision at which the lease was acquired. Idempotent for the same lease id.
    async fn put_holder(&self, name: &str, identity: &str, lease: i64) -> Result<u64> {
        let key = self.owner_key(name);
        let put = PutRequest { key: key.clone(), value: identity.to_owned().into(), lease };
        let get = RangeRequest { key: key.clone(), ..Default::default() };
        let request = TxnRequest {
            compare: vec![created(key, 0)],
            success: vec![operation(Request::RequestPut(put))],
            failure: vec![operation(Request::RequestRange(get))],
        };
        let response = self.transact(Retry::Always, request).await?;
        if response.succeeded {
            return Ok(header_revision(response.header).0);
        }
        let holder = response.responses.into_iter().find_map(first_found);
        let holder =
            holder.ok_or_else(|| Error::corrupt("etcd returned no holder of the lease"))?;
        if holder.lease == lease {
            return Ok(revision(holder.create_revision).0);
        }
        let holder = String::from_utf8_lossy(&holder.value).into_owned();
        Err(Error::LeaseHeld { name: name.to_owned(), holder })
    }

    /// Returns false if the lease has expired.
    async fn renew(&self, id: i64) -> Result<bool> {
        let response = self.call(Retry::Always, async |channel, token| {
            // The stream stays open until the response, because etcd takes its end as a cancel.
            let keep_alive = stream::iter([LeaseKeepAliveRequest { id }]).chain(stream::pending());
            let request = with_token(keep_alive, token);
            let responses = LeaseClient::new(channel).lease_keep_alive(request).await?;
            let response = responses.into_inner().message().await?;
            response.map(Response::new).ok_or_else(|| Status::unavailable("etcd ended the stream"))
        });
        Ok(response.await?.ttl > 0)
    }

    async fn revoke(&self, id: i64) -> Result<()> {
        let request = LeaseRevokeRequest { id };
        let revoked = self.call(Retry::Always, async |channel, token| {
            LeaseClient::new(channel).lease_revoke(with_token(request, token)).await
        });
        revoked.await.map(drop)
    }
}

/// Renews a lease until it is released or lost.
struct Keeper {
    client: Arc<Client>,
    id: i64,
    ttl: Duration,
    held: watch::Sender<Option<Instant>>,
}

impl Keeper {
    /// `until` is a lower bound: etcd counts from when it received the request, this from before
    /// sending it.
    async fn keep(self, mut until: Instant, mut stopped: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut stopped => {
                    let _ = self.client.revoke(self.id).await;
                    break;
                }
                // This also ends a renewal that etcd doesn't answer.
                () = sleep_until(until) => break,
                renewed = self.wait_and_renew() => match renewed {
                    Ok(Some(renewed)) => {
                        until = renewed;
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
        sleep(self.ttl / 3).await;
        let requested = Instant::now();
        Ok(self.client.renew(self.id).await?.then(|| requested + self.ttl))
    }
}
