//! Which component a pod belongs to.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::crd::GRID_KEY;

/// Namespace and name of a ClassRuntime.
pub type ClassKey = (String, String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// By its key in the class.
    Function(String),
    DataGrid,
}

impl Component {
    /// The key of the function, or [`GRID_KEY`].
    pub fn key(&self) -> &str {
        match self {
            Self::Function(key) => key,
            Self::DataGrid => GRID_KEY,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComponentId {
    pub class: ClassKey,
    pub component: Component,
}

/// A pod of a class. Its component comes from its labels, never from its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub created: Timestamp,
    pub uid: String,
    pub class: ClassKey,
    pub component: Component,
    /// The container whose resources are measured; that of the function, not of a sidecar.
    pub container: String,
    /// The image of that container.
    pub image: String,
    /// Whether it serves now; false if it is being deleted.
    pub ready: bool,
    /// When it became ready.
    pub ready_at: Option<Timestamp>,
    /// Whether no node has room for it.
    pub unschedulable: bool,
    /// When it was deleted. Pods that were deleted within the window should be passed, too: otherwise
    /// what they contributed is missing in past sums.
    pub deleted_at: Option<Timestamp>,
}

impl PodRef {
    pub fn component_id(&self) -> ComponentId {
        ComponentId { class: self.class.clone(), component: self.component.clone() }
    }
}

/// All pods of classes, by name and by component.
#[derive(Clone, Debug, Default)]
pub struct PodIndex {
    /// In order of namespace, name and creation. A StatefulSet reuses names.
    pods: Vec<PodRef>,
    components: BTreeMap<ComponentId, Vec<usize>>,
}

impl PodIndex {
    pub fn new(pods: impl IntoIterator<Item = PodRef>) -> Self {
        let mut pods: Vec<_> = pods.into_iter().collect();
        pods.sort();
        pods.dedup_by(|next, kept| {
            (&next.namespace, &next.name, &next.uid) == (&kept.namespace, &kept.name, &kept.uid)
        });
        let mut components: BTreeMap<ComponentId, Vec<usize>> = BTreeMap::new();
        for (number, pod) in pods.iter().enumerate() {
            components.entry(pod.component_id()).or_default().push(number);
        }
        Self { pods, components }
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The pods with this name, in order of creation, each with its number.
    pub(super) fn named(
        &self,
        namespace: &str,
        name: &str,
    ) -> impl Iterator<Item = (usize, &PodRef)> {
        let key =
            |pod: &PodRef| (pod.namespace.as_str(), pod.name.as_str()).cmp(&(namespace, name));
        let first = self.pods.partition_point(|pod| key(pod).is_lt());
        let pods = self.pods.iter().enumerate().skip(first);
        pods.take_while(move |(_, pod)| key(pod).is_eq())
    }

    /// The components, each with the numbers of its pods.
    pub(super) fn components(&self) -> impl Iterator<Item = (&ComponentId, &[usize])> {
        self.components.iter().map(|(id, pods)| (id, pods.as_slice()))
    }

    /// The numbers of the pods of a component.
    pub(super) fn pods_of(&self, id: &ComponentId) -> Option<&[usize]> {
        self.components.get(id).map(Vec::as_slice)
    }

    pub(super) fn get(&self, number: usize) -> Option<&PodRef> {
        self.pods.get(number)
    }
}
