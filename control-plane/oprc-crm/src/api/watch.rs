//! WatchClassRuntimes: the cluster info, a snapshot of the classes, and then every change of both.

use std::{sync::Arc, time::Duration};

use futures::Stream;
use oprc_grpc::deployment::{GetClusterInfoResponse, WatchEvent, watch_event::Kind};
use tokio::sync::{OwnedSemaphorePermit, broadcast::error::RecvError, mpsc, watch};
use tonic::Status;

use super::convert;
use crate::{
    cache::{Changed, Detected, Start},
    reconcile::ObservedClass,
    service::Service,
};

/// How many events are buffered for a slow client.
const BUFFERED_EVENTS: usize = 64;
/// How long a client may not read at all before its stream is closed.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// One client's stream.
struct Watcher {
    service: Arc<Service>,
    /// Empty for all namespaces.
    namespace: String,
    /// Resume tokens of another process are invalid here.
    epoch: Arc<str>,
    client: mpsc::Sender<WatchEvent>,
}

pub(super) type Events = std::pin::Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

/// Starts a stream, which holds its permit until it ends.
pub(super) fn start(
    service: Arc<Service>,
    namespace: String,
    epoch: Arc<str>,
    resume_token: &str,
    permit: OwnedSemaphorePermit,
) -> Events {
    let (client, receiver) = mpsc::channel(BUFFERED_EVENTS);
    let after = resume_after(&epoch, resume_token);
    let watcher = Watcher { service, namespace, epoch, client };
    tokio::spawn(async move {
        let _permit = permit;
        watcher.run(after).await;
    });
    Box::pin(futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event| (Ok(event), receiver))
    }))
}

/// The number of the last change that the client has seen, if the token is one of this process.
fn resume_after(epoch: &str, token: &str) -> Option<u64> {
    let (of, number) = token.rsplit_once('.')?;
    (of == epoch).then(|| number.parse().ok()).flatten()
}

impl Watcher {
    /// `number` is the last change that the client has seen with this event; none while it lacks a
    /// complete snapshot, because it can't resume then.
    fn event(&self, kind: Kind, number: Option<u64>) -> WatchEvent {
        WatchEvent {
            kind: kind.into(),
            class_runtime: None,
            resume_token: number.map(|it| format!("{}.{it}", self.epoch)).unwrap_or_default(),
            stale: self.service.api_health.is_stale(),
            cluster_info: None,
        }
    }

    fn class_event(&self, kind: Kind, class: &ObservedClass, number: Option<u64>) -> WatchEvent {
        let class = convert::class(class, &self.service.observations.latest());
        WatchEvent { class_runtime: Some(class), ..self.event(kind, number) }
    }

    fn is_in_scope(&self, class: &ObservedClass) -> bool {
        self.namespace.is_empty() || self.namespace == class.namespace
    }

    /// None if the client is gone or doesn't read, or CRM shuts down.
    async fn send(&self, event: WatchEvent) -> Option<()> {
        tokio::select! {
            sent = self.client.send_timeout(event, SEND_TIMEOUT) => sent.ok(),
            () = self.service.stopped() => None,
        }
    }

    /// Sends events until the stream ends.
    async fn run(self, mut after: Option<u64>) -> Option<()> {
        let mut api_health = self.service.api_health.changes();
        let mut cluster_info = ClusterInfoFeed::new(&self.service);
        self.send_cluster_info(&mut cluster_info, after).await?;
        loop {
            let (start, mut changes) = self.service.cache.watch(after);
            let mut sent = self.send_start(start, after).await?;
            loop {
                let change = tokio::select! {
                    change = changes.recv() => change,
                    Ok(()) = api_health.changed() => {
                        self.send(self.event(Kind::Contact, Some(sent))).await?;
                        continue;
                    }
                    () = cluster_info.changed() => {
                        self.send_cluster_info(&mut cluster_info, Some(sent)).await?;
                        continue;
                    }
                    () = self.client.closed() => return None,
                    // The client finds another replica.
                    () = self.service.stopped() => return None,
                };
                match change {
                    Ok(change) if change.number <= sent => {}
                    Ok(change) => {
                        self.send_change(&change).await?;
                        sent = change.number;
                    }
                    // The client lags: resume from the kept changes, or else with a snapshot.
                    Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return None,
                }
            }
            after = Some(sent);
        }
    }

    /// Sends a snapshot or the missed changes, and returns the number of the last change sent.
    async fn send_start(&self, start: Start, after: Option<u64>) -> Option<u64> {
        match start {
            Start::Snapshot(classes, number) => {
                self.send(self.event(Kind::SnapshotBegin, None)).await?;
                for class in classes.iter().filter(|class| self.is_in_scope(class)) {
                    self.send(self.class_event(Kind::Snapshot, class, None)).await?;
                }
                self.send(self.event(Kind::SnapshotEnd, Some(number))).await?;
                Some(number)
            }
            Start::Deltas(missed) => {
                let mut sent = after.unwrap_or_default();
                for change in &missed {
                    self.send_change(change).await?;
                    sent = change.number;
                }
                // Marks the end of the missed changes.
                self.send(self.event(Kind::Contact, Some(sent))).await?;
                Some(sent)
            }
        }
    }

    async fn send_change(&self, change: &Changed) -> Option<()> {
        if !self.is_in_scope(&change.class) {
            return Some(());
        }
        let kind = if change.deleted { Kind::Deleted } else { Kind::Changed };
        self.send(self.class_event(kind, &change.class, Some(change.number))).await
    }

    async fn send_cluster_info(
        &self,
        feed: &mut ClusterInfoFeed,
        number: Option<u64>,
    ) -> Option<()> {
        // It is unknown while the caches sync; the feed notifies when they have.
        let info = convert::cluster_info(&self.service, String::new()).ok();
        let Some(info) = info.and_then(|info| feed.if_changed(info)) else { return Some(()) };
        let event = self.event(Kind::ClusterInfo, number);
        self.send(WatchEvent { cluster_info: Some(info), ..event }).await
    }
}

/// Notifies of what may have changed the cluster info, and drops what hasn't.
struct ClusterInfoFeed {
    nodes: watch::Receiver<()>,
    detected: watch::Receiver<Detected>,
    syncs: watch::Receiver<usize>,
    sent: Option<GetClusterInfoResponse>,
}

impl ClusterInfoFeed {
    fn new(service: &Service) -> Self {
        Self {
            nodes: service.nodes.changes(),
            detected: service.watches.detected(),
            syncs: service.cache.sync_changes(),
            sent: None,
        }
    }

    async fn changed(&mut self) {
        let changed = tokio::select! {
            changed = self.nodes.changed() => changed,
            changed = self.detected.changed() => changed,
            changed = self.syncs.changed() => changed,
        };
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The info to send, if it differs from the last one. Leadership and staleness belong to this
    /// process and not to the cluster, so a change of them alone is not sent.
    fn if_changed(&mut self, info: GetClusterInfoResponse) -> Option<GetClusterInfoResponse> {
        let comparable = GetClusterInfoResponse { leading: false, stale: false, ..info.clone() };
        if self.sent.as_ref() == Some(&comparable) {
            return None;
        }
        self.sent = Some(comparable);
        Some(info)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[tokio::test]
    async fn cluster_info_is_sent_first_and_when_it_differs() {
        let (nodes, receiver) = watch::channel(());
        let (detected, syncs) = (watch::channel(Detected::default()), watch::channel(0));
        let mut feed =
            ClusterInfoFeed { nodes: receiver, detected: detected.1, syncs: syncs.1, sent: None };
        let info = |ready_nodes: i32, knative: bool| GetClusterInfoResponse {
            ready_nodes,
            capabilities: BTreeMap::from([("knative".to_owned(), knative)]),
            ..GetClusterInfoResponse::default()
        };
        assert_eq!(feed.if_changed(info(1, false)), Some(info(1, false)), "the first is sent");
        let pause = Duration::from_millis(10);
        assert!(tokio::time::timeout(pause, feed.changed()).await.is_err(), "nothing changed");
        nodes.send_replace(());
        feed.changed().await;
        assert_eq!(feed.if_changed(info(1, false)), None, "the value is the same");
        nodes.send_replace(());
        feed.changed().await;
        assert_eq!(feed.if_changed(info(2, false)), Some(info(2, false)));
        detected.0.send_replace(Detected { knative: true, ..Detected::default() });
        feed.changed().await;
        assert_eq!(feed.if_changed(info(2, true)), Some(info(2, true)));
        let leading = GetClusterInfoResponse { leading: true, stale: true, ..info(2, true) };
        assert_eq!(feed.if_changed(leading), None);
    }

    #[test]
    fn resume_tokens_of_another_process_are_ignored() {
        assert_eq!(resume_after("a.b", "a.b.7"), Some(7));
        assert_eq!(resume_after("a.b", "c.7"), None);
        assert_eq!(resume_after("a.b", ""), None);
    }
}
