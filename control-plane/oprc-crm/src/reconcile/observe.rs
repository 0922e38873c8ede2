//! What is seen of a class's objects: projections, small enough to be kept by the thousand.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use kube::core::DynamicObject;
use serde_json::Value;

use super::{
    fields::{Owned, owned_by_others},
    render::{FUNCTION, OWNER, TEMPLATE, WANTED},
};
pub use super::{
    pods::{PodTrouble, Trouble, pod_trouble},
    unmade::{EVENTS, Unmade, unmade},
};
use crate::{
    crd::{GROUP, ResourceRef},
    kinds::{AUTOSCALER, CLAIM, DEPLOYMENT, JOB, KNATIVE_SERVICE, Kind, STATEFUL_SET},
};

/// The field manager under which children and status are written.
pub const MANAGER: &str = "oprc-crm";

/// An object that belongs to a class, or might.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// The identity of the ClassRuntime that controls it.
    pub owner: Option<String>,
    /// The name of that ClassRuntime.
    pub owner_name: Option<String>,
    /// What its label says about the class it belongs to.
    pub class: Option<String>,
    /// What its label says about the function it belongs to.
    pub function: Option<String>,
    /// What its label says about the template that it comes from.
    pub template: Option<String>,
    /// Whether it is going.
    pub deleting: bool,
    /// Whether something other than us says how many replicas it has.
    pub replicas_elsewhere: bool,
    /// What its annotation says was wanted of it when it was written.
    pub wanted: Option<Box<str>>,
    /// Since when it has been ready, where it says that it is.
    pub ready_since: Option<Timestamp>,
    /// What we own of it, as text: a tenth of the size of the tree.
    owned: Option<Box<str>>,
    /// A digest of what was written when what we own of it came to be as it is.
    answers: Option<u64>,
    /// How it is.
    pub state: State,
}

/// How an object is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// Pods.
    Workload(Workload),
    /// A Knative Service.
    Knative(Knative),
    /// A run to completion.
    Job(JobState),
    /// Scales something: kind and name.
    Autoscaler(String, String),
    /// A volume claim: whether it has its volume, and its storage class.
    Claim(bool, Option<String>),
    /// Nothing to tell.
    #[default]
    Other,
}

/// How a workload is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Whether its controller has seen its latest specification.
    pub current: bool,
    /// How many pods there are to be.
    pub replicas: i32,
    /// How many pods are of the latest specification.
    pub updated: i32,
    /// How many pods can be used.
    pub available: i32,
    /// How many pods there are, old ones included.
    pub total: i32,
    /// Whether the latest specification has been rolled out; scaling doesn't matter here.
    pub rolled_out: bool,
    /// Why pods can't be made.
    pub failure: Option<String>,
}

/// How a Knative Service is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Knative {
    /// Whether its controller has seen its latest specification.
    pub current: bool,
    /// Whether it is ready; unknown while it is on its way.
    pub ready: Option<bool>,
    /// Why it isn't, in one word.
    pub reason: Option<String>,
    /// Why it isn't, in one sentence.
    pub message: Option<String>,
    /// Where it answers everybody.
    pub url: Option<String>,
    /// Where it answers in the cluster.
    pub address: Option<String>,
}

/// How a run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobState {
    /// Whether it has completed.
    pub complete: bool,
    /// Whether it has, or had, a pod.
    pub begun: bool,
    /// Why it failed.
    pub failed: Option<String>,
}

/// What can be seen, from caches only.
pub trait Sight {
    /// Everything that a ClassRuntime controls.
    fn owned(&self, namespace: &str, uid: &str) -> Vec<Arc<Child>>;
    /// An object by its name, whoever it belongs to.
    fn named(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Child>>;
    /// Autoscalers of a Deployment.
    fn scalers(&self, namespace: &str, deployment: &str) -> Vec<Arc<Child>>;
    /// Volume claims of a class's data grid.
    fn claims(&self, namespace: &str, class: &str) -> Vec<Arc<Child>>;
    /// Pods of a class that have something to complain about.
    fn troubles(&self, namespace: &str, class: &str) -> Vec<PodTrouble>;
    /// Why pods of a workload can't be made, where it doesn't say so itself.
    fn unmade(&self, uid: &str) -> Option<String>;
}

impl Child {
    /// What is kept of an object.
    pub fn of(kind: &Kind, object: &DynamicObject) -> Self {
        let meta = &object.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let managed: Vec<Value> = meta
            .managed_fields
            .iter()
            .flatten()
            .filter_map(|entry| serde_json::to_value(entry).ok())
            .collect();
        let owner = owner(meta);
        let owned = owner.and_then(|_| {
            let mut whole = object.data.clone();
            // Only what can be ours of the metadata.
            whole.as_object_mut()?.insert("metadata".to_owned(), serde_json::to_value(meta).ok()?);
            let owned = Owned::of(&whole, &managed, MANAGER)?;
            serde_json::to_string(&(owned.fields, owned.live)).ok().map(String::into_boxed_str)
        });
        let generation = meta.generation.unwrap_or(0);
        Self {
            kind: kind.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            owner: owner.map(|owner| owner.uid.clone()),
            owner_name: owner.map(|owner| owner.name.clone()),
            class: label(OWNER),
            function: label(FUNCTION),
            template: label(TEMPLATE),
            deleting: meta.deletion_timestamp.is_some(),
            replicas_elsewhere: owned_by_others(&managed, MANAGER, &["f:spec", "f:replicas"]),
            wanted: meta
                .annotations
                .as_ref()
                .and_then(|all| Some(all.get(WANTED)?.as_str().into())),
            ready_since: ready_since(kind, &object.data),
            owned,
            answers: None,
            state: state(kind, &object.data, generation),
        }
    }

    /// Whether an apply of `wanted` would change anything.
    pub fn differs_from(&self, wanted: &Value) -> bool {
        let Some(owned) = &self.owned else { return true };
        let Ok((fields, live)) = serde_json::from_str(owned) else { return true };
        Owned { fields, live }.differs_from(wanted)
    }

    /// It is what the API server made of `wanted`.
    #[must_use]
    pub fn answering(mut self, wanted: &Value) -> Self {
        self.answers = Some(digest(wanted));
        self
    }

    /// Whether it is what the API server made of just that, when it was asked last. Where it
    /// differs all the same, somebody else has a say in what is written, and would have it again.
    pub fn answers(&self, wanted: &Value) -> bool {
        self.answers.is_some_and(|it| it == digest(wanted))
    }

    /// It takes the place of what was known of the object before. What is ours of it hasn't
    /// changed for as long as it reads the same, whatever else has.
    #[must_use]
    pub fn after(mut self, known: &Self) -> Self {
        if self.answers.is_none() && self.uid == known.uid && self.owned == known.owned {
            self.answers = known.answers;
        }
        self
    }

    /// What is known, and that it answers what was written: the news of a write may come before
    /// its answer.
    pub fn taught_by(&self, answer: &Self) -> Option<Self> {
        let new = answer.answers.is_some() && answer.answers != self.answers;
        (new && self.uid == answer.uid && self.owned == answer.owned)
            .then(|| Self { answers: answer.answers, ..self.clone() })
    }

    /// Whether it was written for just that: what is to be done about it then is to heal it.
    pub fn is_written_for(&self, wanted: &Value) -> bool {
        let mark =
            wanted.pointer("/metadata/annotations").and_then(|all| all.get(WANTED)?.as_str());
        mark.is_some() && mark == self.wanted.as_deref()
    }

    /// Whether it is a workload that is to have no pods.
    pub fn has_no_replicas(&self) -> bool {
        matches!(&self.state, State::Workload(workload) if workload.replicas == 0)
    }

    /// Whether all of its pods are there.
    pub fn has_its_pods(&self) -> bool {
        match &self.state {
            State::Workload(workload) => workload.total >= workload.replicas,
            State::Job(job) => job.begun || job.complete,
            _ => true,
        }
    }

    /// Whether what we said of it has a word in it.
    pub fn mentions(&self, word: &str) -> bool {
        self.owned.as_ref().is_some_and(|owned| owned.contains(word))
    }

    /// Whether no change can make it what is wanted, as the API server lets nobody give a
    /// StatefulSet claims, or take them away.
    pub fn must_be_made_anew(&self, wanted: &Value) -> bool {
        let claims = |object: &Value| object.pointer("/spec/volumeClaimTemplates").is_some();
        let owned = self.owned.as_ref().filter(|_| self.kind == STATEFUL_SET);
        let read = owned.and_then(|owned| serde_json::from_str::<(Value, Value)>(owned).ok());
        read.is_some_and(|(_, live)| claims(&live) != claims(wanted))
    }

    /// What is wanted of it, with the pods that it was made with: nobody can change those of a run
    /// that has begun. None where we don't own what it says of them.
    pub fn with_its_pods(&self, mut wanted: Value) -> Option<Value> {
        let (_, mut live): (Value, Value) = serde_json::from_str(self.owned.as_ref()?).ok()?;
        *wanted.pointer_mut("/spec/template")? = live.pointer_mut("/spec/template")?.take();
        Some(wanted)
    }

    /// What the status says of it.
    pub fn reference(&self) -> ResourceRef {
        ResourceRef {
            api_version: self.kind.api_version(),
            kind: self.kind.kind.to_string(),
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

/// The class that an object belongs to. Where nobody controls it, that is one that it refers to if
/// CRM has written it: to be told otherwise is a change to be healed.
fn owner(meta: &ObjectMeta) -> Option<&OwnerReference> {
    let is_class = |owner: &&OwnerReference| {
        owner.kind == "ClassRuntime" && owner.api_version.starts_with(&format!("{GROUP}/"))
    };
    let mut all = meta.owner_references.iter().flatten();
    if let Some(controller) = all.clone().find(|owner| owner.controller == Some(true)) {
        return Some(controller).filter(is_class);
    }
    let written = meta.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
    });
    all.find(is_class).filter(|_| written)
}

/// Only compared within one process.
fn digest(wanted: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    wanted.to_string().hash(&mut hasher);
    hasher.finish()
}

fn state(kind: &Kind, data: &Value, generation: i64) -> State {
    let number = |pointer: &str| {
        let value = data.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        i32::try_from(value).unwrap_or(i32::MAX)
    };
    let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let current = data.pointer("/status/observedGeneration").and_then(Value::as_i64).unwrap_or(0)
        >= generation;
    if *kind == DEPLOYMENT {
        let progressing = condition(data, "Progressing");
        let reason = progressing.and_then(|it| it.get("reason")?.as_str());
        let failure = condition(data, "ReplicaFailure")
            .filter(|it| it.get("status").and_then(Value::as_str) == Some("True"))
            .and_then(|it| it.get("message")?.as_str().map(str::to_owned));
        State::Workload(Workload {
            current,
            replicas: number("/spec/replicas"),
            updated: number("/status/updatedReplicas"),
            available: number("/status/availableReplicas"),
            total: number("/status/replicas"),
            rolled_out: reason == Some("NewReplicaSetAvailable"),
            failure,
        })
    } else if *kind == STATEFUL_SET {
        let same = text("/status/currentRevision") == text("/status/updateRevision");
        let ready = number("/status/readyReplicas");
        State::Workload(Workload {
            current,
            replicas: number("/spec/replicas"),
            updated: if same { ready } else { number("/status/updatedReplicas") },
            available: number("/status/availableReplicas"),
            total: number("/status/replicas"),
            rolled_out: same,
            failure: None,
        })
    } else if *kind == KNATIVE_SERVICE {
        let ready = condition(data, "Ready");
        let part = |name: &str| ready.and_then(|it| it.get(name)?.as_str().map(str::to_owned));
        State::Knative(Knative {
            current,
            ready: part("status").and_then(|status| status.to_ascii_lowercase().parse().ok()),
            reason: part("reason"),
            message: part("message"),
            url: text("/status/url"),
            address: text("/status/address/url"),
        })
    } else if *kind == JOB {
        let holds = |name: &str| {
            condition(data, name)
                .filter(|it| it.get("status").and_then(Value::as_str) == Some("True"))
        };
        State::Job(JobState {
            complete: holds("Complete").is_some(),
            begun: ["active", "succeeded", "failed"]
                .iter()
                .any(|it| number(&format!("/status/{it}")) > 0),
            failed: holds("Failed").map(|it| {
                it.get("message").and_then(Value::as_str).unwrap_or("the run failed").to_owned()
            }),
        })
    } else if *kind == AUTOSCALER {
        State::Autoscaler(
            text("/spec/scaleTargetRef/kind").unwrap_or_default(),
            text("/spec/scaleTargetRef/name").unwrap_or_default(),
        )
    } else if *kind == CLAIM {
        let bound = text("/status/phase").as_deref() == Some("Bound");
        State::Claim(bound, text("/spec/storageClassName"))
    } else {
        State::Other
    }
}

/// Since when an object has been ready, by the time that its controller noted.
fn ready_since(kind: &Kind, data: &Value) -> Option<Timestamp> {
    let noted = |name: &str, reason: Option<&str>, field: &str| {
        let found = condition(data, name)?;
        let fits =
            reason.is_none_or(|reason| found.get("reason").and_then(Value::as_str) == Some(reason));
        found.get(field)?.as_str().filter(|_| fits)
    };
    let time = if *kind == DEPLOYMENT {
        noted("Progressing", Some("NewReplicaSetAvailable"), "lastUpdateTime")
    } else if *kind == KNATIVE_SERVICE {
        noted("Ready", None, "lastTransitionTime")
    } else if *kind == JOB {
        noted("Complete", None, "lastTransitionTime")
    } else {
        None
    };
    time?.parse().ok()
}

fn condition<'a>(data: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = data.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|it| it.get("type").and_then(Value::as_str) == Some(name))
}
