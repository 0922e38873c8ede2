//! Leader election on a Lease: one writes, the others wait and watch.
//!
//! A lease can't keep a late write from arriving, so leadership is asked for before each write and
//! ends by this process's own clock before it ends by anybody else's. Clocks of different machines
//! are never compared: a candidate measures by its own how long a lease hasn't changed.

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
use crate::cluster::{ANEW, is_expired};

/// How long a lease holds that isn't renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(5);
/// How long after its last renewal a leader still believes in itself: less than others wait.
const BELIEF: Duration = Duration::from_secs(10);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(4);

/// Whether this process leads.
#[derive(Clone)]
pub struct Leadership {
    until: Arc<RwLock<Option<Instant>>>,
    leading: watch::Receiver<bool>,
    /// Of one that leads always: keeps those who listen from believing that it is over.
    _always: Option<Arc<watch::Sender<bool>>>,
}

impl Leadership {
    /// Whether it leads at this moment.
    pub fn holds(&self) -> bool {
        self.until().is_some()
    }

    /// Until when it leads at least, where it does: nothing that it writes may take longer.
    pub fn until(&self) -> Option<Instant> {
        let until = *self.until.read();
        until.filter(|until| Instant::now() < *until)
    }

    /// Tells whenever it begins or ends to lead.
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.leading.clone()
    }

    /// One that leads always: for a process that is known to be the only one.
    pub fn always() -> Self {
        let (always, leading) = watch::channel(true);
        let for_ever = Instant::now() + Duration::from_hours(24 * 365 * 10);
        let until = Arc::new(RwLock::new(Some(for_ever)));
        Self { until, leading, _always: Some(Arc::new(always)) }
    }
}

/// A candidate for a lease.
pub struct Candidate {
    client: Client,
    api: Api<Lease>,
    name: String,
    identity: String,
    until: Arc<RwLock<Option<Instant>>>,
    leading: watch::Sender<bool>,
}

impl Candidate {
    /// A candidate, and the way to ask whether it leads.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> (Self, Leadership) {
        let (leading, seen) = watch::channel(false);
        let until = Arc::default();
        let candidate = Self {
            api: Api::namespaced(client.clone(), namespace),
            client,
            name: name.to_owned(),
            identity: identity.to_owned(),
            until: Arc::clone(&until),
            leading,
        };
        (candidate, Leadership { until, leading: seen, _always: None })
    }

    /// Takes part in another namespace, where there is such a lease. Who may not look there takes no
    /// part there.
    pub async fn join(&mut self, namespace: &str) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        loop {
            match tokio::time::timeout(REQUEST, api.get_metadata_opt(&self.name)).await {
                Ok(Ok(Some(_))) => {
                    tracing::info!(namespace, name = self.name, "takes part in the lease there");
                    self.api = api;
                    return;
                }
                Ok(Ok(None)) => return,
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => return,
                other => tracing::debug!(?other, namespace, "whether there is a lease isn't known"),
            }
            tokio::time::sleep(RENEW).await;
        }
    }

    /// Takes part until it is told to stop, and gives the lease back then.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let open = || {
            let events = watcher::watcher(self.api.clone(), config.clone());
            events.backoff(crate::cluster::backoff()).boxed()
        };
        let mut events = open();
        let mut election = Election::new(self.identity.clone(), LEASE, RENEW);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let step = election.next(Instant::now());
            let wait = match step {
                Step::Wait(until) => until,
                Step::Take(record) => {
                    self.take(&mut election, record).await;
                    continue;
                }
            };
            let wait = wait.unwrap_or_else(|| Instant::now() + LEASE);
            // Belief ends by itself, whether or not anybody answers.
            let end = *self.until.read();
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep_until(wait.into()) => {}
                () = sleep_to(end) => self.resign(),
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => election.begin(),
                    Some(Ok(Event::InitApply(lease) | Event::Apply(lease))) => {
                        election.see(record(&lease), Instant::now());
                    }
                    Some(Ok(Event::Delete(_))) => election.gone(Instant::now()),
                    Some(Ok(Event::InitDone)) => election.listed(Instant::now()),
                    Some(Err(error)) => {
                        tracing::debug!(%error, "the watch on the lease broke");
                        if is_expired(&error) {
                            tokio::time::sleep(ANEW).await;
                            events = open();
                        }
                    }
                    None => break,
                },
            }
            if !election.leads() {
                self.resign();
            }
        }
        self.resign();
        if let Some(last) = election.release() {
            let released = tokio::time::timeout(REQUEST, self.write(&last, "")).await;
            if !matches!(released, Ok(Ok(_))) {
                tracing::warn!("the lease couldn't be given back; it runs out by itself");
            }
        }
    }

    async fn take(&self, election: &mut Election, record: Record) {
        let sent = Instant::now();
        match tokio::time::timeout(REQUEST, self.write(&record, &self.identity)).await {
            Ok(Ok(written)) => {
                election.know(written, Instant::now());
                election.taken(sent);
                let before = self.until.write().replace(sent + BELIEF);
                // What was refused while belief had run out has to be looked at again.
                let lapsed = before.is_none_or(|before| before <= Instant::now());
                self.leading.send_if_modified(|leading| {
                    if !std::mem::replace(leading, true) {
                        tracing::info!(identity = self.identity, "leads");
                        return true;
                    }
                    lapsed
                });
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                election.failed(Instant::now());
                // Somebody has written it, and the watch hasn't told: it may never do so.
                let read = tokio::time::timeout(REQUEST, self.api.get(&self.name)).await;
                if let Ok(Ok(lease)) = read {
                    election.know(self::record(&lease), Instant::now());
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the lease couldn't be taken or renewed");
                election.failed(Instant::now());
            }
            Err(_) => election.failed(Instant::now()),
        }
    }

    /// Writes the lease; one that somebody else has written since is left alone.
    async fn write(&self, record: &Record, holder: &str) -> Result<Record, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let changes_hands = record.holder != holder;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: record.version.clone(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
                acquire_time: if changes_hands {
                    Some(now.clone())
                } else {
                    record.acquired.clone()
                },
                renew_time: Some(now),
                lease_transitions: Some(record.transitions + i32::from(changes_hands)),
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
        if self.leading.send_if_modified(|leading| std::mem::replace(leading, false)) {
            tracing::info!(identity = self.identity, "leads no more");
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
