//! Everything about each workload shape in one file: its objects, its names and address, how its
//! status is read, and when it is ready.
//!
//! Nothing here looks up objects: readiness is a function of what [`super::observe`] kept of them.

pub(super) mod deployment;
pub(super) mod grid;
pub(super) mod job;
pub(super) mod knative;

use k8s_openapi::jiff::Timestamp;
use oprc_unit::{Identity, Shape, ValidFunction};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::manifest::{Context, DesiredObject, FunctionPlan};
use crate::{
    kinds::{AUTOSCALER, CLAIM, DEPLOYMENT, JOB, KNATIVE_SERVICE, Kind, STATEFUL_SET},
    reason::{Failure, Reason},
};

/// A kind of workload that a function can run as.
pub(super) struct WorkloadShape {
    pub(super) kind: Kind,
    /// The kind of the object whose address clients call; it keeps serving while the shape of a
    /// function changes. None for a shape that serves no calls.
    pub(super) address_kind: Option<Kind>,
    /// Whether CRM scales it with an autoscaler.
    pub(super) needs_autoscaler: bool,
    /// Whether its pods can have init containers, and sidecars such as the proxy. Knative has its own
    /// proxy and allows none by default; in a Job they would count towards the deadline.
    pub(super) takes_init_containers: bool,
    /// The key is none for the only function of a class.
    pub(super) workload_name: fn(&Identity, key: Option<&str>) -> String,
    /// The objects of a function, in the order in which they are applied.
    pub(super) objects: fn(&Context<'_>, &ValidFunction, &FunctionPlan) -> Vec<DesiredObject>,
    pub(super) assess: fn(&Assessed<'_>) -> Component,
}

const SHAPES: [Shape; 3] = [Shape::Deployment, Shape::Knative, Shape::Job];

pub(super) fn of(shape: Shape) -> &'static WorkloadShape {
    match shape {
        Shape::Deployment => &deployment::SHAPE,
        Shape::Knative => &knative::SHAPE,
        Shape::Job => &job::SHAPE,
    }
}

/// The shape of an object with that [`super::manifest::TEMPLATE`] label.
pub(super) fn labelled(template: Option<&str>) -> Option<&'static WorkloadShape> {
    SHAPES.into_iter().find(|shape| Some(shape.as_str()) == template).map(of)
}

pub(super) fn others(shape: Shape) -> impl Iterator<Item = &'static WorkloadShape> {
    SHAPES.into_iter().filter(move |it| *it != shape).map(of)
}

/// What readiness follows from.
pub(super) struct Assessed<'a> {
    pub(super) state: &'a ObservedState,
    pub(super) deleting: bool,
    /// Whether the Service of the same name exists.
    pub(super) has_service: bool,
    /// Why its pods can't be created, from Events.
    pub(super) creation_failure: Option<String>,
    pub(super) required: Required,
}

/// How many instances are required.
#[derive(Clone, Copy)]
pub(super) struct Required {
    pub(super) min: i32,
    pub(super) varies: bool,
    /// Whether an autoscaler of another owner sets the number of replicas, even below `min`.
    pub(super) scaled_by_others: bool,
}

/// The observed condition of a function or the data grid.
#[derive(Clone, Debug, Default)]
pub(super) struct Component {
    /// The latest specification is rolled out in full.
    pub(super) ready: bool,
    /// Enough instances serve, of whatever specification.
    pub(super) serving: bool,
    /// From the object's status; none if that has no time.
    pub(super) ready_since: Option<Timestamp>,
    /// Why it isn't ready. One with a transient reason counts only after the deadline.
    pub(super) problem: Option<Failure>,
    pub(super) url: Option<String>,
    pub(super) public_url: Option<String>,
    pub(super) completed: bool,
}

/// The part of an object's status that CRM uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ObservedState {
    Workload(Workload),
    Knative(knative::KnativeStatus),
    Job(job::JobState),
    /// Kind and name of the scale target.
    Autoscaler(String, String),
    /// Whether the claim is bound, and its storage class.
    Claim(bool, Option<String>),
    #[default]
    Other,
}

/// The status of a Deployment or StatefulSet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Whether the status is about the latest specification.
    pub current: bool,
    /// `spec.replicas`.
    pub replicas: i32,
    pub updated: i32,
    pub available: i32,
    /// Pods of all revisions.
    pub total: i32,
    /// Whether the latest revision is rolled out, regardless of scaling.
    pub rolled_out: bool,
    /// Why pods can't be created.
    pub failure: Option<String>,
    /// Only of a StatefulSet.
    pub revisions: Option<Revisions>,
}

/// The rollout of a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// That of the last rollout that ended.
    pub complete: String,
    /// What is being rolled out.
    pub latest: String,
    /// Pods with a lower ordinal aren't replaced.
    pub partition: i32,
    /// Whether its controller replaces a pod that is ready only while all others are: the API server sets
    /// `maxUnavailable` only then.
    pub keeps_others: bool,
}

impl Workload {
    /// Whether all pods are available and of the latest specification. Where the number varies,
    /// the latest revision must be rolled out with `min` pods available.
    fn is_complete(&self, min: i32, varies: bool) -> bool {
        if !self.current {
            return false;
        }
        if varies {
            return self.rolled_out && self.available >= min;
        }
        self.replicas >= min
            && self.updated >= self.replicas
            && self.available >= self.replicas
            && self.total <= self.updated
    }
}

/// The state of an object, and since when it has been ready, if its status has that time.
pub(super) type Observation = (ObservedState, Option<Timestamp>);
type Observer = fn(&Value, generation: i64) -> Observation;

const OBSERVERS: [(Kind, Observer); 6] = [
    (DEPLOYMENT, deployment::observe),
    (AUTOSCALER, deployment::observe_autoscaler),
    (KNATIVE_SERVICE, knative::observe),
    (JOB, job::observe),
    (STATEFUL_SET, grid::observe_stateful_set),
    (CLAIM, grid::observe_claim),
];

/// Reads the status of an object of any kind.
pub(super) fn observe(kind: &Kind, object: &Value, generation: i64) -> Observation {
    let observer = OBSERVERS.into_iter().find(|(observed, _)| observed == kind);
    observer.map(|(_, observe)| observe(object, generation)).unwrap_or_default()
}

/// An object's status in its own type; the default if there is none or it can't be read.
fn status<T: DeserializeOwned + Default>(object: &Value) -> T {
    object.get("status").and_then(|status| T::deserialize(status).ok()).unwrap_or_default()
}

fn spec_replicas(object: &Value) -> i32 {
    let replicas = object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    i32::try_from(replicas).unwrap_or(i32::MAX)
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

/// The problem of a workload whose pods can't be created.
fn creation_problem(message: &str) -> Failure {
    quota_or(Reason::PodsNotCreated, message)
}

/// A problem whose cause may be a quota.
fn quota_or(other: Reason, message: &str) -> Failure {
    let quota = message.contains("exceeded quota");
    let reason = if quota { Reason::QuotaExceeded } else { other };
    Failure { reason, message: message.to_owned() }
}
