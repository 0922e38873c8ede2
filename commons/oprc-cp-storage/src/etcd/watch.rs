//! Watches, which resume after the last revision when a stream breaks.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use tokio::{task::JoinSet, time::sleep};
use tonic::{Response, Status, Streaming, metadata::MetadataValue};

use super::{
    Client,
    api::{
        Event, WatchCreateRequest, WatchRequest, WatchResponse, event::EventType,
        watch_client::WatchClient, watch_request::RequestUnion,
    },
    auth::with_token,
    call::{Retry, backoff},
    end_of, header_revision, number, revision,
};
use crate::{
    Change, Commit, Error, MAX_BYTES, Result, Revision,
    watch::{Feed, Watch},
};

/// etcd splits events that exceed its maximum request size, 1.5 MiB by default.
const MAX_RESPONSE_BYTES: usize = 16 * MAX_BYTES;

pub(super) async fn begin(
    client: Arc<Client>,
    prefix: &str,
    after: Option<Revision>,
) -> Result<Watch> {
    let prefix = client.key(prefix);
    let (responses, now) = client.open_watch(&prefix, after).await?;
    let feed = Arc::new(Feed::default());
    let after = after.unwrap_or(now);
    let follower = Follower { client, prefix, feed: feed.clone(), after, part: None };
    Ok(Watch { feed, _task: JoinSet::from_iter([follower.follow(responses)]) })
}

impl Client {
    /// Opens a stream of the events after a revision, and returns etcd's current revision.
    async fn open_watch(
        &self,
        prefix: &Bytes,
        after: Option<Revision>,
    ) -> Result<(Streaming<WatchResponse>, Revision)> {
        let create = WatchCreateRequest {
            key: prefix.clone(),
            range_end: end_of(prefix),
            start_revision: after.map_or(0, |after| number(after).saturating_add(1)),
            // Keeps the revision of an idle watch recent, so that it resumes without a gap.
            progress_notify: true,
            fragment: true,
        };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let opened = self.call(Retry::Always, async |channel, token| {
            let requests = stream::iter([create.clone()]).chain(stream::pending());
            let mut request = with_token(requests, token);
            // A partitioned member then ends the stream instead of being silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let mut client =
                WatchClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
            let mut responses = client.watch(request).await?.into_inner();
            let first = responses.message().await?;
            let first = first.ok_or_else(|| Status::unavailable("etcd ended the watch"))?;
            // A watch reports an expired token within the stream.
            if first.canceled && first.cancel_reason.contains("invalid auth token") {
                return Err(Status::unauthenticated(first.cancel_reason));
            }
            Ok(Response::new((responses, first)))
        });
        let (responses, first) = opened.await?;
        if first.canceled {
            return Err(cancel_error(&first));
        }
        let now = header_revision(first.header);
        // Either this member lags, or etcd was restored to an earlier state.
        if after.is_some_and(|after| after > now) && after > Some(self.revision().await?) {
            return Err(Error::Gap);
        }
        Ok((responses, now))
    }
}

struct Follower {
    client: Arc<Client>,
    prefix: Bytes,
    feed: Arc<Feed>,
    /// All commits up to it were delivered.
    after: Revision,
    /// A transaction of which more events may follow.
    part: Option<Commit>,
}

impl Follower {
    async fn follow(mut self, mut responses: Streaming<WatchResponse>) {
        let mut delays = backoff();
        loop {
            match responses.message().await {
                Ok(Some(response)) if !response.canceled => {
                    delays = backoff();
                    match self.deliver(response) {
                        Ok(()) => continue,
                        Err(error) => return self.feed.end(error),
                    }
                }
                Ok(Some(response)) if response.compact_revision > 0 => {
                    return self.feed.end(Error::Gap);
                }
                Ok(Some(response)) => {
                    tracing::info!(
                        reason = response.cancel_reason,
                        "etcd cancelled a watch, resuming"
                    );
                }
                Ok(None) => tracing::info!("etcd ended a watch, resuming"),
                Err(status) => {
                    tracing::info!(reason = status.message(), "an etcd watch failed, resuming");
                }
            }
            self.part = None;
            responses = loop {
                sleep(delays.next().unwrap_or_default()).await;
                match self.client.open_watch(&self.prefix, Some(self.after)).await {
                    Ok((responses, _)) => break responses,
                    Err(error @ (Error::Unavailable { .. } | Error::UnknownOutcome { .. })) => {
                        tracing::warn!(%error, "cannot watch etcd, retrying");
                    }
                    Err(error) => return self.feed.end(error),
                }
            };
        }
    }

    /// Pushes the commits of a response that are complete: the last one may continue in the next
    /// fragment. Fails if the watch has ended, the reader is too slow, or an event is corrupt.
    fn deliver(&mut self, response: WatchResponse) -> Result<()> {
        if response.events.is_empty() {
            self.after = self.after.max(header_revision(response.header));
            return Ok(());
        }
        for event in response.events {
            let (at, change) = self.change(event)?;
            if at <= self.after {
                continue;
            }
            match &mut self.part {
                Some(part) if part.revision == at => part.changes.push(change),
                _ => {
                    let next = Commit { revision: at, changes: vec![change] };
                    let complete = self.part.replace(next);
                    self.push(complete)?;
                }
            }
        }
        if response.fragment {
            return Ok(());
        }
        let complete = self.part.take();
        self.push(complete)
    }

    fn push(&mut self, complete: Option<Commit>) -> Result<()> {
        let Some(commit) = complete else { return Ok(()) };
        self.after = commit.revision;
        if self.feed.push(commit) { Ok(()) } else { Err(Error::Gap) }
    }

    fn change(&self, event: Event) -> Result<(Revision, Change)> {
        let kind = event.r#type();
        let found = event.kv.ok_or_else(|| Error::corrupt("etcd sent an event without a key"))?;
        let key = self.client.strip_root(&found.key)?;
        let change = match kind {
            EventType::Put => Change::Put { key, value: found.value },
            EventType::Delete => Change::Delete { key },
        };
        Ok((revision(found.mod_revision), change))
    }
}

fn cancel_error(response: &WatchResponse) -> Error {
    if response.compact_revision > 0 {
        Error::Gap
    } else if response.cancel_reason.contains("permission denied") {
        Error::denied(&response.cancel_reason)
    } else {
        Error::unavailable(&response.cancel_reason)
    }
}
