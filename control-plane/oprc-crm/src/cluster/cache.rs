//! Everything that watches have told, as small as it can be kept, with the ways to find it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use oprc_unit::{UnitSpec, names};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::{broadcast, watch};

use super::{Dirty, book::Book};
use crate::{
    crd::ClassRuntimeStatus,
    kinds::{AUTOSCALER, Kind},
    reconcile::{
        ObservedClass,
        observe::{Child, PodTrouble, Sight, Unmade},
    },
};

/// A class by namespace and name.
pub type Key = (String, String);
/// Identities of what is there, by namespace and name.
pub type Known = HashMap<Key, String>;

/// How many changes a reader may lag behind before it has to begin anew.
const LAG: usize = 1024;

/// Something that has become of a class.
#[derive(Clone, Debug)]
pub struct Changed {
    /// Its number: one more than that of the change before.
    pub number: u64,
    /// Whether the class is gone.
    pub gone: bool,
    /// The class, as it is or was, but for what nobody is told who follows.
    pub class: Arc<ObservedClass>,
}

/// What somebody who follows classes begins with.
pub enum Begin {
    /// Everything there is, as of a change's number.
    Snapshot(Vec<Arc<ObservedClass>>, u64),
    /// What has changed since.
    Deltas(Vec<Changed>),
}

/// The caches.
pub struct Cache {
    filled: watch::Sender<usize>,
    book: RwLock<Book>,
    dirty: Dirty,
    changes: broadcast::Sender<Changed>,
}

impl Default for Cache {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(LAG);
        let (filled, _) = watch::channel(0);
        Self { filled, book: RwLock::default(), dirty: Dirty::default(), changes }
    }
}

impl Cache {
    /// Where classes arrive that should be looked at.
    pub fn dirty(&self) -> Dirty {
        self.dirty.clone()
    }

    fn read(&self) -> RwLockReadGuard<'_, Book> {
        self.book.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Book> {
        self.book.write()
    }

    /// Has a class looked at.
    pub fn mark(&self, key: Key) {
        self.dirty.mark(key);
    }

    /// Has every class looked at.
    pub fn mark_all(&self) {
        for key in self.read().classes.keys() {
            self.mark(key.clone());
        }
    }

    /// Says that a watch has told all there is.
    pub fn set_filled(&self, what: &str) {
        self.write().filled.insert(what.to_owned());
        self.filled.send_modify(|count| *count += 1);
    }

    /// Says that nothing is known of something any more.
    pub fn set_unfilled(&self, what: &str) {
        self.write().filled.remove(what);
    }

    /// Tells whenever a watch has told all there is.
    pub fn filling(&self) -> watch::Receiver<usize> {
        self.filled.subscribe()
    }

    /// Whether a watch has told all there is.
    pub fn is_filled(&self, what: &str) -> bool {
        self.read().filled.contains(what)
    }

    /// A class.
    pub fn class(&self, key: &Key) -> Option<Arc<ObservedClass>> {
        self.read().classes.get(key).cloned()
    }

    /// Classes in order, after a key where one is given.
    pub fn classes_after(&self, after: Option<&Key>) -> Vec<Arc<ObservedClass>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let begin = after.map_or(Unbounded, Excluded);
        self.read()
            .classes
            .range::<Key, _>((begin, Unbounded))
            .map(|(_, it)| Arc::clone(it))
            .collect()
    }

    /// How many classes there are.
    pub fn count(&self) -> usize {
        self.read().classes.len()
    }

    /// What there is to begin with, and what becomes of classes from there on, without a gap
    /// between. Who has seen a change already gets what came after it, where that is still known.
    pub fn follow(&self, after: Option<u64>) -> (Begin, broadcast::Receiver<Changed>) {
        let book = self.read();
        let changes = self.changes.subscribe();
        let oldest = book.recent.front().map_or(book.number + 1, |change| change.number);
        let begin = match after {
            Some(after) if after <= book.number && after + 1 >= oldest => {
                let later = book.recent.iter().filter(|change| change.number > after);
                Begin::Deltas(later.cloned().collect())
            }
            _ => Begin::Snapshot(book.classes.values().cloned().collect(), book.number),
        };
        (begin, changes)
    }

    /// Tells under the lock, so that those who follow see everything in order.
    fn tell(&self, book: &mut Book, class: &ObservedClass, gone: bool) {
        book.number += 1;
        let change = Changed { number: book.number, gone, class: Arc::new(in_short(class)) };
        if book.recent.len() >= LAG {
            book.recent.pop_front();
        }
        book.recent.push_back(change.clone());
        // Nobody may be listening.
        let _ = self.changes.send(change);
    }

    /// A class is as told. An older version than the known one is ignored.
    pub fn put_class(&self, class: ObservedClass) {
        let key = (class.namespace.clone(), class.name.clone());
        let mut book = self.write();
        if book.gone.contains(&class.uid) {
            return;
        }
        if let Some(known) = book.classes.get(&key)
            && (**known == class || !newer(&class, known))
        {
            return;
        }
        let base = (class.namespace.clone(), names::base(&class.name));
        book.by_base.insert(base, class.name.clone());
        let class = Arc::new(class);
        book.classes.insert(key.clone(), Arc::clone(&class));
        self.tell(&mut book, &class, false);
        drop(book);
        self.mark(key);
    }

    /// A class is gone. One that has come in its place in the meantime stays.
    pub fn remove_class(&self, key: &Key, uid: &str) {
        let mut book = self.write();
        book.bury(uid);
        if book.classes.get(key).is_some_and(|known| known.uid == uid)
            && let Some(class) = book.classes.remove(key)
        {
            book.by_base.remove(&(key.0.clone(), names::base(&key.1)));
            self.tell(&mut book, &class, true);
        }
        drop(book);
        self.mark(key.clone());
    }

    /// What is known now: what a list doesn't tell of that begins after this, is gone.
    pub fn known_classes(&self) -> Known {
        let book = self.read();
        book.classes.iter().map(|(key, class)| (key.clone(), class.uid.clone())).collect()
    }

    /// What is known of a kind now, likewise.
    pub fn known_children(&self, kind: &Kind) -> Known {
        let book = self.read();
        let all = book.children.get(kind).into_iter().flatten();
        all.map(|(key, child)| (key.clone(), child.uid.clone())).collect()
    }

    /// An object is as told. Of an older version than the known one no more is taken than what it
    /// was the answer to.
    pub fn put_child(&self, mut child: Child) {
        let key = (child.namespace.clone(), child.name.clone());
        let mut book = self.write();
        if book.gone.contains(&child.uid) {
            return;
        }
        let known = book.children.get(&child.kind).and_then(|all| all.get(&key)).cloned();
        if let Some(known) = &known {
            if child.newer_than(known) {
                child = child.after(known);
            } else if let Some(taught) = known.taught_by(&child) {
                child = taught;
            } else {
                return;
            }
        }
        if let Some(known) = &known {
            book.forget(known);
        }
        let child = Arc::new(child);
        book.remember(&child);
        if child.has_its_pods() {
            book.unmade.remove(&child.uid);
        }
        let mut touched = book.touched(&child);
        if let Some(known) = &known {
            touched.extend(book.touched(known));
        }
        drop(book);
        for key in touched {
            self.mark(key);
        }
    }

    /// An object is gone. One that has come in its place in the meantime stays.
    pub fn remove_child(&self, kind: &Kind, key: &Key, uid: &str) {
        let mut book = self.write();
        book.bury(uid);
        let Some(known) = book.children.get(kind).and_then(|all| all.get(key)).cloned() else {
            return;
        };
        if uid != known.uid {
            return;
        }
        book.forget(&known);
        book.unmade.remove(uid);
        let touched = book.touched(&known);
        drop(book);
        for key in touched {
            self.mark(key);
        }
    }

    /// A pod complains, or has stopped to.
    pub fn put_pod(&self, namespace: &str, pod: &str, trouble: Option<PodTrouble>) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut book = self.write();
        let before = book.pods.get(&key).cloned();
        let after = trouble.as_ref().map(|it| it.class.clone());
        let mut changed = false;
        if let Some(class) = &before {
            let place = (namespace.to_owned(), class.clone());
            if let Some(all) = book.troubles.get_mut(&place) {
                changed = all.remove(pod).as_ref() != trouble.as_ref();
                if all.is_empty() {
                    book.troubles.remove(&place);
                }
            }
            book.pods.remove(&key);
        }
        if let Some(trouble) = trouble {
            changed |= before.is_none();
            let place = (namespace.to_owned(), trouble.class.clone());
            book.pods.insert(key, trouble.class.clone());
            book.troubles.entry(place).or_default().insert(pod.to_owned(), trouble);
        }
        let touched: Vec<Key> = if changed {
            let both = before.into_iter().chain(after);
            both.filter_map(|class| book.class_of(namespace, &class)).collect()
        } else {
            Vec::new()
        };
        drop(book);
        for key in touched {
            self.mark(key);
        }
    }

    /// Pods of a workload can't be made.
    pub fn put_unmade(&self, namespace: &str, unmade: &Unmade) {
        let key = (namespace.to_owned(), unmade.name.clone());
        let mut book = self.write();
        let known = book.children.get(&unmade.kind).and_then(|all| all.get(&key)).cloned();
        // An Event outlasts what it tells of. One may also come before its workload.
        let matters =
            |it: &Arc<Child>| it.uid == unmade.uid && it.owner.is_some() && !it.has_its_pods();
        if known.as_ref().is_some_and(|it| !matters(it)) {
            return;
        }
        let before = book.unmade.insert(unmade.uid.clone(), unmade.why.clone());
        let touched = match known.filter(|_| before.as_ref() != Some(&unmade.why)) {
            Some(known) => book.touched(&known),
            None => Vec::new(),
        };
        drop(book);
        for key in touched {
            self.mark(key);
        }
    }

    /// Keeps only what is said of workloads that are there.
    pub fn forget_unmade(&self) {
        let mut book = self.write();
        let there: HashSet<String> = book
            .children
            .values()
            .flat_map(HashMap::values)
            .filter(|child| book.unmade.contains_key(&child.uid))
            .map(|child| child.uid.clone())
            .collect();
        book.unmade.retain(|uid, _| there.contains(uid));
    }

    /// Nothing is said of a workload's pods any more.
    pub fn remove_unmade(&self, uid: &str) {
        self.write().unmade.remove(uid);
    }

    /// Keeps only complaints of these pods.
    pub fn retain_pods(&self, kept: &HashSet<Key>) {
        let gone: Vec<Key> = {
            let book = self.read();
            book.pods.keys().filter(|key| !kept.contains(key)).cloned().collect()
        };
        for (namespace, pod) in gone {
            self.put_pod(&namespace, &pod, None);
        }
    }
}

/// A class without what may be large: changes are kept by the thousand, versions of one class too.
fn in_short(class: &ObservedClass) -> ObservedClass {
    let spec = class.spec.as_ref().map_err(Clone::clone).map(|spec| UnitSpec {
        deployment_unit: spec.deployment_unit.clone(),
        target_environment: spec.target_environment.clone(),
        ..UnitSpec::default()
    });
    let status = class
        .status
        .as_ref()
        .map(|status| ClassRuntimeStatus { last_available: None, ..status.clone() });
    ObservedClass {
        name: class.name.clone(),
        namespace: class.namespace.clone(),
        uid: class.uid.clone(),
        resource_version: class.resource_version.clone(),
        finalizers: class.finalizers.clone(),
        labels: class.labels.clone(),
        deployment_id: class.deployment_id.clone(),
        correlation_id: class.correlation_id.clone(),
        spec,
        status,
        ..*class
    }
}

fn newer(class: &ObservedClass, known: &ObservedClass) -> bool {
    match (class.resource_version.parse::<u64>(), known.resource_version.parse::<u64>()) {
        (Ok(own), Ok(others)) => class.uid != known.uid || own > others,
        _ => true,
    }
}

impl Sight for Cache {
    fn owned(&self, namespace: &str, uid: &str) -> Vec<Arc<Child>> {
        let book = self.read();
        let names = book.by_owner.get(uid).into_iter().flatten();
        names
            .filter_map(|(kind, name)| {
                book.children.get(kind)?.get(&(namespace.to_owned(), name.clone())).cloned()
            })
            .collect()
    }

    fn named(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Child>> {
        self.read().children.get(kind)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn scalers(&self, namespace: &str, deployment: &str) -> Vec<Arc<Child>> {
        let book = self.read();
        let names = book.scalers.get(&(namespace.to_owned(), deployment.to_owned()));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| {
                book.children.get(&AUTOSCALER)?.get(&(namespace.to_owned(), name.clone())).cloned()
            })
            .collect()
    }

    fn claims(&self, namespace: &str, class: &str) -> Vec<Arc<Child>> {
        let book = self.read();
        let all = book.claims.get(&(namespace.to_owned(), class.to_owned()));
        all.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn troubles(&self, namespace: &str, class: &str) -> Vec<PodTrouble> {
        let book = self.read();
        let all = book.troubles.get(&(namespace.to_owned(), class.to_owned()));
        all.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn unmade(&self, uid: &str) -> Option<String> {
        self.read().unmade.get(uid).cloned()
    }
}

#[cfg(test)]
mod tests;
