//! Watches, taken up again where they broke off.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use tokio::time::sleep;
use tonic::{Response, Status, Streaming, metadata::MetadataValue};

use super::{
    Client,
    api::{
        Event, WatchCreateRequest, WatchRequest, WatchResponse, event::EventType,
        watch_client::WatchClient, watch_request::RequestUnion,
    },
    auth::with_token,
    call::{Repeat, patience},
    end_of, number, revision,
};
use crate::{
    Change, Commit, Error, MAX_BYTES, Result, Revision,
    watch::{Feed, Watch},
};

/// etcd tells in parts what has more than a request may have, which is 1.5 MiB unless it was set.
const MAX_ANSWER_BYTES: usize = 16 * MAX_BYTES;

pub(super) async fn begin(
    client: Arc<Client>,
    prefix: &str,
    after: Option<Revision>,
) -> Result<Watch> {
    let prefix = client.key(prefix);
    let (answers, now) = client.open_watch(&prefix, after).await?;
    let feed = Arc::new(Feed::default());
    let after = after.unwrap_or(now);
    let follower = Follower { client, prefix, feed: feed.clone(), after, part: None };
    let task = tokio::spawn(follower.follow(answers));
    Ok(Watch::new(feed, Some(task.abort_handle())))
}

impl Client {
    /// Opens a stream of what comes after a revision, and gives the revision that etcd has.
    async fn open_watch(
        &self,
        prefix: &Bytes,
        after: Option<Revision>,
    ) -> Result<(Streaming<WatchResponse>, Revision)> {
        let create = WatchCreateRequest {
            key: prefix.clone(),
            range_end: end_of(prefix),
            start_revision: after.map_or(0, |after| number(after).saturating_add(1)),
            // Now and then a quiet watch is told how far it is: it breaks off without a gap.
            progress_notify: true,
            fragment: true,
        };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let opened = self.call(Repeat::Always, |channel, token| {
            let requests = stream::iter([create.clone()]).chain(stream::pending());
            let mut request = with_token(requests, token);
            // A member that is cut off from the others says so instead of being silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
            async move {
                let mut answers = client.watch(request).await?.into_inner();
                let first = answers.message().await?;
                let first = first.ok_or_else(|| Status::unavailable("etcd ended a watch"))?;
                // It is told within the stream what other calls are refused for.
                if first.canceled && first.cancel_reason.contains("invalid auth token") {
                    return Err(Status::unauthenticated(first.cancel_reason));
                }
                Ok(Response::new((answers, first)))
            }
        });
        let (answers, first) = opened.await?;
        if first.canceled {
            return Err(ended(&first));
        }
        let now = revision_of(&first);
        // Either this member is behind, or we come from a future that etcd has lost.
        if after.is_some_and(|after| after > now) && after > Some(self.revision().await?) {
            return Err(Error::Gap);
        }
        Ok((answers, now))
    }
}

struct Follower {
    client: Arc<Client>,
    prefix: Bytes,
    feed: Arc<Feed>,
    /// All up to it was told.
    after: Revision,
    /// A transaction of which more may come.
    part: Option<Commit>,
}

impl Follower {
    async fn follow(mut self, mut answers: Streaming<WatchResponse>) {
        let mut delays = patience();
        loop {
            match answers.message().await {
                Ok(Some(answer)) if !answer.canceled => {
                    delays = patience();
                    match self.tell(answer) {
                        Ok(true) => continue,
                        Ok(false) => return,
                        Err(error) => return self.feed.end(error),
                    }
                }
                Ok(Some(answer)) if answer.compact_revision > 0 => {
                    return self.feed.end(Error::Gap);
                }
                Ok(Some(answer)) => {
                    tracing::info!(reason = answer.cancel_reason, "etcd ended a watch");
                }
                Ok(None) => tracing::info!("etcd ended a watch"),
                Err(status) => tracing::info!(reason = status.message(), "A watch of etcd broke"),
            }
            self.part = None;
            answers = loop {
                sleep(delays.next().unwrap_or_default()).await;
                match self.client.open_watch(&self.prefix, Some(self.after)).await {
                    Ok((answers, _)) => break answers,
                    Err(error @ (Error::Unavailable { .. } | Error::Unknown { .. })) => {
                        tracing::warn!(%error, "etcd can't be watched");
                    }
                    Err(error) => return self.feed.end(error),
                }
            };
        }
    }

    /// Whether there is anybody to be told more.
    fn tell(&mut self, answer: WatchResponse) -> Result<bool> {
        if answer.events.is_empty() {
            self.after = self.after.max(revision_of(&answer));
            return Ok(true);
        }
        for event in answer.events {
            let (at, change) = self.change(event)?;
            if at <= self.after {
                continue;
            }
            match &mut self.part {
                Some(part) if part.revision == at => part.changes.push(change),
                _ => {
                    let next = Commit { revision: at, changes: vec![change] };
                    let complete = self.part.replace(next);
                    if !complete.is_none_or(|complete| self.pass_on(complete)) {
                        return Ok(false);
                    }
                }
            }
        }
        if answer.fragment {
            return Ok(true);
        }
        let complete = self.part.take();
        Ok(complete.is_none_or(|complete| self.pass_on(complete)))
    }

    fn pass_on(&mut self, commit: Commit) -> bool {
        self.after = commit.revision;
        self.feed.tell(commit)
    }

    fn change(&self, event: Event) -> Result<(Revision, Change)> {
        let kind = event.r#type();
        let found = event.kv.ok_or_else(|| Error::corrupt("etcd tells of a change of nothing"))?;
        let key = self.client.own_key(&found.key)?;
        let change = match kind {
            EventType::Put => Change::Put { key, value: found.value },
            EventType::Delete => Change::Delete { key },
        };
        Ok((revision(found.mod_revision), change))
    }
}

fn ended(answer: &WatchResponse) -> Error {
    if answer.compact_revision > 0 {
        Error::Gap
    } else if answer.cancel_reason.contains("permission denied") {
        Error::denied(&answer.cancel_reason)
    } else {
        Error::unavailable(&answer.cancel_reason)
    }
}

fn revision_of(answer: &WatchResponse) -> Revision {
    revision(answer.header.as_ref().map_or(0, |header| header.revision))
}
