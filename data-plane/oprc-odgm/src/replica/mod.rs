//! A node of a grid whose objects are replicated: its etcd, the other nodes, and which of them executes
//! which calls.

mod balance;
pub(crate) mod cluster;
pub(crate) mod defragmentation;
pub(crate) mod etcd_child;
pub(crate) mod file_size;
pub(crate) mod join;
pub(crate) mod members;
pub(crate) mod ownership;
pub(crate) mod peer_client;
pub(crate) mod peers;
pub(crate) mod roster;
mod space;

pub use self::etcd_child::{EXEC_ETCD, exec_etcd};

use std::{sync::Arc, time::Duration};

use oprc_cp_storage::{Error as StoreError, Store};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::watch, time::timeout};

use self::{
    cluster::Cluster,
    defragmentation::OwnDefragmentation,
    file_size::RESERVE,
    ownership::{Owner, OwnerRecord, Ownership, PARTITIONS, home},
    peer_client::{PeerClient, PeerError},
    peers::Peers,
};
use crate::{
    Error,
    config::{Collection, ReplicaConfig},
};

/// Longer than a call may take, which waits for its turn, its function and its triggers: a node that hangs
/// is noticed by pings.
const FORWARD_TIMEOUT: Duration = Duration::from_mins(15);
/// How long calls wait until a node that shuts down has handed over its partitions.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(15);
/// Status of a node that isn't the owner.
pub(crate) const MISDIRECTED: u16 = 421;

/// Whether partitions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serving {
    Active,
    /// Waits for running calls; further ones wait.
    HandingOver,
    /// Other nodes own the partitions.
    HandedOver,
}

/// This node as a member of a replicated grid.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) config: ReplicaConfig,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) ownership: Ownership,
    client: Arc<PeerClient>,
    serving: watch::Sender<Serving>,
    defragmentation: OwnDefragmentation,
}

/// Where a call is executed.
#[derive(Debug)]
pub(crate) enum Route {
    Local,
    /// The key of the partition and its owner.
    Remote(String, Owner),
}

/// The outcome of a call that was forwarded to the owner of its object.
#[derive(Debug)]
pub(crate) enum Forwarded<T> {
    Answered(T),
    /// The node is no longer the owner.
    Misdirected,
    /// The owner didn't execute it.
    NotExecuted(String),
    /// The owner may have executed it.
    Unknown(String),
}

impl<T> Forwarded<T> {
    /// The label of the outcome in metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Answered(_) => "answered",
            Self::Misdirected => "misdirected",
            Self::NotExecuted(_) => "not_executed",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl Replica {
    pub(crate) fn new(
        config: ReplicaConfig,
        collections: &[Collection],
        store: Store,
        cluster: Arc<Cluster>,
        peers: Arc<Peers>,
        client: Arc<PeerClient>,
    ) -> Self {
        let address = config.peer_address(config.index);
        let own = OwnerRecord { node: config.name.clone(), address };
        let ownership = Ownership::new(store, own, collections);
        let serving = watch::Sender::new(Serving::Active);
        let defragmentation = OwnDefragmentation::default();
        Self { config, cluster, peers, ownership, client, serving, defragmentation }
    }

    /// Whether a member has no space for writes of callers.
    pub(crate) fn is_reserve_used(&self) -> bool {
        let own = self.cluster.file_size();
        own.is_some_and(|it| it.is_reserve_used()) || self.peers.is_reserve_used()
    }

    /// Fails if there is no space for writes of callers.
    pub(crate) fn require_space(&self) -> Result<(), Error> {
        let is_out_of_space = self.cluster.is_out_of_space();
        match refusal(is_out_of_space, self.is_reserve_used()) {
            Some(reason) => Err(Error::Unavailable(reason)),
            None => Ok(()),
        }
    }

    /// Whether this node may own partitions.
    pub(crate) fn is_ready(&self) -> bool {
        *self.serving.borrow() == Serving::Active && self.cluster.has_quorum()
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.serving.borrow() != Serving::Active
    }

    /// Nodes that may own partitions, by name.
    fn candidates(&self) -> Vec<String> {
        let is_ready = |name: &String| {
            if *name == self.config.name { self.is_ready() } else { self.peers.is_ready(name) }
        };
        self.cluster.voters().into_iter().filter(is_ready).collect()
    }

    fn record_of(&self, name: &str) -> Option<OwnerRecord> {
        let address = self.config.peer_address(crate::config::index_of(name)?);
        Some(OwnerRecord { node: name.to_owned(), address })
    }

    /// Finds the owner of an object. A partition without an owner gets one.
    pub(crate) async fn route(&self, object_key: &str) -> Result<Route, Error> {
        self.cluster.wait_for_quorum().await?;
        let key = self.ownership.key_of(object_key)?;
        let owner = match self.ownership.owner(&key) {
            Some(owner) => Some(owner),
            None => self.ownership.refresh(&key).await?,
        };
        let owner = match owner {
            Some(owner) => owner,
            None => self.claim(&key).await?,
        };
        if !self.ownership.is_own(&owner) {
            return Ok(Route::Remote(key, owner));
        }
        if *self.serving.borrow() == Serving::Active {
            return Ok(Route::Local);
        }
        let mut serving = self.serving.subscribe();
        let done = serving.wait_for(|it| *it == Serving::HandedOver);
        let _ = timeout(HAND_OVER_TIMEOUT, done).await;
        match self.ownership.refresh(&key).await? {
            Some(owner) if !self.ownership.is_own(&owner) => Ok(Route::Remote(key, owner)),
            _ => Err(Error::Unavailable("the node is shutting down".to_owned())),
        }
    }

    /// Gives a partition without an owner to this node, or to another one if this can't own it.
    async fn claim(&self, key: &str) -> Result<Owner, Error> {
        let candidates = self.candidates();
        let target = candidates.iter().find(|it| **it == self.config.name);
        let target = target.or_else(|| home(key, &candidates));
        let record = target.and_then(|name| self.record_of(name));
        let no_node = || Error::Unavailable("no node of the grid is ready".to_owned());
        let targets = vec![(key.to_owned(), None, record.ok_or_else(no_node)?)];
        self.ownership.assign(targets).await?;
        let owner = self.ownership.owner(key);
        owner.ok_or_else(|| Error::Unavailable("the partition has no owner".to_owned()))
    }

    /// Whether this node executes a call that another one forwarded.
    pub(crate) async fn accepts(&self, object_key: &str) -> Result<bool, Error> {
        let key = self.ownership.key_of(object_key)?;
        let is_known = self.ownership.owner(&key).is_some_and(|it| self.ownership.is_own(&it));
        if !is_known {
            // The other node may have learned of a takeover first.
            self.ownership.refresh(&key).await?;
        }
        Ok(matches!(self.route(object_key).await?, Route::Local))
    }

    /// Sends a call to the owner of its object, and waits for the answer as long as the owner responds.
    pub(crate) async fn forward<T: DeserializeOwned>(
        &self,
        owner: &Owner,
        call: &impl Serialize,
    ) -> Forwarded<T> {
        let OwnerRecord { node, address } = &owner.record;
        if self.peers.is_dead(node) {
            return Forwarded::NotExecuted(format!("{node} does not respond"));
        }
        let sent = self.client.call(address, "/call", call, FORWARD_TIMEOUT);
        let answer = tokio::select! {
            answer = sent => answer,
            () = self.peers.died(node) => {
                return Forwarded::Unknown(format!("{node} does not respond"));
            }
        };
        match answer {
            Ok(answer) => Forwarded::Answered(answer),
            Err(PeerError::Status(MISDIRECTED, _)) => Forwarded::Misdirected,
            Err(error @ (PeerError::Broken(_) | PeerError::Status(500, _))) => {
                Forwarded::Unknown(error.to_string())
            }
            // All other refusals come before the call is executed.
            Err(error) => Forwarded::NotExecuted(error.to_string()),
        }
    }

    /// Takes a partition from an owner that doesn't respond.
    pub(crate) async fn take_over(
        &self,
        key: String,
        from: Owner,
        reason: &str,
    ) -> Result<(), Error> {
        tracing::warn!(partition = key, from = from.record.node, reason, "taking over a partition");
        if !self.is_ready() {
            return Err(Error::Unavailable(format!("the owner of the object failed: {reason}")));
        }
        self.ownership.take(vec![(key, Some(from))]).await.map(drop)
    }
}

/// Why callers can't write now.
fn refusal(is_out_of_space: bool, is_reserve_used: bool) -> Option<String> {
    let left = 100 - RESERVE;
    let what = match () {
        () if is_out_of_space => "the quota of the store is used up".to_owned(),
        () if is_reserve_used => format!("less than {left} % of the store's quota is left"),
        () => return None,
    };
    Some(format!("{what}, delete objects to free space"))
}

/// Whether a commit failed because this node is no longer the owner.
pub(crate) fn lost_partition(error: &StoreError) -> Option<Error> {
    match error {
        StoreError::Conflict { key, .. } if key.starts_with(PARTITIONS) => {
            Some(Error::NotOwner(key.clone()))
        }
        _ => None,
    }
}
