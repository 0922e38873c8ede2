//! Tells how classes are, and then of each change.

use std::{sync::Arc, time::Duration};

use futures::Stream;
use oprc_grpc::deployment::{WatchEvent, watch_event::Kind};
use tokio::sync::{OwnedSemaphorePermit, broadcast::error::RecvError, mpsc};
use tonic::Status;

use super::convert;
use crate::{
    cluster::{Begin, Changed},
    reconcile::ObservedClass,
    service::Service,
};

/// How many events may wait for a client that reads slowly.
const WAITING: usize = 64;
/// How long a client may not read at all before it is left to begin anew.
const PATIENCE: Duration = Duration::from_secs(30);

/// One client that watches.
pub(super) struct Watcher {
    pub(super) service: Arc<Service>,
    /// All namespaces, where it is empty.
    pub(super) namespace: String,
    /// Tokens of another process mean nothing here.
    pub(super) epoch: Arc<str>,
    pub(super) permit: OwnedSemaphorePermit,
}

/// A stream of events.
pub(super) type Events = std::pin::Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

impl Watcher {
    /// The number of the last change that a token stands for, where it is one of ours.
    pub(super) fn resume(epoch: &str, token: &str) -> Option<u64> {
        let (of, number) = token.rsplit_once('.')?;
        (of == epoch).then(|| number.parse().ok()).flatten()
    }

    /// Begins to tell.
    pub(super) fn begin(self, after: Option<u64>) -> Events {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            self.tell(after, &sender).await;
        });
        Box::pin(futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|event| (Ok(event), receiver))
        }))
    }

    fn event(&self, kind: Kind, class: Option<&ObservedClass>, number: u64) -> WatchEvent {
        // Who has only part of a snapshot has to begin anew.
        let whole = !matches!(kind, Kind::SnapshotBegin | Kind::Snapshot);
        WatchEvent {
            kind: kind.into(),
            class_runtime: class.map(convert::class),
            resume_token: if whole { format!("{}.{number}", self.epoch) } else { String::new() },
            stale: self.service.contact.is_lost(),
            cluster_info: None,
        }
    }

    fn wants(&self, class: &ObservedClass) -> bool {
        self.namespace.is_empty() || self.namespace == class.namespace
    }

    /// Nothing where the client is gone or doesn't read, or we are to stop.
    async fn send(&self, client: &mpsc::Sender<WatchEvent>, event: WatchEvent) -> Option<()> {
        tokio::select! {
            sent = client.send_timeout(event, PATIENCE) => sent.ok(),
            () = self.service.stopped() => None,
        }
    }

    /// Tells until there is nobody left to be told.
    async fn tell(self, mut after: Option<u64>, client: &mpsc::Sender<WatchEvent>) -> Option<()> {
        let _permit = &self.permit;
        let mut contact = self.service.contact.changes();
        loop {
            let (begin, mut changes) = self.service.follow(after);
            let mut told = match begin {
                Begin::Snapshot(classes, number) => {
                    self.send(client, self.event(Kind::SnapshotBegin, None, number)).await?;
                    for class in classes.iter().filter(|class| self.wants(class)) {
                        self.send(client, self.event(Kind::Snapshot, Some(class), number)).await?;
                    }
                    self.send(client, self.event(Kind::SnapshotEnd, None, number)).await?;
                    number
                }
                Begin::Deltas(missed) => {
                    let mut told = after.unwrap_or_default();
                    for change in &missed {
                        self.change(change, client).await?;
                        told = change.number;
                    }
                    // So that it is known that this was all.
                    self.send(client, self.event(Kind::Contact, None, told)).await?;
                    told
                }
            };
            loop {
                let change = tokio::select! {
                    change = changes.recv() => change,
                    Ok(()) = contact.changed() => {
                        self.send(client, self.event(Kind::Contact, None, told)).await?;
                        continue;
                    }
                    () = client.closed() => return None,
                    // Who stops can't tell any more; whoever watches finds another.
                    () = self.service.stopped() => return None,
                };
                match change {
                    Ok(change) if change.number <= told => {}
                    Ok(change) => {
                        self.change(&change, client).await?;
                        told = change.number;
                    }
                    // Too slow: what was missed may still be known, and is a snapshot otherwise.
                    Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return None,
                }
            }
            after = Some(told);
        }
    }

    async fn change(&self, change: &Changed, client: &mpsc::Sender<WatchEvent>) -> Option<()> {
        if !self.wants(&change.class) {
            return Some(());
        }
        let kind = if change.gone { Kind::Deleted } else { Kind::Changed };
        self.send(client, self.event(kind, Some(&change.class), change.number)).await
    }
}
