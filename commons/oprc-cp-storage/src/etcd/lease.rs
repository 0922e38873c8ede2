//! Ownership by a lease: a key that says who owns, gone when the lease isn't renewed.

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
    call::Repeat,
    revision,
    write::created,
};
use crate::{Error, Fence, Ownership, Result};

pub(super) async fn own(client: Arc<Client>, name: &str, identity: &str) -> Result<Ownership> {
    let asked = Instant::now();
    let lease = client.grant().await?;
    match client.take(name, identity, lease.id).await {
        Ok(term) => {
            let fence = Fence { name: name.to_owned(), term };
            let (stop, stopped) = oneshot::channel();
            let until = asked + lease.lasts;
            let (held, holds) = watch::channel(Some(until));
            let keeper = Keeper { client, lease, until, held };
            tokio::spawn(keeper.keep(stopped));
            Ok(Ownership::by_lease(fence, stop, holds))
        }
        Err(error) => {
            // It would go by itself, only later.
            let _ = client.revoke(lease.id).await;
            Err(error)
        }
    }
}

#[derive(Clone, Copy)]
struct Lease {
    id: i64,
    lasts: Duration,
}

impl Client {
    async fn grant(&self) -> Result<Lease> {
        let seconds = i64::try_from(self.lease.as_secs()).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds };
        let granted = self.call(Repeat::Always, |channel, token| async move {
            LeaseClient::new(channel).lease_grant(with_token(request, token)).await
        });
        let granted = granted.await?;
        // etcd may make it longer.
        let seconds = u64::try_from(granted.ttl).unwrap_or_default();
        Ok(Lease { id: granted.id, lasts: Duration::from_secs(seconds) })
    }

    /// Gives the revision of the ownership. Asking again is harmless: it is seen whose it is.
    async fn take(&self, name: &str, identity: &str, lease: i64) -> Result<u64> {
        let key = self.owner_key(name);
        let put = PutRequest { key: key.clone(), value: identity.to_owned().into(), lease };
        let look = RangeRequest { key: key.clone(), ..Default::default() };
        let look = RequestOp { request: Some(Request::RequestRange(look)) };
        let request = TxnRequest {
            compare: vec![created(key, 0)],
            success: vec![RequestOp { request: Some(Request::RequestPut(put)) }],
            failure: vec![look],
        };
        let answer = self.transact(Repeat::Always, request).await?;
        if answer.succeeded {
            return Ok(revision(answer.header.map_or(0, |header| header.revision)).0);
        }
        let found = answer.responses.into_iter().find_map(|found| match found.response {
            Some(response_op::Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        let owner = found.ok_or_else(|| Error::corrupt("etcd has an owner and doesn't say who"))?;
        if owner.lease == lease {
            return Ok(revision(owner.create_revision).0);
        }
        let by = String::from_utf8_lossy(&owner.value).into_owned();
        Err(Error::Owned { name: name.to_owned(), by })
    }

    /// Whether there still is a lease.
    async fn renew(&self, id: i64) -> Result<bool> {
        let answer = self.call(Repeat::Always, |channel, token| async move {
            // The stream stays open until there is an answer: etcd would take its end for a cancel.
            let beat = stream::iter([LeaseKeepAliveRequest { id }]).chain(stream::pending());
            let request = with_token(beat, token);
            let mut answers =
                LeaseClient::new(channel).lease_keep_alive(request).await?.into_inner();
            let answer: Option<LeaseKeepAliveResponse> = answers.message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unavailable("etcd ended a stream"))
        });
        Ok(answer.await?.ttl > 0)
    }

    async fn revoke(&self, id: i64) -> Result<()> {
        let request = LeaseRevokeRequest { id };
        let revoked = self.call(Repeat::Always, |channel, token| async move {
            LeaseClient::new(channel).lease_revoke(with_token(request, token)).await
        });
        revoked.await.map(drop)
    }
}

/// Renews a lease until it is let go of or lost.
struct Keeper {
    client: Arc<Client>,
    lease: Lease,
    /// As far as we can be sure: etcd counts from when it got the request, and we from before.
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
                renewed = self.beat() => match renewed {
                    Ok(Some(until)) => {
                        self.until = until;
                        self.held.send_replace(Some(until));
                    }
                    Ok(None) => break,
                    Err(error) => tracing::warn!(%error, "The ownership of the store isn't renewed"),
                }
            }
        }
        self.held.send_replace(None);
    }

    /// Waits a third of the time there is, then renews: until when, unless the lease is gone.
    async fn beat(&self) -> Result<Option<Instant>> {
        sleep(self.lease.lasts / 3).await;
        let asked = Instant::now();
        let renewed = timeout_at(self.until, self.client.renew(self.lease.id)).await;
        match renewed {
            Ok(Ok(true)) => Ok(Some(asked + self.lease.lasts)),
            Ok(Ok(false)) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::unavailable("etcd doesn't answer in time")),
        }
    }
}
