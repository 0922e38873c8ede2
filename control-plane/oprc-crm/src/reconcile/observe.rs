//! What the cluster contains: projections of objects, small enough to keep thousands in memory.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use kube::{ResourceExt as _, core::DynamicObject};
use serde_json::Value;

use super::{
    managed_fields::{OwnedFields, is_applied_by, owned_by_others},
    manifest::{FUNCTION, OWNER, RENEW_AFTER, SPEC_HASH, TEMPLATE},
    shapes,
};
pub use super::{
    pod_creation_failure::{FAILED_CREATE_EVENTS, PodCreationFailure, pod_creation_failure},
    pod_problem::{PodProblem, pod_problem},
    shapes::{ObservedState, Revisions},
};
use crate::{
    crd::{GROUP, ResourceRef},
    kinds::{Kind, SECRET, STATEFUL_SET},
};

/// The field manager of children and status.
pub const MANAGER: &str = "oprc-crm";

/// An object that may belong to a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub created: Option<Timestamp>,
    /// The uid of the ClassRuntime that controls it.
    pub owner: Option<String>,
    /// The name of that ClassRuntime.
    pub owner_name: Option<String>,
    /// The label [`OWNER`].
    pub class: Option<String>,
    /// The label [`FUNCTION`].
    pub function: Option<String>,
    /// The label [`TEMPLATE`].
    pub template: Option<String>,
    pub deleting: bool,
    /// Whether another field manager owns `spec.replicas`.
    pub replicas_elsewhere: bool,
    /// The annotation [`SPEC_HASH`].
    pub spec_hash: Option<Box<str>>,
    /// Since when it has been ready; none if its status has no time.
    pub ready_since: Option<Timestamp>,
    /// When its certificate is to be renewed: the annotation [`RENEW_AFTER`].
    pub renew_after: Option<Timestamp>,
    /// The fields that CRM owns, as JSON: a tenth of the size of the tree.
    owned: Option<Box<str>>,
    /// A hash of the manifest whose apply gave the owned fields their present values.
    applied_hash: Option<u64>,
    pub state: ObservedState,
}

/// What a replicated data grid reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GridObservation {
    /// How many members it is asked to have, as far as it knows.
    pub desired_members: i32,
    /// Nodes with a lower index than this may be members.
    pub needed_nodes: i32,
    /// Whether most of the space of its store is used.
    pub low_on_space: bool,
}

/// The pod of a node of a data grid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GridPod {
    /// Whether it serves now; false if it is being deleted.
    pub ready: bool,
    /// Which of the StatefulSet's revisions it has.
    pub revision: Option<String>,
    /// Whether it reports a problem.
    pub has_problem: bool,
}

/// The objects of the cluster, read from caches only.
pub trait ClusterView {
    /// All objects that a ClassRuntime controls.
    fn owned(&self, namespace: &str, uid: &str) -> Vec<Arc<Child>>;
    /// An object by name, whoever owns it.
    fn named(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Child>>;
    /// Autoscalers of a Deployment.
    fn autoscalers(&self, namespace: &str, deployment: &str) -> Vec<Arc<Child>>;
    /// PersistentVolumeClaims that are labelled with a class.
    fn claims(&self, namespace: &str, class: &str) -> Vec<Arc<Child>>;
    /// Pods of a class that have a problem.
    fn pod_problems(&self, namespace: &str, class: &str) -> Vec<PodProblem>;
    /// Why pods of a workload can't be created, if that isn't in its own status.
    fn pod_creation_failure(&self, uid: &str) -> Option<String>;
    /// The last report of the data grid of a class. None if it has no replicated grid, or if that hasn't
    /// reported yet.
    fn grid(&self, namespace: &str, class: &str) -> Option<GridObservation>;
    /// A pod of a data grid by name.
    fn grid_pod(&self, namespace: &str, name: &str) -> Option<GridPod>;
}

impl Child {
    pub fn of(kind: &Kind, object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let label = |key: &str| object.labels().get(key).cloned();
        let managed = object.managed_fields();
        let owner = owner(meta);
        let owned = owner.and_then(|_| {
            let mut owned = OwnedFields::of(&serde_json::to_value(object).ok()?, managed, MANAGER)?;
            if let Some(fields) = owned.fields.as_object_mut().filter(|_| *kind == SECRET) {
                fields.remove("f:data");
            }
            serde_json::to_string(&owned).ok().map(String::into_boxed_str)
        });
        let (state, ready_since) =
            shapes::observe(kind, &object.data, meta.generation.unwrap_or(0));
        Self {
            kind: kind.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            owner: owner.map(|owner| owner.uid.clone()),
            owner_name: owner.map(|owner| owner.name.clone()),
            class: label(OWNER),
            function: label(FUNCTION),
            template: label(TEMPLATE),
            deleting: meta.deletion_timestamp.is_some(),
            replicas_elsewhere: owned_by_others(managed, MANAGER, "/f:spec/f:replicas"),
            spec_hash: object.annotations().get(SPEC_HASH).map(|hash| hash.as_str().into()),
            ready_since,
            renew_after: object.annotations().get(RENEW_AFTER).and_then(|it| it.parse().ok()),
            owned,
            applied_hash: None,
            state,
        }
    }

    fn owned(&self) -> Option<OwnedFields> {
        serde_json::from_str(self.owned.as_ref()?).ok()
    }

    /// The values of the fields that CRM owns.
    pub(super) fn owned_fields(&self) -> Option<Value> {
        self.owned().map(|it| it.live)
    }

    /// Whether an apply of the manifest would change anything.
    pub fn differs_from(&self, manifest: &Value) -> bool {
        self.owned().is_none_or(|owned| owned.differs_from(manifest))
    }

    /// Whether an apply would change nothing. An object that an admission webhook changes is in sync
    /// once the manifest was applied: applying it again would lead to the same.
    pub fn is_in_sync_with(&self, manifest: &Value) -> bool {
        !self.differs_from(manifest) || self.was_applied_as(manifest)
    }

    /// The API server's response to an apply of the manifest.
    #[must_use]
    pub fn with_applied(mut self, manifest: &Value) -> Self {
        self.applied_hash = Some(hash(manifest));
        self
    }

    /// Whether the owned fields are the result of applying just this manifest. If they differ from
    /// it nevertheless, an admission webhook changes it, and would do so again.
    pub fn was_applied_as(&self, manifest: &Value) -> bool {
        self.applied_hash.is_some_and(|it| it == hash(manifest))
    }

    /// Keeps the applied hash of the cached version if the owned fields are the same.
    #[must_use]
    pub fn after(mut self, known: &Self) -> Self {
        if self.applied_hash.is_none() && self.uid == known.uid && self.owned == known.owned {
            self.applied_hash = known.applied_hash;
        }
        self
    }

    /// The watch event may precede the response of the apply; takes only the applied hash from the
    /// response. None if that changes nothing.
    pub fn with_applied_hash_of(&self, response: &Self) -> Option<Self> {
        let new = response.applied_hash.is_some() && response.applied_hash != self.applied_hash;
        (new && self.uid == response.uid && self.owned == response.owned)
            .then(|| Self { applied_hash: response.applied_hash, ..self.clone() })
    }

    /// Whether it was applied for the same desired spec: differences are then drift.
    pub fn has_spec_hash_of(&self, manifest: &Value) -> bool {
        let annotations = manifest.pointer("/metadata/annotations");
        let hash = annotations.and_then(|all| all.get(SPEC_HASH)?.as_str());
        hash.is_some() && hash == self.spec_hash.as_deref()
    }

    /// `spec.replicas` of a workload.
    pub fn replicas(&self) -> Option<i32> {
        match &self.state {
            ObservedState::Workload(workload) => Some(workload.replicas),
            _ => None,
        }
    }

    /// The rollout of a StatefulSet, and whether that is about its latest specification.
    pub fn revisions(&self) -> Option<(&Revisions, bool)> {
        match &self.state {
            ObservedState::Workload(workload) => {
                workload.revisions.as_ref().map(|it| (it, workload.current))
            }
            _ => None,
        }
    }

    /// Whether it is a workload that is scaled to zero.
    pub fn has_no_replicas(&self) -> bool {
        self.replicas() == Some(0)
    }

    /// Whether all of its pods exist.
    pub fn has_all_pods(&self) -> bool {
        match &self.state {
            ObservedState::Workload(workload) => workload.total >= workload.replicas,
            ObservedState::Job(job) => job.begun || job.complete,
            _ => true,
        }
    }

    /// Whether the fields that CRM owns contain a word.
    pub fn mentions(&self, word: &str) -> bool {
        self.owned.as_ref().is_some_and(|owned| owned.contains(word))
    }

    /// Whether it can't be updated to the manifest: the claim templates of a StatefulSet are
    /// immutable.
    pub fn must_be_recreated(&self, manifest: &Value) -> bool {
        let claims = |object: &Value| object.pointer("/spec/volumeClaimTemplates").is_some();
        self.kind == STATEFUL_SET
            && self.owned().is_some_and(|owned| claims(&owned.live) != claims(manifest))
    }

    /// Whether an apply of the manifest would keep the pod template.
    pub fn has_pod_template_of(&self, manifest: &Value) -> bool {
        let Some(owned) = self.owned() else { return false };
        let mut merged = owned.live.clone();
        let live = merged.pointer_mut("/spec/template");
        let (Some(live), Some(template)) = (live, manifest.pointer("/spec/template")) else {
            return false;
        };
        *live = template.clone();
        !owned.differs_from(&merged)
    }

    /// The manifest with the pod template of the live object: that of a Job is immutable. None if
    /// CRM doesn't own it.
    pub fn with_live_pod_template(&self, mut manifest: Value) -> Option<Value> {
        let mut live = self.owned()?.live;
        *manifest.pointer_mut("/spec/template")? = live.pointer_mut("/spec/template")?.take();
        Some(manifest)
    }

    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owner.as_deref() == Some(uid)
    }

    pub fn reference(&self) -> ResourceRef {
        ResourceRef {
            api_version: self.kind.api_version(),
            kind: self.kind.to_string(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }

    /// Whether it is newer than another version of the same object.
    pub fn newer_than(&self, other: &Self) -> bool {
        match (self.resource_version.parse::<u64>(), other.resource_version.parse::<u64>()) {
            (Ok(own), Ok(others)) => self.uid != other.uid || own > others,
            _ => true,
        }
    }
}

/// The ClassRuntime that controls an object. An object that CRM applied and that lost its
/// controller flag still counts: the flag is restored like any other field.
fn owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let is_class = |owner: &&OwnerReference| {
        owner.kind == "ClassRuntime" && owner.api_version.starts_with(&format!("{GROUP}/"))
    };
    let mut all = meta.owner_references.iter().flatten();
    if let Some(controller) = all.clone().find(|owner| owner.controller == Some(true)) {
        return Some(controller).filter(is_class);
    }
    let mut managed = meta.managed_fields.iter().flatten();
    let applied = managed.any(|entry| is_applied_by(entry, MANAGER));
    all.find(is_class).filter(|_| applied)
}

/// Only compared within one process.
fn hash(manifest: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    manifest.to_string().hash(&mut hasher);
    hasher.finish()
}
