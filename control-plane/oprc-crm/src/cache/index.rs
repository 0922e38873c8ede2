//! ClassRuntimes, their children, and the indexes from one to the other.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use crate::{
    kinds::{AUTOSCALER, DEPLOYMENT, Kind},
    reason::Reason,
    reconcile::{
        ObservedClass,
        observe::{Child, ObservedState, PodProblem},
    },
};

/// Namespace and name.
pub type Key = (String, String);
/// Uids by namespace and name.
pub type Known = HashMap<Key, String>;

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

#[derive(Default)]
pub(super) struct Index {
    pub(super) classes: BTreeMap<Key, Arc<ObservedClass>>,
    pub(super) by_base: HashMap<Key, String>,
    pub(super) children: HashMap<Kind, HashMap<Key, Arc<Child>>>,
    pub(super) by_owner: HashMap<String, BTreeSet<(Kind, String)>>,
    /// Names of autoscalers by the Deployment that they scale.
    pub(super) autoscalers: HashMap<Key, BTreeSet<String>>,
    pub(super) claims: HashMap<Key, BTreeMap<String, Arc<Child>>>,
    pub(super) pod_problems: HashMap<Key, BTreeMap<String, PodProblem>>,
    pub(super) pods: HashMap<Key, String>,
    /// Why pods can't be created, by the uid of their workload.
    pub(super) pod_creation_failures: HashMap<String, String>,
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
        let name = self.by_base.get(&(namespace.to_owned(), base.to_owned()))?;
        Some((namespace.to_owned(), name.clone()))
    }

    pub(super) fn insert(&mut self, child: &Arc<Child>) {
        let key = (child.namespace.clone(), child.name.clone());
        if let Some(owner) = &child.owner {
            let place = self.by_owner.entry(owner.clone()).or_default();
            place.insert((child.kind.clone(), child.name.clone()));
        }
        match &child.state {
            ObservedState::Autoscaler(kind, name) if *kind == DEPLOYMENT.kind => {
                let target = (child.namespace.clone(), name.clone());
                self.autoscalers.entry(target).or_default().insert(child.name.clone());
            }
            ObservedState::Claim(..) => {
                if let Some(class) = &child.class {
                    let place = (child.namespace.clone(), class.clone());
                    self.claims
                        .entry(place)
                        .or_default()
                        .insert(child.name.clone(), Arc::clone(child));
                }
            }
            _ => {}
        }
        self.children.entry(child.kind.clone()).or_default().insert(key, Arc::clone(child));
    }

    pub(super) fn remove(&mut self, child: &Child) {
        let key = (child.namespace.clone(), child.name.clone());
        if let Some(all) = self.children.get_mut(&child.kind) {
            all.remove(&key);
        }
        if let Some(owner) = &child.owner
            && let Some(all) = self.by_owner.get_mut(owner)
        {
            all.remove(&(child.kind.clone(), child.name.clone()));
            if all.is_empty() {
                self.by_owner.remove(owner);
            }
        }
        if let ObservedState::Autoscaler(_, name) = &child.state {
            let target = (child.namespace.clone(), name.clone());
            if let Some(all) = self.autoscalers.get_mut(&target) {
                all.remove(&child.name);
                if all.is_empty() {
                    self.autoscalers.remove(&target);
                }
            }
        }
        if let (ObservedState::Claim(..), Some(class)) = (&child.state, &child.class) {
            let place = (child.namespace.clone(), class.clone());
            if let Some(all) = self.claims.get_mut(&place) {
                all.remove(&child.name);
                if all.is_empty() {
                    self.claims.remove(&place);
                }
            }
        }
    }

    /// The classes that have to be reconciled when this object changes.
    pub(super) fn affected(&self, child: &Child) -> Vec<Key> {
        let namespace = &child.namespace;
        let mut all = Vec::new();
        if let Some(owner) = &child.owner_name {
            all.push((namespace.clone(), owner.clone()));
        } else if let Some(class) = &child.class
            && let Some(key) = self.class_of(namespace, class)
        {
            all.push(key);
        }
        if child.kind == AUTOSCALER
            && let ObservedState::Autoscaler(_, name) = &child.state
            && let Some(target) = self
                .children
                .get(&DEPLOYMENT)
                .and_then(|all| all.get(&(namespace.clone(), name.clone())))
            && let Some(owner) = &target.owner_name
        {
            all.push((namespace.clone(), owner.clone()));
        }
        if child.owner.is_none() {
            // An object without an owner may be what a class's name conflicts with.
            let first = (namespace.clone(), String::new());
            let blocked = self.classes.range(first..).take_while(|(key, _)| key.0 == *namespace);
            all.extend(blocked.filter(|(_, class)| is_blocked(class)).map(|(key, _)| key.clone()));
        }
        all
    }
}

fn is_blocked(class: &ObservedClass) -> bool {
    class
        .status
        .as_ref()
        .is_some_and(|status| status.reason.as_deref() == Some(Reason::NameTaken.as_str()))
}
