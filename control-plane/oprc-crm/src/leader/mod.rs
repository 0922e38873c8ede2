//! Leader election on a Lease: the leader writes, the others only keep their caches.
//!
//! A Lease can't stop a write that is late, so leadership is checked before each write, and a leader
//! considers itself deposed before any other process may take over. Clocks of different machines are
//! never compared: a candidate measures with its own how long the Lease hasn't changed.

mod election;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use parking_lot::RwLock;
use tokio::sync::watch;

use self::election::{Election, Record, Step};
use crate::cache::{RELIST_DELAY, is_expired};

/// How long others wait for a Lease that isn't renewed before they take it.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Pause between renewals.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// How long after its last renewal a leader still writes: less than others wait.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// Whether this process is the leader.
#[derive(Clone)]
pub struct Leadership {
    until: Arc<RwLock<Option<Instant>>>,
    is_leader: watch::Receiver<bool>,
    /// Keeps the channel of a permanent leader open.
    _always: Option<Arc<watch::Sender<bool>>>,
}

impl Leadership {
    pub fn holds(&self) -> bool {
        self.until().is_some()
    }

    /// Until when this process is certainly the leader, if it is: no write may take longer.
    pub fn until(&self) -> Option<Instant> {
        let until = *self.until.read();
        until.filter(|until| Instant::now() < *until)
    }

    /// Notifies whenever leadership is acquired or lost.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.is_leader.clone()
    }

    /// For a process that is known to be the only one.
    pub fn always() -> Self {
        let (always, is_leader) = watch::channel(true);
        let for_ever = Instant::now() + Duration::from_hours(24 * 365 * 10);
        let until = Arc::new(RwLock::new(Some(for_ever)));
        Self { until, is_leader, _always: Some(Arc::new(always)) }
    }

    #[cfg(test)]
    pub(crate) fn never() -> Self {
        let (never, is_leader) = watch::channel(false);
        Self { until: Arc::default(), is_leader, _always: Some(Arc::new(never)) }
    }
}

pub struct Candidate {
    client: Client,
    api: Api<Lease>,
    name: String,
    identity: String,
    until: Arc<RwLock<Option<Instant>>>,
    is_leader: watch::Sender<bool>,
}

impl Candidate {
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> (Self, Leadership) {
        let (is_leader, changes) = watch::channel(false);
        let until = Arc::default();
        let candidate = Self {
            api: Api::namespaced(client.clone(), namespace),
            client,
            name: name.to_owned(),
            identity: identity.to_owned(),
            until: Arc::clone(&until),
            is_leader,
        };
        (candidate, Leadership { until, is_leader: changes, _always: None })
    }

    /// Uses the Lease in another namespace if it exists there and CRM may read it.
    pub async fn join(&mut self, namespace: &str) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        loop {
            match tokio::time::timeout(REQUEST_TIMEOUT, api.get_metadata_opt(&self.name)).await {
                Ok(Ok(Some(_))) => {
                    let name = &self.name;
                    tracing::info!(namespace, name, "using the lease of the installed CRM");
                    self.api = api;
                    return;
                }
                Ok(Ok(None)) => return,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => return,
                other => {
                    tracing::debug!(?other, namespace, "failed to look up the lease, retrying");
                }
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    /// Runs for leader until `shutdown` completes, and releases the Lease then.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let open = || {
            let events = watcher::watcher(self.api.clone(), config.clone());
            events.backoff(crate::cache::backoff()).boxed()
        };
        let mut events = open();
        let mut election = Election::new(self.identity.clone(), LEASE_DURATION, RETRY_PERIOD);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let wait = match election.next(Instant::now()) {
                Step::Wait(until) => until.unwrap_or_else(|| Instant::now() + LEASE_DURATION),
                Step::Take(record) => {
                    self.take(&mut election, record).await;
                    continue;
                }
            };
            // Leadership ends at its deadline, whether or not the API server responds.
            let end = *self.until.read();
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep_until(wait.into()) => {}
                () = sleep_to(end) => self.resign(),
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => election.relist(),
                    Some(Ok(Event::InitApply(lease) | Event::Apply(lease))) => {
                        election.on_event(record(&lease), Instant::now());
                    }
                    Some(Ok(Event::Delete(_))) => election.deleted(Instant::now()),
                    Some(Ok(Event::InitDone)) => election.listed(Instant::now()),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "watch on the lease failed, retrying");
                        if is_expired(&error) {
                            tokio::time::sleep(RELIST_DELAY).await;
                            events = open();
                        }
                    }
                    None => break,
                },
            }
            if !election.is_leader() {
                self.resign();
            }
        }
        self.resign();
        if let Some(last) = election.release() {
            let released = tokio::time::timeout(REQUEST_TIMEOUT, self.write(&last, "")).await;
            if !matches!(released, Ok(Ok(_))) {
                tracing::warn!("failed to release the lease, it expires by itself");
            }
        }
    }

    async fn take(&self, election: &mut Election, record: Record) {
        let sent = Instant::now();
        match tokio::time::timeout(REQUEST_TIMEOUT, self.write(&record, &self.identity)).await {
            Ok(Ok(written)) => {
                election.on_response(written, Instant::now());
                election.renewed(sent);
                let before = self.until.write().replace(sent + RENEW_DEADLINE);
                // Writes were rejected while leadership had lapsed, so every class is reconciled again.
                let lapsed = before.is_none_or(|before| before <= Instant::now());
                self.is_leader.send_if_modified(|is_leader| {
                    if !std::mem::replace(is_leader, true) {
                        tracing::info!(identity = self.identity, "acquired leadership");
                        return true;
                    }
                    lapsed
                });
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                election.failed(Instant::now());
                // Another candidate has written it, and the watch may never report that.
                let read = tokio::time::timeout(REQUEST_TIMEOUT, self.api.get(&self.name)).await;
                if let Ok(Ok(lease)) = read {
                    election.on_response(self::record(&lease), Instant::now());
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "failed to acquire or renew the lease, retrying");
                election.failed(Instant::now());
            }
            Err(_) => election.failed(Instant::now()),
        }
    }

    /// Writes the Lease unless it has changed since `record` was read.
    async fn write(&self, record: &Record, holder: &str) -> Result<Record, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let new_holder = record.holder != holder;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: record.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                acquire_time: if new_holder { Some(now.clone()) } else { record.acquired.clone() },
                renew_time: Some(now),
                lease_transitions: Some(record.transitions + i32::from(new_holder)),
                ..LeaseSpec::default()
            }),
        };
        let params = PostParams::default();
        let written = if record.version.is_some() {
            self.api.replace(&self.name, &params, &lease).await?
        } else {
            self.api.create(&params, &lease).await?
        };
        Ok(self::record(&written))
    }

    fn resign(&self) {
        *self.until.write() = None;
        if self.is_leader.send_if_modified(|is_leader| std::mem::replace(is_leader, false)) {
            tracing::info!(identity = self.identity, "lost leadership, stopping workers");
        }
    }
}

async fn sleep_to(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    Record {
        holder: spec.and_then(|it| it.holder_identity.clone()).unwrap_or_default(),
        version: lease.metadata.resource_version.clone(),
        transitions: spec.and_then(|it| it.lease_transitions).unwrap_or(0),
        acquired: spec.and_then(|it| it.acquire_time.clone()),
    }
}
