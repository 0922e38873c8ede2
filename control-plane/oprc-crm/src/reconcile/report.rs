//! What the status of a class says: phase, conditions, references, addresses.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{SignedDuration, Timestamp},
};

use super::{
    diff::{Changes, workload_ready},
    observe::{Child, Sight, State, Trouble},
    render::{Desired, FunctionPlan, OdgmWanted},
    select::{Selection, Shape},
};
use crate::{
    class::{Identity, Refusal, ValidClass},
    crd::{
        AnyObject, ClassRuntimeSpec, ClassRuntimeStatus, FunctionStatus, LastAvailable, OdgmStatus,
        Phase, Replaced,
    },
    kinds::{DEPLOYMENT, JOB, KNATIVE_SERVICE, SERVICE, STATEFUL_SET},
};

/// Conditions of every class.
pub const AVAILABLE: &str = "Available";
/// Whether something is under way.
pub const PROGRESSING: &str = "Progressing";
/// Whether something is wrong.
pub const DEGRADED: &str = "Degraded";
/// Whether a user's own autoscaler scales the class.
pub const FOREIGN_AUTOSCALER: &str = "ForeignAutoscaler";
/// Whether limits on calls at once are kept.
pub const CONCURRENCY_LIMITED: &str = "ConcurrencyLimited";

/// Why a write failed in a way that the class has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In one word.
    pub reason: &'static str,
    /// In one sentence.
    pub message: String,
}

/// One component of a class, as it is seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Component {
    pub(super) ready: bool,
    pub(super) trouble: Option<Trouble>,
    url: Option<String>,
    public_url: Option<String>,
    completed: bool,
}

/// How a function is.
pub(super) fn function(
    identity: &Identity,
    plan: &FunctionPlan,
    sight: &dyn Sight,
    scaled_by_others: bool,
    completed_before: bool,
) -> Component {
    let kind = match plan.shape {
        Shape::Deployment => DEPLOYMENT,
        Shape::Knative => KNATIVE_SERVICE,
        Shape::Job => JOB,
    };
    let namespace = &identity.namespace;
    let ours = |child: &Arc<Child>| child.owner.as_deref() == Some(&identity.uid);
    let child = sight.named(&kind, namespace, &plan.workload).filter(ours);
    let mut component = Component { url: plan.url.clone(), ..Component::default() };
    match child.as_deref().map(|child| (child, &child.state)) {
        Some((child, State::Workload(workload))) => {
            let address = sight.named(&SERVICE, namespace, &plan.workload).filter(ours);
            let varies = plan.max > plan.min || scaled_by_others;
            let reached = address.is_some_and(|address| !address.deleting);
            component.ready = reached && workload_ready(child, plan.min, varies);
            component.trouble = workload.failure.as_deref().map(creation_trouble);
        }
        Some((child, State::Knative(knative))) => {
            component.ready = !child.deleting && knative.current && knative.ready == Some(true);
            component.url = knative.address.clone().or(component.url);
            component.public_url =
                knative.url.clone().filter(|url| Some(url) != component.url.as_ref());
            if knative.ready == Some(false) && knative.current {
                component.trouble = Some(Trouble {
                    reason: "KnativeNotReady",
                    message: format!(
                        "{}: {}",
                        knative.reason.as_deref().unwrap_or("no reason"),
                        knative.message.as_deref().unwrap_or("no message")
                    ),
                    soft: false,
                });
            }
        }
        Some((_, State::Job(job))) => {
            component.ready = job.complete;
            component.completed = job.complete;
            component.trouble = job.failed.clone().map(|message| Trouble {
                reason: "JobFailed",
                message,
                soft: false,
            });
        }
        _ if plan.shape == Shape::Job && completed_before => {
            component.ready = true;
            component.completed = true;
        }
        _ => {}
    }
    if !component.ready {
        let troubles = sight.troubles(namespace, &identity.base);
        let of_pods = troubles
            .into_iter()
            .filter(|it| it.function.as_deref() == Some(&plan.label))
            .map(|it| it.trouble);
        component.trouble = worst(of_pods.chain(component.trouble));
    }
    component
}

/// How the data grid is.
pub(super) fn odgm(identity: &Identity, wanted: &OdgmWanted, sight: &dyn Sight) -> Component {
    let kind = if wanted.stateful { STATEFUL_SET } else { DEPLOYMENT };
    let child = odgm_workload(identity, wanted, sight);
    let mut component = Component::default();
    if let Some(child) = &child {
        component.ready = workload_ready(child, wanted.replicas, false);
        if let State::Workload(workload) = &child.state {
            component.trouble = workload.failure.as_deref().map(creation_trouble);
        }
    }
    if !component.ready {
        let troubles = sight.troubles(&identity.namespace, &identity.base);
        let of_pods = troubles.into_iter().filter(|it| it.function.is_none()).map(|it| it.trouble);
        let claims = if kind == STATEFUL_SET {
            sight.claims(&identity.namespace, &identity.base)
        } else {
            Vec::new()
        };
        let unbound = claims.iter().filter_map(|claim| match &claim.state {
            State::Claim(false, class) => Some(Trouble {
                reason: "VolumeNotBound",
                message: format!(
                    "volume claim {} has no volume (storage class {})",
                    claim.name,
                    class.as_deref().unwrap_or("of the cluster")
                ),
                soft: true,
            }),
            _ => None,
        });
        component.trouble = worst(unbound.chain(of_pods).chain(component.trouble));
    }
    component
}

/// Whether any node of the data grid answers, so that functions can be begun.
pub(super) fn odgm_answers(identity: &Identity, wanted: &OdgmWanted, sight: &dyn Sight) -> bool {
    odgm_workload(identity, wanted, sight).is_some_and(|child| {
        matches!(&child.state, State::Workload(workload) if workload.available >= wanted.replicas.min(1))
    })
}

fn odgm_workload(
    identity: &Identity,
    wanted: &OdgmWanted,
    sight: &dyn Sight,
) -> Option<Arc<Child>> {
    let kind = if wanted.stateful { STATEFUL_SET } else { DEPLOYMENT };
    let child = sight.named(&kind, &identity.namespace, &wanted.workload)?;
    (child.owner.as_deref() == Some(&identity.uid)).then_some(child)
}

fn creation_trouble(message: &str) -> Trouble {
    let reason =
        if message.contains("exceeded quota") { "QuotaExceeded" } else { "PodsNotCreated" };
    Trouble { reason, message: message.to_owned(), soft: false }
}

/// What won't go away by itself comes first, and what a missing node follows from before it.
fn worst(troubles: impl Iterator<Item = Trouble>) -> Option<Trouble> {
    let rank = |it: &Trouble| (it.soft, it.reason == "Unschedulable");
    troubles.min_by(|left, right| {
        rank(left).cmp(&rank(right)).then_with(|| left.message.cmp(&right.message))
    })
}

/// Everything that a status follows from.
pub(super) struct Seen<'a> {
    pub(super) class: &'a ValidClass,
    pub(super) spec: &'a ClassRuntimeSpec,
    /// The generation that was asked for; `class` may be an older one that it went back to.
    pub(super) generation: i64,
    pub(super) selection: &'a Selection,
    pub(super) desired: &'a Desired,
    pub(super) changes: &'a Changes,
    pub(super) functions: Vec<Component>,
    pub(super) odgm: Option<Component>,
    pub(super) failures: &'a [Failure],
    pub(super) deadline: Duration,
    pub(super) now: Timestamp,
}

/// Begins a status for a generation with what stays of the one before.
pub(super) fn carried(old: Option<&ClassRuntimeStatus>, generation: i64) -> ClassRuntimeStatus {
    let mut status = old.cloned().unwrap_or_default();
    status.observed_generation = Some(generation);
    status
}

/// The status of a class that can't be brought about.
pub(super) fn refused(
    old: Option<&ClassRuntimeStatus>,
    generation: i64,
    refusal: &Refusal,
    now: Timestamp,
) -> ClassRuntimeStatus {
    let mut status = carried(old, generation);
    status.degrade(refusal.reason, &refusal.message, now);
    status.set(AVAILABLE, false, refusal.reason, &refusal.message, now);
    status
}

/// The status of a class that is going.
pub(super) fn deleting(
    old: Option<&ClassRuntimeStatus>,
    generation: i64,
    message: &str,
    now: Timestamp,
) -> ClassRuntimeStatus {
    let mut status = carried(old, generation);
    status.enter(Phase::Deleting, "Deleting", message);
    status.set(AVAILABLE, false, "Deleting", message, now);
    status.set(PROGRESSING, true, "Deleting", message, now);
    status
}

/// The status of a class.
pub(super) fn report(old: Option<&ClassRuntimeStatus>, seen: &Seen<'_>) -> ClassRuntimeStatus {
    let now = seen.now;
    let mut status = carried(old, seen.generation);
    let fresh = old.is_none_or(|old| old.observed_generation != Some(seen.generation));
    status.selection = Some(seen.selection.status(seen.class.identity.generation));
    let components: Vec<(&str, &Component)> = seen
        .desired
        .functions
        .iter()
        .map(|plan| plan.key.as_str())
        .zip(&seen.functions)
        .chain(seen.odgm.iter().map(|component| ("odgm", component)))
        .collect();
    let ready = components.iter().filter(|(_, component)| component.ready).count();
    status.ready = Some(format!("{ready}/{}", components.len()));
    status.functions = function_statuses(old, seen);
    status.odgm = odgm_status(seen);
    let before = std::mem::take(&mut status.kept_collections);
    status.kept_collections =
        crate::class::kept_collections(seen.class.odgm.as_ref(), &before, seen.spec);
    status.stable_since = components
        .iter()
        .filter(|(_, component)| component.ready)
        .map(|(name, _)| {
            let before = old.and_then(|old| old.stable_since.get(*name)).cloned();
            ((*name).to_owned(), before.unwrap_or(Time(now)))
        })
        .collect::<BTreeMap<_, _>>();

    let was_available = !fresh && old.is_some_and(|old| old.holds(AVAILABLE));
    // A write that heals doesn't by itself make a class less available; what it leads to may.
    let settled = ready == components.len()
        && seen.changes.held == 0
        && (seen.changes.writes.is_empty() || was_available);
    let hard = components.iter().find_map(|(name, it)| {
        it.trouble.as_ref().filter(|trouble| !trouble.soft).map(|it| (name, it))
    });
    if !settled && (fresh || status.progress_since.is_none()) {
        status.progress_since = Some(Time(now));
    }
    // What was replaced goes only while all that replaces it is there.
    let replaced = status.replaced.take();
    let rolled_back = seen.class.identity.generation != seen.generation;
    if rolled_back {
        status.rolled_back = Some(seen.generation);
    } else {
        status.rolled_back = None;
    }
    if let Some(failure) = seen.failures.first() {
        status.degrade(failure.reason, &failure.message, now);
        status.set(AVAILABLE, false, failure.reason, &failure.message, now);
    } else if !seen.changes.foreign.is_empty() {
        let names = seen.changes.foreign.join(", ");
        let message = format!("belongs to somebody else, and is left alone: {names}");
        status.degrade("NameTaken", &message, now);
        status.set(AVAILABLE, false, "NameTaken", &message, now);
    } else if settled {
        status.progress_since = None;
        settle(&mut status, seen, rolled_back, replaced);
    } else if let Some((name, trouble)) = hard {
        let message = format!("{name}: {}", trouble.message);
        status.degrade(trouble.reason, &message, now);
        status.set(AVAILABLE, false, trouble.reason, &message, now);
    } else if overdue(&status, seen) && !seen.spec.paused {
        let soft = components.iter().find_map(|(_, it)| it.trouble.as_ref());
        let reason = soft.map_or("ProgressDeadlineExceeded", |trouble| trouble.reason);
        let waiting: Vec<&str> =
            components.iter().filter(|(_, it)| !it.ready).map(|(name, _)| *name).collect();
        let message = format!(
            "not Available within {} s; not ready: {}{}",
            seen.deadline.as_secs(),
            waiting.join(", "),
            soft.map_or_else(String::new, |trouble| format!(" ({})", trouble.message))
        );
        status.degrade(reason, &message, now);
        status.set(AVAILABLE, false, reason, &message, now);
    } else {
        let message = format!("{ready} of {} components are ready", components.len());
        status.enter(Phase::Progressing, "Progressing", &message);
        status.set(AVAILABLE, false, "Progressing", "not all components are ready", now);
        status.set(PROGRESSING, true, "Progressing", "objects are written", now);
        status.set(DEGRADED, false, "AsExpected", "", now);
    }
    if seen.spec.paused {
        status.set(
            PROGRESSING,
            false,
            "Paused",
            "nothing is changed while spec.paused is set",
            now,
        );
    }
    notes(&mut status, seen);
    status
}

fn settle(
    status: &mut ClassRuntimeStatus,
    seen: &Seen<'_>,
    rolled_back: bool,
    replaced: Option<Replaced>,
) {
    let now = seen.now;
    if rolled_back {
        let message = format!(
            "generation {} missed its deadline; generation {} runs",
            seen.generation, seen.class.identity.generation
        );
        status.degrade("RolledBack", &message, now);
        status.set(AVAILABLE, true, "RolledBack", &message, now);
    } else {
        status.enter(Phase::Available, "Available", "everything is ready");
        status.set(AVAILABLE, true, "Available", "everything is ready", now);
        status.set(PROGRESSING, false, "Complete", "", now);
        status.set(DEGRADED, false, "AsExpected", "", now);
        status.last_available = seen.spec.rollout.as_ref().filter(|it| it.rollback).map(|_| {
            LastAvailable {
                generation: seen.generation,
                // Our own types always serialise.
                spec: AnyObject(serde_json::to_value(seen.spec).unwrap_or_default()),
            }
        });
    }
    let refs: Vec<_> = seen.changes.replaced.iter().map(|child| child.reference()).collect();
    // With what is replaced only now, time begins anew.
    let known = replaced.filter(|it| refs.iter().all(|one| it.resource_refs.contains(one)));
    status.replaced = (!refs.is_empty()).then(|| Replaced {
        since: known.map_or(Time(now), |replaced| replaced.since),
        resource_refs: refs,
    });
}

/// Whether time is up.
fn overdue(status: &ClassRuntimeStatus, seen: &Seen<'_>) -> bool {
    time_left(status, seen.deadline, seen.now).is_some_and(|left| left.is_zero())
}

/// How long until time is up.
pub(super) fn time_left(
    status: &ClassRuntimeStatus,
    deadline: Duration,
    now: Timestamp,
) -> Option<Duration> {
    status.progress_since.as_ref().map(|since| remaining(since.0, deadline, now))
}

/// What is left of a span that began then.
pub(super) fn remaining(since: Timestamp, span: Duration, now: Timestamp) -> Duration {
    let end = since + SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    Duration::try_from(end.duration_since(now)).unwrap_or_default()
}

fn function_statuses(old: Option<&ClassRuntimeStatus>, seen: &Seen<'_>) -> Vec<FunctionStatus> {
    let before = |key: &str| old.and_then(|old| old.functions.iter().find(|it| it.key == key));
    let still_serves = |plan: &FunctionPlan, before: &FunctionStatus| {
        seen.changes.replaced.iter().any(|child| {
            child.function.as_deref() == Some(&plan.label)
                && child.template == before.runs_as
                && (child.kind == SERVICE || child.kind == KNATIVE_SERVICE)
        })
    };
    let running = seen.desired.functions.iter().zip(&seen.functions).map(|(plan, component)| {
        let before = before(&plan.key);
        let shape = plan.shape.as_str();
        let same_shape = before.is_some_and(|it| it.runs_as.as_deref() == Some(shape));
        let (runs_as, url, public_url) = if component.ready || same_shape {
            let told = component.ready || before.is_some_and(|it| it.url.is_some());
            let url = component.url.clone().filter(|_| told);
            (Some(shape.to_owned()), url, component.public_url.clone().filter(|_| told))
        } else if let Some(before) = before.filter(|before| still_serves(plan, before)) {
            // What is being replaced answers until the new one does.
            (before.runs_as.clone(), before.url.clone(), before.public_url.clone())
        } else {
            (Some(shape.to_owned()), None, None)
        };
        FunctionStatus {
            key: plan.key.clone(),
            runs_as,
            ready: component.ready,
            url,
            public_url,
            completed: component.completed.then_some(seen.class.identity.generation),
            reason: component.trouble.as_ref().map(|it| it.reason.to_owned()),
            message: component.trouble.as_ref().map(|it| it.message.clone()),
        }
    });
    let passive = seen.class.passive.iter().map(|passive| FunctionStatus {
        key: passive.key.clone(),
        reason: Some(passive.reason.to_owned()),
        ..FunctionStatus::default()
    });
    running.chain(passive).collect()
}

fn odgm_status(seen: &Seen<'_>) -> Option<OdgmStatus> {
    let (wanted, component) = (seen.desired.odgm.as_ref()?, seen.odgm.as_ref()?);
    let collections = seen.class.odgm.iter().flat_map(|plan| &plan.collections);
    Some(OdgmStatus {
        ready: component.ready,
        service: wanted.service.clone(),
        replicas: wanted.replicas,
        collections: collections.map(crate::class::CollectionPlan::status).collect(),
        reason: component.trouble.as_ref().map(|it| it.reason.to_owned()),
        message: component.trouble.as_ref().map(|it| it.message.clone()),
    })
}

/// What else there is to be told.
fn notes(status: &mut ClassRuntimeStatus, seen: &Seen<'_>) {
    let now = seen.now;
    if seen.changes.scaled_by_others.is_empty() {
        status.unset(FOREIGN_AUTOSCALER);
    } else {
        let names = seen.changes.scaled_by_others.join(", ");
        let message =
            format!("an autoscaler of somebody else scales {names}: replicas are left alone");
        status.set(FOREIGN_AUTOSCALER, true, FOREIGN_AUTOSCALER, &message, now);
    }
    let unlimited: Vec<&str> = seen
        .desired
        .functions
        .iter()
        .filter(|plan| plan.unenforced_concurrency.is_some())
        .map(|plan| plan.key.as_str())
        .collect();
    if unlimited.is_empty() {
        status.unset(CONCURRENCY_LIMITED);
    } else {
        let message = format!(
            "max_concurrency isn't kept by k8s_deployment (knative keeps it): {}",
            unlimited.join(", ")
        );
        status.set(CONCURRENCY_LIMITED, false, "NotEnforced", &message, now);
    }
}

impl ClassRuntimeStatus {
    fn enter(&mut self, phase: Phase, reason: &str, message: &str) {
        self.phase = phase;
        self.reason = Some(reason.to_owned());
        self.message = Some(message.to_owned());
    }

    fn degrade(&mut self, reason: &str, message: &str, now: Timestamp) {
        self.enter(Phase::Degraded, reason, message);
        self.set(PROGRESSING, false, reason, "", now);
        self.set(DEGRADED, true, reason, message, now);
    }

    fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str, now: Timestamp) {
        let status = if holds { "True" } else { "False" };
        let before = self.conditions.iter().find(|it| it.type_ == type_ && it.status == status);
        let since = before.map_or(Time(now), |before| before.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            // The API server takes no more than that.
            message: message.chars().take(4096).collect(),
            last_transition_time: since,
            observed_generation: self.observed_generation,
        };
        match self.conditions.iter_mut().find(|it| it.type_ == type_) {
            Some(place) => *place = condition,
            None => self.conditions.push(condition),
        }
        self.conditions.sort_by(|left, right| left.type_.cmp(&right.type_));
    }

    fn unset(&mut self, type_: &str) {
        self.conditions.retain(|it| it.type_ != type_);
    }

    /// Whether a condition holds.
    pub fn holds(&self, type_: &str) -> bool {
        self.conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
    }

    /// Whether another status is worth a write. While things are under way only what is decided
    /// counts; figures are told when they have come to rest.
    pub fn worth_writing_over(&self, old: Option<&Self>) -> bool {
        let Some(old) = old else { return true };
        if self.phase != Phase::Progressing || old.phase != Phase::Progressing {
            let mut same = old.clone();
            same.last_updated.clone_from(&self.last_updated);
            return *self != same;
        }
        let conditions = |status: &Self| {
            let all = status.conditions.iter();
            all.map(|it| {
                (it.type_.clone(), it.status.clone(), it.reason.clone(), it.observed_generation)
            })
            .collect::<Vec<_>>()
        };
        let functions = |status: &Self| {
            let all = status.functions.iter();
            all.map(|it| (it.key.clone(), it.reason.clone())).collect::<Vec<_>>()
        };
        // An address that is there can wait until all are; one that was told can't be wrong.
        let told_otherwise = old.functions.iter().any(|before| {
            before.url.is_some()
                && self.functions.iter().any(|it| it.key == before.key && it.url != before.url)
        });
        let odgm = |status: &Self| {
            status
                .odgm
                .as_ref()
                .map(|it| (it.service.clone(), it.collections.clone(), it.reason.clone()))
        };
        self.observed_generation != old.observed_generation
            || conditions(self) != conditions(old)
            || functions(self) != functions(old)
            || told_otherwise
            || odgm(self) != odgm(old)
            || self.selection != old.selection
            || self.kept_collections != old.kept_collections
            || self.replaced != old.replaced
            || self.rolled_back != old.rolled_back
            || self.progress_since != old.progress_since
    }
}
