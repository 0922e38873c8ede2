//! The reconciler's view of the cluster in memory.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        ObservedClass,
        observe::{Child, ClusterView, GridObservation, GridPod, ObservedState, PodProblem},
    },
    cluster::Key,
};
use crate::kinds::{DEPLOYMENT, Kind};

/// The view at one moment; later it is stale.
#[derive(Clone, Default)]
pub(super) struct View {
    pub(super) class: Option<ObservedClass>,
    pub(super) children: BTreeMap<Key, Arc<Child>>,
    pub(super) pod_creation_failure: BTreeMap<String, String>,
    pub(super) grid: Option<GridObservation>,
    /// Pods of the data grid by name.
    pub(super) grid_pods: BTreeMap<String, GridPod>,
}

impl ClusterView for View {
    fn owned(&self, _: &str, uid: &str) -> Vec<Arc<Child>> {
        self.filter(|child| child.owner.as_deref() == Some(uid))
    }

    fn named(&self, kind: &Kind, _: &str, name: &str) -> Option<Arc<Child>> {
        self.children.get(&(kind.clone(), name.to_owned())).cloned()
    }

    fn autoscalers(&self, _: &str, deployment: &str) -> Vec<Arc<Child>> {
        self.filter(|child| {
            matches!(&child.state, ObservedState::Autoscaler(kind, name)
                if *kind == DEPLOYMENT.kind && name == deployment)
        })
    }

    fn claims(&self, _: &str, class: &str) -> Vec<Arc<Child>> {
        self.filter(|child| {
            matches!(child.state, ObservedState::Claim(..)) && child.class.as_deref() == Some(class)
        })
    }

    fn pod_problems(&self, _: &str, _: &str) -> Vec<PodProblem> {
        Vec::new()
    }

    fn pod_creation_failure(&self, uid: &str) -> Option<String> {
        self.pod_creation_failure.get(uid).cloned()
    }

    fn grid(&self, _: &str, _: &str) -> Option<GridObservation> {
        self.grid
    }

    fn grid_pod(&self, _: &str, name: &str) -> Option<GridPod> {
        self.grid_pods.get(name).cloned()
    }
}

impl View {
    fn filter(&self, keep: impl Fn(&Child) -> bool) -> Vec<Arc<Child>> {
        self.children.values().filter(|child| keep(child)).cloned().collect()
    }
}
