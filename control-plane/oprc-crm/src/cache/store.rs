//! The cache: projections of what the watches report, and the notifications of their changes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;
use oprc_unit::{UnitSpec, function_requirements, names};
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};

use super::{
    index::{Changed, Index},
    key::{Key, Known, key},
    pods::{OomKill, PodRecord},
    workqueue::WorkQueue,
};
use crate::{
    kinds::Kind,
    reconcile::{
        ObservedClass,
        observe::{Child, ClusterView, GridObservation, GridPod, PodCreationFailure, PodProblem},
    },
    signals::{Component, PodRef},
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
        Self {
            synced: watch::Sender::default(),
            index: RwLock::default(),
            workqueue: WorkQueue::default(),
            changes: broadcast::Sender::new(MAX_LAG),
        }
    }
}

impl Cache {
    pub fn workqueue(&self) -> WorkQueue {
        self.workqueue.clone()
    }

    fn enqueue(&self, keys: impl IntoIterator<Item = Key>) {
        keys.into_iter().for_each(|key| self.workqueue.add(key));
    }

    pub fn enqueue_all(&self) {
        self.enqueue(self.index.read().classes.keys().cloned());
    }

    /// Records that a watch has completed its initial list.
    pub fn set_synced(&self, what: &str) {
        self.index.write().synced.insert(what.to_owned());
        self.synced.send_modify(|count| *count += 1);
    }

    pub fn set_unsynced(&self, what: &str) {
        self.index.write().synced.remove(what);
    }

    /// Notifies whenever a watch has completed its initial list.
    pub fn sync_changes(&self) -> watch::Receiver<usize> {
        self.synced.subscribe()
    }

    pub fn is_synced(&self, what: &str) -> bool {
        self.index.read().synced.contains(what)
    }

    pub fn class(&self, key: &Key) -> Option<Arc<ObservedClass>> {
        self.index.read().classes.get(key).cloned()
    }

    /// Classes in the order of their keys, those after `after` only.
    pub fn classes_after(&self, after: Option<&Key>) -> Vec<Arc<ObservedClass>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let index = self.index.read();
        let all = index.classes.range::<Key, _>((after.map_or(Unbounded, Excluded), Unbounded));
        all.map(|(_, class)| Arc::clone(class)).collect()
    }

    /// What to send a watcher first, and the changes after that, without a gap in between. A watcher
    /// that has seen change `after` gets only later ones, as long as those are still kept.
    pub fn watch(&self, after: Option<u64>) -> (Start, broadcast::Receiver<Changed>) {
        let index = self.index.read();
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
        let key = key(&class.namespace, &class.name);
        let mut index = self.index.write();
        if index.tombstones.contains(&class.uid) {
            return;
        }
        if let Some(known) = index.classes.get(&key)
            && (**known == class || !newer(&class, known))
        {
            return;
        }
        index.by_base.insert((key.0.clone(), names::base(&key.1)), key.1.clone());
        let class = Arc::new(class);
        index.classes.insert(key.clone(), Arc::clone(&class));
        self.publish(&mut index, &class, false);
        self.enqueue([key]);
    }

    /// Removes a class unless one with another uid has replaced it.
    pub fn remove_class(&self, key: &Key, uid: &str) {
        let mut index = self.index.write();
        index.tombstone(uid);
        if index.classes.get(key).is_some_and(|known| known.uid == uid)
            && let Some(class) = index.classes.remove(key)
        {
            index.by_base.remove(&(key.0.clone(), names::base(&key.1)));
            index.grids.remove(key);
            self.publish(&mut index, &class, true);
        }
        self.enqueue([key.clone()]);
    }

    /// Uids of the cached classes: those that a list started after this call doesn't contain are
    /// deleted.
    pub fn known_classes(&self) -> Known {
        let index = self.index.read();
        index.classes.iter().map(|(key, class)| (key.clone(), class.uid.clone())).collect()
    }

    /// The same for the objects of a kind.
    pub fn known_children(&self, kind: &Kind) -> Known {
        let index = self.index.read();
        let all = index.children.get(kind).into_iter().flatten();
        all.map(|(key, child)| (key.clone(), child.uid.clone())).collect()
    }

    /// Inserts or updates a child. Of a version older than the cached one only the applied-manifest
    /// hash is taken.
    pub fn put_child(&self, mut child: Child) {
        let mut index = self.index.write();
        if index.tombstones.contains(&child.uid) {
            return;
        }
        let mut affected = Vec::new();
        if let Some(known) = index.child(&child.kind, &key(&child.namespace, &child.name)) {
            if child.newer_than(&known) {
                child = child.after(&known);
            } else if let Some(updated) = known.with_applied_hash_of(&child) {
                child = updated;
            } else {
                return;
            }
            affected = index.affected(&known);
            index.remove(&known);
        }
        let child = Arc::new(child);
        index.insert(&child);
        if child.has_all_pods() {
            index.pod_creation_failures.remove(&child.uid);
        }
        affected.extend(index.affected(&child));
        self.enqueue(affected);
    }

    /// Removes a child unless one with another uid has replaced it.
    pub fn remove_child(&self, kind: &Kind, key: &Key, uid: &str) {
        let mut index = self.index.write();
        index.tombstone(uid);
        let Some(known) = index.child(kind, key).filter(|known| known.uid == uid) else { return };
        index.remove(&known);
        index.pod_creation_failures.remove(uid);
        self.enqueue(index.affected(&known));
    }

    pub fn known_pods(&self) -> Known {
        self.index.read().pods.known()
    }

    /// Inserts or updates a pod, with its problem if it has one.
    pub fn put_pod(&self, pod: PodRecord, problem: Option<&PodProblem>, now: Timestamp) {
        let mut index = self.index.write();
        self.set_pod_problem(&mut index, &pod, problem);
        let own = key(&pod.namespace, &pod.name);
        let class = index.class_of(&pod.namespace, &pod.class);
        let before = index.grid_pod(&own);
        index.pods.insert(pod, now);
        // The rollout of a data grid depends on its pods.
        if index.grid_pod(&own) != before {
            self.enqueue(class);
        }
    }

    /// Removes a pod unless one with another uid has replaced it.
    pub fn remove_pod(&self, key: &Key, uid: &str, now: Timestamp) {
        let mut index = self.index.write();
        if let Some(removed) = index.pods.remove(key, uid, now) {
            self.set_pod_problem(&mut index, &removed, None);
            let class = index.class_of(&removed.namespace, &removed.class);
            self.enqueue(class.filter(|_| removed.function.is_none()));
        }
    }

    fn set_pod_problem(&self, index: &mut Index, pod: &PodRecord, problem: Option<&PodProblem>) {
        let class = key(&pod.namespace, &pod.class);
        let before = index.pod_problems.remove(&class, &pod.name);
        if let Some(problem) = problem {
            index.pod_problems.insert(class, pod.name.clone(), problem.clone());
        }
        if before.as_ref() != problem {
            self.enqueue(index.class_of(&pod.namespace, &pod.class));
        }
    }

    /// The pods of all classes, including those that were deleted at `since` or later. Pods whose
    /// class doesn't exist are left out.
    pub fn pods(&self, since: Timestamp) -> Vec<PodRef> {
        self.map_pods(since, |_, pod| Some(pod))
    }

    /// The last out-of-memory kill of each of these pods that had one.
    pub fn oom_kills(&self, since: Timestamp) -> Vec<(PodRef, OomKill)> {
        self.map_pods(since, |record, pod| Some((pod, record.oom_kill.clone()?)))
    }

    fn map_pods<T>(
        &self,
        since: Timestamp,
        map: impl Fn(&PodRecord, PodRef) -> Option<T>,
    ) -> Vec<T> {
        let index = self.index.read();
        let functions = |class: &Key| {
            let class = index.classes.get(class)?;
            let spec = class.spec.as_ref().ok()?;
            let keys = function_requirements(&class.name, spec);
            Some(keys.map(|(key, _)| (names::label(key), key.to_owned())).collect())
        };
        let mut keys: HashMap<Key, HashMap<String, String>> = HashMap::new();
        let refs = index.pods.since(since).filter_map(|pod| {
            let class = index.class_of(&pod.namespace, &pod.class)?;
            let component = match &pod.function {
                None => Component::DataGrid,
                Some(label) => {
                    let keys = keys
                        .entry(class.clone())
                        .or_insert_with(|| functions(&class).unwrap_or_default());
                    Component::Function(keys.get(label).unwrap_or(label).clone())
                }
            };
            map(pod, pod.to_ref(class, component))
        });
        refs.collect()
    }

    /// Records why the pods of a workload can't be created.
    pub fn put_pod_creation_failure(&self, namespace: &str, failure: &PodCreationFailure) {
        let mut index = self.index.write();
        let known = index.child(&failure.kind, &key(namespace, &failure.name));
        // An Event outlives the problem that it reports, and may precede its workload.
        let matters =
            |it: &Arc<Child>| it.uid == failure.uid && it.owner.is_some() && !it.has_all_pods();
        if known.as_ref().is_some_and(|it| !matters(it)) {
            return;
        }
        let before =
            index.pod_creation_failures.insert(failure.uid.clone(), failure.message.clone());
        if let Some(known) = known.filter(|_| before.as_ref() != Some(&failure.message)) {
            self.enqueue(index.affected(&known));
        }
    }

    /// Removes creation failures of workloads that don't exist.
    pub fn prune_pod_creation_failures(&self) {
        let Index { children, pod_creation_failures, .. } = &mut *self.index.write();
        let children = children.values().flat_map(HashMap::values);
        let existing: HashSet<&String> = children.map(|child| &child.uid).collect();
        pod_creation_failures.retain(|uid, _| existing.contains(uid));
    }

    pub fn remove_pod_creation_failure(&self, uid: &str) {
        self.index.write().pod_creation_failures.remove(uid);
    }

    pub fn remove_grid(&self, class: &Key) {
        self.index.write().grids.remove(class);
    }

    /// Records what the data grid of a class reports. A class that doesn't exist is ignored.
    pub fn put_grid(&self, class: &Key, grid: GridObservation) {
        let mut index = self.index.write();
        if index.classes.contains_key(class)
            && index.grids.insert(class.clone(), grid) != Some(grid)
        {
            self.enqueue([class.clone()]);
        }
    }
}

/// A class without its large fields, because thousands of changes are kept.
fn without_large_fields(class: &ObservedClass) -> ObservedClass {
    let mut class = class.clone();
    if let Ok(spec) = &mut class.spec {
        *spec = UnitSpec {
            deployment_unit: spec.deployment_unit.take(),
            target_environment: spec.target_environment.take(),
            ..UnitSpec::default()
        };
    }
    if let Some(status) = &mut class.status {
        status.last_available = None;
    }
    class
}

fn newer(class: &ObservedClass, known: &ObservedClass) -> bool {
    match (class.resource_version.parse::<u64>(), known.resource_version.parse::<u64>()) {
        (Ok(own), Ok(others)) => class.uid != known.uid || own > others,
        _ => true,
    }
}

impl ClusterView for Cache {
    fn owned(&self, namespace: &str, uid: &str) -> Vec<Arc<Child>> {
        let (index, uid) = (self.index.read(), uid.to_owned());
        let all = index.by_owner.values(&uid).filter(|child| child.namespace == namespace);
        all.cloned().collect()
    }

    fn named(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Child>> {
        self.index.read().child(kind, &key(namespace, name))
    }

    fn autoscalers(&self, namespace: &str, deployment: &str) -> Vec<Arc<Child>> {
        self.index.read().autoscalers.values(&key(namespace, deployment)).cloned().collect()
    }

    fn claims(&self, namespace: &str, class: &str) -> Vec<Arc<Child>> {
        self.index.read().claims.values(&key(namespace, class)).cloned().collect()
    }

    fn pod_problems(&self, namespace: &str, class: &str) -> Vec<PodProblem> {
        self.index.read().pod_problems.values(&key(namespace, class)).cloned().collect()
    }

    fn pod_creation_failure(&self, uid: &str) -> Option<String> {
        self.index.read().pod_creation_failures.get(uid).cloned()
    }

    fn grid(&self, namespace: &str, class: &str) -> Option<GridObservation> {
        self.index.read().grids.get(&key(namespace, class)).copied()
    }

    fn grid_pod(&self, namespace: &str, name: &str) -> Option<GridPod> {
        self.index.read().grid_pod(&key(namespace, name))
    }
}

#[cfg(test)]
mod tests;
