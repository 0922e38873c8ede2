//! The pods of classes: what is needed to know whose metrics a series has.

use std::collections::{HashMap, VecDeque};

use k8s_openapi::{
    api::core::v1::{Container, ContainerState, Pod},
    jiff::Timestamp,
};
use oprc_models::parse_quantity;

use super::key::{Key, Known, key};
use crate::{
    reconcile::render::{FUNCTION, FUNCTION_CONTAINER, GRID_CONTAINER, OWNER},
    signals::{ClassKey, Component, PodRef},
};

/// The label of the StatefulSet controller.
const REVISION: &str = "controller-revision-hash";
/// The kubelet's reason.
const OOM_KILLED: &str = "OOMKilled";
/// The scheduler's reason.
const UNSCHEDULABLE: &str = "Unschedulable";
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
    /// Whether no node has room for it; false if it is being deleted.
    pub unschedulable: bool,
    /// The image of the container that is measured.
    pub image: String,
    /// Which of the revisions of its StatefulSet it has.
    pub revision: Option<String>,
    /// The last time that this container was out of memory.
    pub oom_kill: Option<OomKill>,
    deleted_at: Option<Timestamp>,
}

impl PodRecord {
    /// None for a pod without class or creation time.
    pub fn of(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let labels = meta.labels.as_ref()?;
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions
            .clone()
            .find(|condition| condition.type_ == "Ready" && condition.status == "True");
        let unschedulable = conditions.any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.reason.as_deref() == Some(UNSCHEDULABLE)
                && condition.status == "False"
        });
        let is_deleting = meta.deletion_timestamp.is_some();
        let ready_at = ready.and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0);
        let function = labels.get(FUNCTION).cloned();
        let container_name = container_name(function.is_none());
        let containers = pod.spec.as_ref().map(|spec| &spec.containers);
        let container = containers.into_iter().flatten().find(|it| it.name == container_name);
        Some(Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            class: labels.get(OWNER)?.clone(),
            function,
            created: meta.creation_timestamp.as_ref()?.0,
            ready: ready.is_some() && !is_deleting,
            ready_at,
            unschedulable: unschedulable && !is_deleting,
            image: container.and_then(|it| it.image.clone()).unwrap_or_default(),
            revision: labels.get(REVISION).cloned(),
            oom_kill: oom_kill(pod, container_name, container),
            deleted_at: None,
        })
    }

    pub(super) fn to_ref(&self, class: ClassKey, component: Component) -> PodRef {
        let container = container_name(component == Component::DataGrid);
        PodRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            created: self.created,
            uid: self.uid.clone(),
            class,
            component,
            container: container.to_owned(),
            image: self.image.clone(),
            ready: self.ready,
            ready_at: self.ready_at,
            unschedulable: self.unschedulable,
            deleted_at: self.deleted_at,
        }
    }
}

/// A container that was killed because it was out of memory, from the pod's status. cAdvisor's counter
/// can miss kills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKill {
    pub at: Timestamp,
    /// The memory limit in bytes; none if there is none.
    pub limit: Option<u64>,
}

fn container_name(is_grid: bool) -> &'static str {
    if is_grid { GRID_CONTAINER } else { FUNCTION_CONTAINER }
}

fn oom_kill(pod: &Pod, name: &str, container: Option<&Container>) -> Option<OomKill> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|it| it.name == name)?;
    let terminated = |state: &Option<ContainerState>| state.as_ref()?.terminated.clone();
    // Until the container is started again, the kill is its present state.
    let mut ends =
        [terminated(&status.state), terminated(&status.last_state)].into_iter().flatten();
    let killed = ends.find(|it| it.reason.as_deref() == Some(OOM_KILLED))?;
    let limits = container.and_then(|it| it.resources.as_ref()?.limits.as_ref());
    let limit = limits.and_then(|it| parse_quantity(&it.get("memory")?.0).ok());
    // A quantity is less than 2^63.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let limit = limit.filter(|bytes| *bytes > 0.0).map(|bytes| bytes.round() as u64);
    Some(OomKill { at: killed.finished_at?.0, limit })
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

    /// An existing pod.
    pub(super) fn get(&self, key: &Key) -> Option<&PodRecord> {
        self.existing.get(key)
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
        pod.unschedulable = false;
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
    use serde_json::{Value, json};

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
    fn pods_without_a_node_are_unschedulable() {
        let of = |reason: &str, deleted: bool| {
            let mut pod = json!({
                "metadata": {
                    "name": "a", "creationTimestamp": at(1).to_string(),
                    "labels": {OWNER: "shop", FUNCTION: "cart"},
                },
                "status": {"conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": reason},
                ]},
            });
            if deleted {
                pod["metadata"]["deletionTimestamp"] = json!(at(2).to_string());
            }
            PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap().unschedulable
        };
        assert!(of("Unschedulable", false) && !of("Unschedulable", true));
        assert!(!of("SchedulingGated", false));
        assert!(!pod("a", "1", None).unschedulable);
    }

    #[test]
    fn out_of_memory_kills_are_read_from_the_status() {
        let killed = json!({"terminated": {
            "exitCode": 137, "reason": "OOMKilled", "finishedAt": at(7).to_string(),
        }});
        let other = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let running = json!({"running": {}});
        let of = |name: &str, state: &Value, last: &Value| {
            let pod = json!({
                "metadata": {
                    "name": "a", "creationTimestamp": at(1).to_string(),
                    "labels": {OWNER: "shop", FUNCTION: "cart"},
                },
                "spec": {"containers": [
                    {"name": "sidecar"},
                    {"name": "function", "image": "i:1", "resources": {"limits": {"memory": "1Ki"}}},
                ]},
                "status": {"containerStatuses": [{
                    "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 1,
                    "state": state, "lastState": last,
                }]},
            });
            PodRecord::of(&serde_json::from_value(pod).unwrap()).unwrap()
        };
        let found = of("function", &running, &killed);
        let expected = Some(OomKill { at: at(7), limit: Some(1024) });
        assert_eq!((found.image.as_str(), &found.oom_kill), ("i:1", &expected));
        assert_eq!(of("function", &killed, &other).oom_kill, expected);
        assert_eq!(of("function", &running, &other).oom_kill, None);
        assert_eq!(of("sidecar", &running, &killed).oom_kill, None);
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
