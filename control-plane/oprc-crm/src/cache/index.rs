//! ClassRuntimes, their children, and the indexes from one to the other.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
};

use super::{
    key::{Key, key},
    pods::Pods,
};
use crate::{
    kinds::{DEPLOYMENT, Kind},
    reason::Reason,
    reconcile::{
        ObservedClass,
        observe::{Child, GridObservation, GridPod, ObservedState, PodProblem},
    },
};

/// A change of a class.
#[derive(Clone, Debug)]
pub struct Changed {
    /// One more than that of the previous change.
    pub number: u64,
    pub deleted: bool,
    /// Without the fields that watchers aren't sent.
    pub class: Arc<ObservedClass>,
}

/// Bound on the tombstones: an API response is late by seconds, not by this many deletions.
const MAX_TOMBSTONES: usize = 256;

/// Named values in groups; a group exists while it has a value.
pub(super) struct Groups<G, N, V>(HashMap<G, BTreeMap<N, V>>);

impl<G, N, V> Default for Groups<G, N, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<G: Hash + Eq, N: Ord, V> Groups<G, N, V> {
    pub(super) fn insert(&mut self, group: G, name: N, value: V) {
        self.0.entry(group).or_default().insert(name, value);
    }

    pub(super) fn remove(&mut self, group: &G, name: &N) -> Option<V> {
        let values = self.0.get_mut(group)?;
        let removed = values.remove(name);
        if values.is_empty() {
            self.0.remove(group);
        }
        removed
    }

    /// The values of a group, ordered by their names.
    pub(super) fn values(&self, group: &G) -> impl Iterator<Item = &V> {
        self.0.get(group).into_iter().flat_map(BTreeMap::values)
    }
}

#[derive(Default)]
pub(super) struct Index {
    pub(super) classes: BTreeMap<Key, Arc<ObservedClass>>,
    pub(super) by_base: HashMap<Key, String>,
    pub(super) children: HashMap<Kind, HashMap<Key, Arc<Child>>>,
    /// Children by the uid of the class that controls them.
    pub(super) by_owner: Groups<String, (Kind, Key), Arc<Child>>,
    /// Autoscalers by the Deployment that they scale.
    pub(super) autoscalers: Groups<Key, String, Arc<Child>>,
    /// Claims by the class that they are labelled with.
    pub(super) claims: Groups<Key, String, Arc<Child>>,
    /// Problems of pods by class.
    pub(super) pod_problems: Groups<Key, String, PodProblem>,
    pub(super) pods: Pods,
    /// Why pods can't be created, by the uid of their workload.
    pub(super) pod_creation_failures: HashMap<String, String>,
    /// Reports of data grids by class.
    pub(super) grids: HashMap<Key, GridObservation>,
    pub(super) synced: HashSet<String>,
    /// Uids of objects deleted lately: a late API response must not resurrect a deleted object.
    pub(super) tombstones: VecDeque<String>,
    /// The latest changes, for watchers that resume.
    pub(super) recent: VecDeque<Changed>,
    pub(super) number: u64,
}

impl Index {
    pub(super) fn tombstone(&mut self, uid: &str) {
        if self.tombstones.iter().any(|it| it == uid) {
            return;
        }
        if self.tombstones.len() >= MAX_TOMBSTONES {
            self.tombstones.pop_front();
        }
        self.tombstones.push_back(uid.to_owned());
    }

    pub(super) fn class_of(&self, namespace: &str, base: &str) -> Option<Key> {
        let name = self.by_base.get(&key(namespace, base))?;
        Some(key(namespace, name))
    }

    /// An existing pod of a data grid.
    pub(super) fn grid_pod(&self, own: &Key) -> Option<GridPod> {
        let pod = self.pods.get(own).filter(|pod| pod.function.is_none())?;
        let class = key(&pod.namespace, &pod.class);
        let has_problem = self.pod_problems.values(&class).any(|it| it.pod == pod.name);
        Some(GridPod { ready: pod.ready, revision: pod.revision.clone(), has_problem })
    }

    pub(super) fn child(&self, kind: &Kind, key: &Key) -> Option<Arc<Child>> {
        self.children.get(kind)?.get(key).cloned()
    }

    pub(super) fn insert(&mut self, child: &Arc<Child>) {
        let own = key(&child.namespace, &child.name);
        if let Some(owner) = &child.owner {
            let name = (child.kind.clone(), own.clone());
            self.by_owner.insert(owner.clone(), name, Arc::clone(child));
        }
        if let Some(target) = scaled_deployment(child) {
            self.autoscalers.insert(target, child.name.clone(), Arc::clone(child));
        }
        if let Some(class) = claiming_class(child) {
            self.claims.insert(class, child.name.clone(), Arc::clone(child));
        }
        self.children.entry(child.kind.clone()).or_default().insert(own, Arc::clone(child));
    }

    pub(super) fn remove(&mut self, child: &Child) {
        let own = key(&child.namespace, &child.name);
        if let Some(all) = self.children.get_mut(&child.kind) {
            all.remove(&own);
        }
        if let Some(owner) = &child.owner {
            self.by_owner.remove(owner, &(child.kind.clone(), own));
        }
        if let Some(target) = scaled_deployment(child) {
            self.autoscalers.remove(&target, &child.name);
        }
        if let Some(class) = claiming_class(child) {
            self.claims.remove(&class, &child.name);
        }
    }

    /// The classes that have to be reconciled when this object changes.
    pub(super) fn affected(&self, child: &Child) -> Vec<Key> {
        let namespace = &child.namespace;
        let mut all = Vec::new();
        if let Some(owner) = &child.owner_name {
            all.push(key(namespace, owner));
        } else if let Some(class) = &child.class {
            all.extend(self.class_of(namespace, class));
        }
        if let Some(target) = scaled_deployment(child)
            && let Some(deployment) = self.child(&DEPLOYMENT, &target)
            && let Some(owner) = &deployment.owner_name
        {
            all.push(key(namespace, owner));
        }
        if child.owner.is_none() {
            // An object without an owner may be what a class's name conflicts with.
            let first = key(namespace, "");
            let blocked = self.classes.range(first..).take_while(|(key, _)| key.0 == *namespace);
            all.extend(blocked.filter(|(_, class)| is_blocked(class)).map(|(key, _)| key.clone()));
        }
        all
    }
}

/// The Deployment that an autoscaler scales.
fn scaled_deployment(child: &Child) -> Option<Key> {
    match &child.state {
        ObservedState::Autoscaler(kind, name) if *kind == DEPLOYMENT.kind => {
            Some(key(&child.namespace, name))
        }
        _ => None,
    }
}

/// The class that a claim is labelled with.
fn claiming_class(child: &Child) -> Option<Key> {
    let class = child.class.as_ref().filter(|_| matches!(child.state, ObservedState::Claim(..)))?;
    Some(key(&child.namespace, class))
}

fn is_blocked(class: &ObservedClass) -> bool {
    let reason = class.status.as_ref().and_then(|status| status.reason.as_deref());
    reason == Some(Reason::NameConflict.as_str())
}
