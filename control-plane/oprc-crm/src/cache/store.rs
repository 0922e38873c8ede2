//! The cache: projections of what the watches report, and the notifications of their changes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use oprc_unit::{UnitSpec, names};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::{broadcast, watch};

use super::{
    index::{Changed, Index, Key, Known},
    workqueue::WorkQueue,
};
use crate::{
    crd::ClassRuntimeStatus,
    kinds::{AUTOSCALER, Kind},
    reconcile::{
        ObservedClass,
        observe::{Child, ClusterView, PodCreationFailure, PodProblem},
    },
};

/// How many changes a watcher may lag behind before it needs a new snapshot.
const MAX_LAG: usize = 1024;

/// What a watcher is sent first.
pub enum Start {
    /// All classes, as of the change of this number.
    Snapshot(Vec<Arc<ObservedClass>>, u64),
    /// The changes since the one that the watcher has seen.
    Deltas(Vec<Changed>),
}

pub struct Cache {
    synced: watch::Sender<usize>,
    index: RwLock<Index>,
    workqueue: WorkQueue,
    changes: broadcast::Sender<Changed>,
}

impl Default for Cache {
    fn default() -> Self {
        let (changes, _) = broadcast::channel(MAX_LAG);
        let (synced, _) = watch::channel(0);
        Self { synced, index: RwLock::default(), workqueue: WorkQueue::default(), changes }
    }
}

impl Cache {
    pub fn workqueue(&self) -> WorkQueue {
        self.workqueue.clone()
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }

    pub fn enqueue(&self, key: Key) {
        self.workqueue.add(key);
    }

    pub fn enqueue_all(&self) {
        for key in self.read().classes.keys() {
            self.enqueue(key.clone());
        }
    }

    /// Records that a watch has completed its initial list.
    pub fn set_synced(&self, what: &str) {
        self.write().synced.insert(what.to_owned());
        self.synced.send_modify(|count| *count += 1);
    }

    pub fn set_unsynced(&self, what: &str) {
        self.write().synced.remove(what);
    }

    /// Notifies whenever a watch has completed its initial list.
    pub fn sync_changes(&self) -> watch::Receiver<usize> {
        self.synced.subscribe()
    }

    pub fn is_synced(&self, what: &str) -> bool {
        self.read().synced.contains(what)
    }

    pub fn class(&self, key: &Key) -> Option<Arc<ObservedClass>> {
        self.read().classes.get(key).cloned()
    }

    /// Classes in the order of their keys, those after `after` only.
    pub fn classes_after(&self, after: Option<&Key>) -> Vec<Arc<ObservedClass>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let begin = after.map_or(Unbounded, Excluded);
        self.read()
            .classes
            .range::<Key, _>((begin, Unbounded))
            .map(|(_, it)| Arc::clone(it))
            .collect()
    }

    pub fn count(&self) -> usize {
        self.read().classes.len()
    }

    /// What to send a watcher first, and the changes after that, without a gap in between. A watcher
    /// that has seen change `after` gets only later ones, as long as those are still kept.
    pub fn watch(&self, after: Option<u64>) -> (Start, broadcast::Receiver<Changed>) {
        let index = self.read();
        let changes = self.changes.subscribe();
        let oldest = index.recent.front().map_or(index.number + 1, |change| change.number);
        let start = match after {
            Some(after) if after <= index.number && after + 1 >= oldest => {
                let later = index.recent.iter().filter(|change| change.number > after);
                Start::Deltas(later.cloned().collect())
            }
            _ => Start::Snapshot(index.classes.values().cloned().collect(), index.number),
        };
        (start, changes)
    }

    /// Publishes under the lock, so that watchers see changes in order.
    fn publish(&self, index: &mut Index, class: &ObservedClass, deleted: bool) {
        index.number += 1;
        let change =
            Changed { number: index.number, deleted, class: Arc::new(without_large_fields(class)) };
        if index.recent.len() >= MAX_LAG {
            index.recent.pop_front();
        }
        index.recent.push_back(change.clone());
        // There may be no watchers.
        let _ = self.changes.send(change);
    }

    /// Inserts or updates a class. A version older than the cached one is ignored.
    pub fn put_class(&self, class: ObservedClass) {
        let key = (class.namespace.clone(), class.name.clone());
        let mut index = self.write();
        if index.tombstones.contains(&class.uid) {
            return;
        }
        if let Some(known) = index.classes.get(&key)
            && (**known == class || !newer(&class, known))
        {
            return;
        }
        let base = (class.namespace.clone(), names::base(&class.name));
        index.by_base.insert(base, class.name.clone());
        let class = Arc::new(class);
        index.classes.insert(key.clone(), Arc::clone(&class));
        self.publish(&mut index, &class, false);
        drop(index);
        self.enqueue(key);
    }

    /// Removes a class unless one with another uid has replaced it.
    pub fn remove_class(&self, key: &Key, uid: &str) {
        let mut index = self.write();
        index.tombstone(uid);
        if index.classes.get(key).is_some_and(|known| known.uid == uid)
            && let Some(class) = index.classes.remove(key)
        {
            index.by_base.remove(&(key.0.clone(), names::base(&key.1)));
            self.publish(&mut index, &class, true);
        }
        drop(index);
        self.enqueue(key.clone());
    }

    /// Uids of the cached classes: those that a list started after this call doesn't contain are
    /// deleted.
    pub fn known_classes(&self) -> Known {
        let index = self.read();
        index.classes.iter().map(|(key, class)| (key.clone(), class.uid.clone())).collect()
    }

    /// The same for the objects of a kind.
    pub fn known_children(&self, kind: &Kind) -> Known {
        let index = self.read();
        let all = index.children.get(kind).into_iter().flatten();
        all.map(|(key, child)| (key.clone(), child.uid.clone())).collect()
    }

    /// Inserts or updates a child. Of a version older than the cached one only the applied-manifest
    /// hash is taken.
    pub fn put_child(&self, mut child: Child) {
        let key = (child.namespace.clone(), child.name.clone());
        let mut index = self.write();
        if index.tombstones.contains(&child.uid) {
            return;
        }
        let known = index.children.get(&child.kind).and_then(|all| all.get(&key)).cloned();
        if let Some(known) = &known {
            if child.newer_than(known) {
                child = child.after(known);
            } else if let Some(taught) = known.with_applied_hash_of(&child) {
                child = taught;
            } else {
                return;
            }
        }
        if let Some(known) = &known {
            index.remove(known);
        }
        let child = Arc::new(child);
        index.insert(&child);
        if child.has_all_pods() {
            index.pod_creation_failures.remove(&child.uid);
        }
        let mut affected = index.affected(&child);
        if let Some(known) = &known {
            affected.extend(index.affected(known));
        }
        drop(index);
        for key in affected {
            self.enqueue(key);
        }
    }

    /// Removes a child unless one with another uid has replaced it.
    pub fn remove_child(&self, kind: &Kind, key: &Key, uid: &str) {
        let mut index = self.write();
        index.tombstone(uid);
        let Some(known) = index.children.get(kind).and_then(|all| all.get(key)).cloned() else {
            return;
        };
        if uid != known.uid {
            return;
        }
        index.remove(&known);
        index.pod_creation_failures.remove(uid);
        let affected = index.affected(&known);
        drop(index);
        for key in affected {
            self.enqueue(key);
        }
    }

    /// Records the problem of a pod, or that it has none.
    pub fn put_pod(&self, namespace: &str, pod: &str, problem: Option<PodProblem>) {
        let key = (namespace.to_owned(), pod.to_owned());
        let mut index = self.write();
        let before = index.pods.get(&key).cloned();
        let after = problem.as_ref().map(|it| it.class.clone());
        let mut changed = false;
        if let Some(class) = &before {
            let place = (namespace.to_owned(), class.clone());
            if let Some(all) = index.pod_problems.get_mut(&place) {
                changed = all.remove(pod).as_ref() != problem.as_ref();
                if all.is_empty() {
                    index.pod_problems.remove(&place);
                }
            }
            index.pods.remove(&key);
        }
        if let Some(problem) = problem {
            changed |= before.is_none();
            let place = (namespace.to_owned(), problem.class.clone());
            index.pods.insert(key, problem.class.clone());
            index.pod_problems.entry(place).or_default().insert(pod.to_owned(), problem);
        }
        let affected: Vec<Key> = if changed {
            let both = before.into_iter().chain(after);
            both.filter_map(|class| index.class_of(namespace, &class)).collect()
        } else {
            Vec::new()
        };
        drop(index);
        for key in affected {
            self.enqueue(key);
        }
    }

    /// Records why the pods of a workload can't be created.
    pub fn put_pod_creation_failure(&self, namespace: &str, failure: &PodCreationFailure) {
        let key = (namespace.to_owned(), failure.name.clone());
        let mut index = self.write();
        let known = index.children.get(&failure.kind).and_then(|all| all.get(&key)).cloned();
        // An Event outlives the problem that it reports, and may precede its workload.
        let matters =
            |it: &Arc<Child>| it.uid == failure.uid && it.owner.is_some() && !it.has_all_pods();
        if known.as_ref().is_some_and(|it| !matters(it)) {
            return;
        }
        let before =
            index.pod_creation_failures.insert(failure.uid.clone(), failure.message.clone());
        let affected = match known.filter(|_| before.as_ref() != Some(&failure.message)) {
            Some(known) => index.affected(&known),
            None => Vec::new(),
        };
        drop(index);
        for key in affected {
            self.enqueue(key);
        }
    }

    /// Removes creation failures of workloads that don't exist.
    pub fn prune_pod_creation_failures(&self) {
        let mut index = self.write();
        let existing: HashSet<String> = index
            .children
            .values()
            .flat_map(HashMap::values)
            .filter(|child| index.pod_creation_failures.contains_key(&child.uid))
            .map(|child| child.uid.clone())
            .collect();
        index.pod_creation_failures.retain(|uid, _| existing.contains(uid));
    }

    pub fn remove_pod_creation_failure(&self, uid: &str) {
        self.write().pod_creation_failures.remove(uid);
    }

    /// Removes the problems of pods that aren't in `kept`.
    pub fn retain_pods(&self, kept: &HashSet<Key>) {
        let removed: Vec<Key> = {
            let index = self.read();
            index.pods.keys().filter(|key| !kept.contains(key)).cloned().collect()
        };
        for (namespace, pod) in removed {
            self.put_pod(&namespace, &pod, None);
        }
    }
}

/// A class without its large fields, because thousands of changes are kept.
fn without_large_fields(class: &ObservedClass) -> ObservedClass {
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

impl ClusterView for Cache {
    fn owned(&self, namespace: &str, uid: &str) -> Vec<Arc<Child>> {
        let index = self.read();
        let names = index.by_owner.get(uid).into_iter().flatten();
        names
            .filter_map(|(kind, name)| {
                index.children.get(kind)?.get(&(namespace.to_owned(), name.clone())).cloned()
            })
            .collect()
    }

    fn named(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Child>> {
        self.read().children.get(kind)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn autoscalers(&self, namespace: &str, deployment: &str) -> Vec<Arc<Child>> {
        let index = self.read();
        let names = index.autoscalers.get(&(namespace.to_owned(), deployment.to_owned()));
        names
            .into_iter()
            .flatten()
            .filter_map(|name| {
                index.children.get(&AUTOSCALER)?.get(&(namespace.to_owned(), name.clone())).cloned()
            })
            .collect()
    }

    fn claims(&self, namespace: &str, class: &str) -> Vec<Arc<Child>> {
        let index = self.read();
        let all = index.claims.get(&(namespace.to_owned(), class.to_owned()));
        all.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn pod_problems(&self, namespace: &str, class: &str) -> Vec<PodProblem> {
        let index = self.read();
        let all = index.pod_problems.get(&(namespace.to_owned(), class.to_owned()));
        all.into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    fn pod_creation_failure(&self, uid: &str) -> Option<String> {
        self.read().pod_creation_failures.get(uid).cloned()
    }
}

#[cfg(test)]
mod tests;
