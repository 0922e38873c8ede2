//! Classes, what belongs to them, and what leads from one to the other.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use super::cache::{Changed, Key};
use crate::{
    kinds::{AUTOSCALER, DEPLOYMENT, Kind},
    reconcile::{
        ObservedClass,
        observe::{Child, PodTrouble, State},
    },
};

/// How many ends are remembered: an answer is late by seconds, not by more than that many ends.
const BURIED: usize = 256;

/// What is known, and the ways to find it.
#[derive(Default)]
pub(super) struct Book {
    pub(super) classes: BTreeMap<Key, Arc<ObservedClass>>,
    pub(super) by_base: HashMap<Key, String>,
    pub(super) children: HashMap<Kind, HashMap<Key, Arc<Child>>>,
    pub(super) by_owner: HashMap<String, BTreeSet<(Kind, String)>>,
    /// Autoscalers by the Deployment that they scale.
    pub(super) scalers: HashMap<Key, BTreeSet<String>>,
    pub(super) claims: HashMap<Key, BTreeMap<String, Arc<Child>>>,
    pub(super) troubles: HashMap<Key, BTreeMap<String, PodTrouble>>,
    pub(super) pods: HashMap<Key, String>,
    /// Why pods can't be made, by the identity of their workload.
    pub(super) unmade: HashMap<String, String>,
    pub(super) filled: HashSet<String>,
    /// What went lately, by identity: an answer that comes after the news of an object's end must
    /// not bring it back.
    pub(super) gone: VecDeque<String>,
    /// The latest changes, for those who come back after a break.
    pub(super) recent: VecDeque<Changed>,
    pub(super) number: u64,
}

impl Book {
    pub(super) fn bury(&mut self, uid: &str) {
        if self.gone.iter().any(|gone| gone == uid) {
            return;
        }
        if self.gone.len() >= BURIED {
            self.gone.pop_front();
        }
        self.gone.push_back(uid.to_owned());
    }

    pub(super) fn class_of(&self, namespace: &str, base: &str) -> Option<Key> {
        let name = self.by_base.get(&(namespace.to_owned(), base.to_owned()))?;
        Some((namespace.to_owned(), name.clone()))
    }

    pub(super) fn remember(&mut self, child: &Arc<Child>) {
        let key = (child.namespace.clone(), child.name.clone());
        if let Some(owner) = &child.owner {
            let place = self.by_owner.entry(owner.clone()).or_default();
            place.insert((child.kind.clone(), child.name.clone()));
        }
        match &child.state {
            State::Autoscaler(kind, name) if *kind == DEPLOYMENT.kind => {
                let target = (child.namespace.clone(), name.clone());
                self.scalers.entry(target).or_default().insert(child.name.clone());
            }
            State::Claim(..) => {
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

    pub(super) fn forget(&mut self, child: &Child) {
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
        if let State::Autoscaler(_, name) = &child.state {
            let target = (child.namespace.clone(), name.clone());
            if let Some(all) = self.scalers.get_mut(&target) {
                all.remove(&child.name);
                if all.is_empty() {
                    self.scalers.remove(&target);
                }
            }
        }
        if let (State::Claim(..), Some(class)) = (&child.state, &child.class) {
            let place = (child.namespace.clone(), class.clone());
            if let Some(all) = self.claims.get_mut(&place) {
                all.remove(&child.name);
                if all.is_empty() {
                    self.claims.remove(&place);
                }
            }
        }
    }

    /// The classes to which a change of an object matters.
    pub(super) fn touched(&self, child: &Child) -> Vec<Key> {
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
            && let State::Autoscaler(_, name) = &child.state
            && let Some(target) = self
                .children
                .get(&DEPLOYMENT)
                .and_then(|all| all.get(&(namespace.clone(), name.clone())))
            && let Some(owner) = &target.owner_name
        {
            all.push((namespace.clone(), owner.clone()));
        }
        if child.owner.is_none() {
            // It may be what keeps a class from its name.
            let first = (namespace.clone(), String::new());
            let blocked = self.classes.range(first..).take_while(|(key, _)| key.0 == *namespace);
            all.extend(blocked.filter(|(_, class)| is_blocked(class)).map(|(key, _)| key.clone()));
        }
        all
    }
}

fn is_blocked(class: &ObservedClass) -> bool {
    class.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("NameTaken"))
}
