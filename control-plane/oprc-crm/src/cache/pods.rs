//! The pods of classes: what is needed to know whose metrics a series has.

use std::collections::{HashMap, VecDeque};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};

use super::key::{Key, Known, key};
use crate::{
    reconcile::render::{FUNCTION, FUNCTION_CONTAINER, GRID_CONTAINER, OWNER},
    signals::{ClassKey, Component, PodRef},
};

/// Bound on the deleted pods that are kept.
const MAX_DELETED: usize = 4096;

/// A projection of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The label [`OWNER`].
    pub class: String,
    /// The label [`FUNCTION`]; none for the data grid.
    pub function: Option<String>,
    pub created: Timestamp,
    /// Whether it serves now; false if it is being deleted.
    pub ready: bool,
    /// When it became ready, the first time as far as this process knows.
    pub ready_at: Option<Timestamp>,
    deleted_at: Option<Timestamp>,
}

impl PodRecord {
    /// None for a pod without class or creation time.
    pub fn of(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let labels = meta.labels.as_ref()?;
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready" && condition.status == "True");
        let ready_at = ready.and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0);
        Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            class: labels.get(OWNER)?.clone(),
            function: labels.get(FUNCTION).cloned(),
            created: meta.creation_timestamp.as_ref()?.0,
            ready: ready.is_some() && meta.deletion_timestamp.is_none(),
            ready_at,
            deleted_at: None,
        })
    }

    pub(super) fn to_ref(&self, class: ClassKey, component: Component) -> PodRef {
        let container = match component {
            Component::Function(_) => FUNCTION_CONTAINER,
            Component::DataGrid => GRID_CONTAINER,
        };
        PodRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            created: self.created,
            uid: self.uid.clone(),
            class,
            component,
            container: container.to_owned(),
            ready: self.ready,
            ready_at: self.ready_at,
            deleted_at: self.deleted_at,
        }
    }
}

#[derive(Default)]
pub(super) struct Pods {
    existing: HashMap<Key, PodRecord>,
    /// In the order of their deletion.
    deleted: VecDeque<PodRecord>,
}

impl Pods {
    pub(super) fn known(&self) -> Known {
        self.existing.iter().map(|(key, pod)| (key.clone(), pod.uid.clone())).collect()
    }

    pub(super) fn insert(&mut self, mut pod: PodRecord, now: Timestamp) {
        let key = key(&pod.namespace, &pod.name);
        match self.existing.get(&key) {
            Some(known) if known.uid == pod.uid => {
                // A pod that isn't ready any more has served.
                let times = known.ready_at.into_iter().chain(pod.ready_at);
                pod.ready_at = times.min();
            }
            // A StatefulSet reuses names.
            Some(known) => {
                let uid = known.uid.clone();
                self.remove(&key, &uid, now);
            }
            None => {}
        }
        self.existing.insert(key, pod);
    }

    pub(super) fn remove(&mut self, key: &Key, uid: &str, now: Timestamp) -> Option<PodRecord> {
        self.existing.get(key).filter(|known| known.uid == uid)?;
        let mut pod = self.existing.remove(key)?;
        pod.ready = false;
        pod.deleted_at = Some(now);
        if self.deleted.len() >= MAX_DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back(pod.clone());
        Some(pod)
    }

    /// The existing pods, and those that were deleted at `since` or later.
    pub(super) fn since(&self, since: Timestamp) -> impl Iterator<Item = &PodRecord> {
        let deleted = self.deleted.iter().filter(move |pod| pod.deleted_at >= Some(since));
        self.existing.values().chain(deleted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, uid: &str, ready: Option<i64>) -> PodRecord {
        let conditions = ready.map(|since| {
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(since).to_string()}])
        });
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": uid, "creationTimestamp": at(1).to_string(),
                "labels": {OWNER: "shop", FUNCTION: "cart"},
            },
            "status": {"conditions": conditions.unwrap_or(json!([]))},
        });
        PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn uids(pods: &Pods, since: i64) -> Vec<String> {
        let mut uids: Vec<_> = pods.since(at(since)).map(|pod| pod.uid.clone()).collect();
        uids.sort();
        uids
    }

    #[test]
    fn deleted_pods_are_kept_for_a_while() {
        let mut pods = Pods::default();
        pods.insert(pod("a", "1", Some(5)), at(5));
        pods.insert(pod("b", "2", None), at(5));
        let key = key("n", "a");
        assert!(pods.remove(&key, "9", at(10)).is_none(), "another one has replaced it");
        let removed = pods.remove(&key, "1", at(10)).unwrap();
        assert!(!removed.ready && removed.ready_at == Some(at(5)));
        assert_eq!(uids(&pods, 10), ["1", "2"]);
        assert_eq!(uids(&pods, 11), ["2"]);
        for number in 0..=MAX_DELETED {
            let uid = format!("x{number}");
            pods.insert(pod("c", &uid, None), at(20));
        }
        assert_eq!(pods.deleted.len(), MAX_DELETED);
        assert_eq!(pods.existing.len(), 2);
    }

    #[test]
    fn pod_that_is_replaced_is_deleted() {
        let mut pods = Pods::default();
        pods.insert(pod("a", "1", Some(5)), at(5));
        pods.insert(pod("a", "2", None), at(9));
        assert_eq!(uids(&pods, 9), ["1", "2"]);
        assert_eq!(pods.known().into_values().collect::<Vec<_>>(), ["2"]);
    }

    #[test]
    fn time_of_readiness_is_the_first() {
        let mut pods = Pods::default();
        pods.insert(pod("a", "1", Some(5)), at(5));
        pods.insert(pod("a", "1", None), at(6));
        let unready = pods.existing.values().next().unwrap();
        assert_eq!((unready.ready, unready.ready_at), (false, Some(at(5))));
        pods.insert(pod("a", "1", Some(8)), at(8));
        let ready = pods.existing.values().next().unwrap();
        assert_eq!((ready.ready, ready.ready_at), (true, Some(at(5))));
    }
}
