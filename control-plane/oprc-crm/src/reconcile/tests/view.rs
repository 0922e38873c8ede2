//! What a controller sees of the cluster in memory.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    super::{
        ObservedClass,
        observe::{Child, PodTrouble, Sight, State},
    },
    cluster::Key,
};
use crate::kinds::{DEPLOYMENT, Kind};

/// What is seen at one moment; later it is a stale view.
#[derive(Clone, Default)]
pub(super) struct View {
    pub(super) class: Option<ObservedClass>,
    pub(super) children: BTreeMap<Key, Arc<Child>>,
    pub(super) unmade: BTreeMap<String, String>,
}

impl Sight for View {
    fn owned(&self, _: &str, uid: &str) -> Vec<Arc<Child>> {
        self.filter(|child| child.owner.as_deref() == Some(uid))
    }

    fn named(&self, kind: &Kind, _: &str, name: &str) -> Option<Arc<Child>> {
        self.children.get(&(kind.clone(), name.to_owned())).cloned()
    }

    fn scalers(&self, _: &str, deployment: &str) -> Vec<Arc<Child>> {
        self.filter(|child| {
            matches!(&child.state, State::Autoscaler(kind, name)
                if *kind == DEPLOYMENT.kind && name == deployment)
        })
    }

    fn claims(&self, _: &str, class: &str) -> Vec<Arc<Child>> {
        self.filter(|child| {
            matches!(child.state, State::Claim(..)) && child.class.as_deref() == Some(class)
        })
    }

    fn troubles(&self, _: &str, _: &str) -> Vec<PodTrouble> {
        Vec::new()
    }

    fn unmade(&self, uid: &str) -> Option<String> {
        self.unmade.get(uid).cloned()
    }
}

impl View {
    fn filter(&self, keep: impl Fn(&Child) -> bool) -> Vec<Arc<Child>> {
        self.children.values().filter(|child| keep(child)).cloned().collect()
    }
}
