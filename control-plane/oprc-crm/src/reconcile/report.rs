//! The status of a class: phase, conditions, references and addresses.

mod components;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use oprc_unit::{Rejection, Selection, UnitSpec, ValidClass};

use self::components::{function_statuses, odgm_status};
use super::{
    data_protection,
    diff::{Blocked, Changes},
    render::Desired,
    shapes::Component,
};
pub use crate::crd::{AVAILABLE, CONCURRENCY_LIMITED, DEGRADED, FOREIGN_AUTOSCALER, PROGRESSING};
use crate::{
    crd::{ClassRuntimeStatus, GRID_STABILITY_KEY, LastAvailable, Phase, Replaced, ResourceRef},
    reason::Reason,
};

/// The largest specification that is kept for a rollback, in bytes: status and specification must
/// fit into one object of the API server.
const MAX_KEPT_SPEC: usize = 256 * 1024;
/// How long a ready function waits for the others before its address is written.
const READY_DELAY: Duration = Duration::from_secs(10);
/// How long all objects must exist before `Progressing` is written over `Applying`: a class that
/// becomes Available sooner needs no write in between.
const PHASE_DELAY: Duration = Duration::from_secs(30);

/// A failed write that is reported in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub message: String,
}

/// The first reason, and all messages. A quota counts only if nothing else failed.
pub(super) fn join(failures: &[Failure]) -> Option<Failure> {
    let reasons = failures.iter().map(|it| it.reason);
    let reason = reasons.min_by_key(|it| *it == Reason::QuotaExceeded)?;
    let messages: Vec<&str> = failures.iter().map(|it| it.message.as_str()).collect();
    Some(Failure { reason, message: messages.join("; ") })
}

/// Everything that a status follows from.
pub(super) struct StatusInputs<'a> {
    pub(super) class: &'a ValidClass,
    pub(super) spec: &'a UnitSpec,
    /// The latest generation; `class` may be an earlier one after a rollback.
    pub(super) generation: i64,
    pub(super) selection: &'a Selection,
    pub(super) desired: &'a Desired,
    pub(super) changes: &'a Changes,
    pub(super) functions: Vec<Component>,
    pub(super) odgm: Option<Component>,
    /// Objects of the class that exist.
    pub(super) resource_refs: Vec<ResourceRef>,
    /// When the newest of them was created.
    pub(super) last_created: Option<Timestamp>,
    /// Why the latest generation is rejected, if an earlier one takes its place.
    pub(super) rejection: Option<&'a Rejection>,
    pub(super) failures: &'a [Failure],
    pub(super) deadline: Duration,
    pub(super) now: Timestamp,
}

impl StatusInputs<'_> {
    /// Functions and the data grid, by the keys of `stable_since`.
    fn components(&self) -> Vec<(&str, &Component)> {
        let keys = self.desired.functions.iter().map(|plan| plan.key.as_str());
        let grid = self.odgm.iter().map(|component| (GRID_STABILITY_KEY, component));
        keys.zip(&self.functions).chain(grid).collect()
    }

    /// The failed writes, if all of them wait for a quota.
    fn objects_over_quota(&self) -> Option<Failure> {
        join(self.failures).filter(|it| it.reason == Reason::QuotaExceeded)
    }

    /// What waits for a quota: objects, or pods of a component.
    fn over_quota(&self) -> Option<Failure> {
        self.objects_over_quota().or_else(|| {
            let components = self.components().into_iter().filter(|(_, it)| !it.ready);
            let mut problems = components.filter_map(|(key, it)| problem(key, it));
            problems.find(|it| it.reason == Reason::QuotaExceeded)
        })
    }

    fn is_rolled_back(&self) -> bool {
        self.class.identity.generation != self.generation
    }
}

/// How a component is called in messages.
fn display(key: &str) -> &str {
    if key == GRID_STABILITY_KEY { "the data grid" } else { key }
}

/// The problem of a component, with its name.
fn problem(key: &str, component: &Component) -> Option<Failure> {
    let problem = component.problem.as_ref()?;
    let message = format!("{}: {}", display(key), problem.message);
    Some(Failure { reason: problem.reason, message })
}

/// The status of a generation before anything is known of it.
fn carried(old: Option<&ClassRuntimeStatus>, generation: i64) -> ClassRuntimeStatus {
    let mut status = old.map(ClassRuntimeStatus::owned_by_reconciler).unwrap_or_default();
    status.observed_generation = Some(generation);
    status.migrate_stability_key();
    status
}

/// The status of a class whose specification is rejected. `refresh` updates what is known of the
/// objects that exist, and returns whether they serve.
pub(super) fn rejected(
    old: Option<&ClassRuntimeStatus>,
    generation: i64,
    rejection: &Rejection,
    refresh: impl FnOnce(&mut ClassRuntimeStatus) -> bool,
    now: Timestamp,
) -> ClassRuntimeStatus {
    let mut status = carried(old, generation);
    // The deadline starts when the specification is admitted.
    status.progress_since = None;
    let serving = refresh(&mut status);
    status.mark_degraded(rejection.reason.into(), &rejection.message, serving, now);
    status
}

pub(super) fn deleting(
    old: Option<&ClassRuntimeStatus>,
    generation: i64,
    message: &str,
    now: Timestamp,
) -> ClassRuntimeStatus {
    let mut status = carried(old, generation);
    status.mark_deleting(message, now);
    status
}

pub(super) fn report(
    old: Option<&ClassRuntimeStatus>,
    inputs: &StatusInputs<'_>,
) -> ClassRuntimeStatus {
    let mut status = carried(old, inputs.generation);
    record_facts(&mut status, old, inputs);
    let settled = is_settled(old, inputs);
    let fresh = old.is_none_or(|old| old.observed_generation != Some(inputs.generation));
    if settled {
        status.progress_since = None;
    } else if fresh || status.progress_since.is_none() {
        status.progress_since = Some(Time(inputs.now));
    }
    // A rejected generation isn't given up: it is tried again in each reconcile.
    let given_up = inputs.is_rolled_back() && inputs.rejection.is_none();
    status.rolled_back = given_up.then_some(inputs.generation);
    // Draining starts over when a replacement isn't ready any more.
    let replaced = status.replaced.take();
    match failure(&status, inputs, settled) {
        Some(failure) => {
            let serving = inputs.components().iter().all(|(_, it)| it.serving);
            status.mark_degraded(failure.reason, &failure.message, serving, inputs.now);
        }
        None if settled => mark_settled(&mut status, inputs, replaced),
        None => mark_in_progress(&mut status, old, inputs),
    }
    if inputs.spec.paused {
        let message = "spec.paused is set: no object is changed";
        status.set_condition(PROGRESSING, false, Reason::Paused, message, inputs.now);
    }
    if inputs.rejection.is_some() {
        status.progress_since = None;
    }
    record_remarks(&mut status, inputs);
    status
}

/// Records what is known of components, selection and data, whatever the phase.
fn record_facts(
    status: &mut ClassRuntimeStatus,
    old: Option<&ClassRuntimeStatus>,
    inputs: &StatusInputs<'_>,
) {
    let components = inputs.components();
    let ready = components.iter().filter(|(_, component)| component.ready).count();
    status.ready = Some(format!("{ready}/{}", components.len()));
    status.selection = Some(inputs.selection.status(inputs.class.identity.generation));
    status.functions = function_statuses(old, inputs);
    status.odgm = odgm_status(inputs);
    status.resource_refs.clone_from(&inputs.resource_refs);
    let before = std::mem::take(&mut status.kept_collections);
    if data_protection::may_lose_data(inputs.spec) {
        status.unreadable.clear();
    }
    let plan = inputs.class.odgm.as_ref();
    status.kept_collections = data_protection::kept_collections(plan, &before, inputs.spec);
    status.kept_nodes =
        data_protection::kept_nodes(plan, status.kept_nodes, &status.kept_collections);
    let before = std::mem::take(&mut status.stable_since);
    status.stable_since = components
        .iter()
        .filter(|(_, component)| component.ready)
        .map(|(key, _)| ((*key).to_owned(), before.get(*key).cloned().unwrap_or(Time(inputs.now))))
        .collect::<BTreeMap<_, _>>();
}

/// Whether everything that is desired exists and is ready.
fn is_settled(old: Option<&ClassRuntimeStatus>, inputs: &StatusInputs<'_>) -> bool {
    let ready = inputs.components().iter().all(|(_, component)| component.ready);
    // While a generation is rejected, the last good one runs under the same observedGeneration:
    // compare the generation of the selection instead.
    let was_settled = old.is_some_and(|old| {
        let selected = old.selection.as_ref().map(|it| it.generation);
        let rolled_back = old.reason.as_deref() == Some(Reason::RolledBack.as_str());
        old.observed_generation == Some(inputs.generation)
            && selected == Some(inputs.class.identity.generation)
            && (old.phase == Phase::Available || rolled_back)
    });
    // An apply that restores drift doesn't make a class less ready; what it leads to may.
    let unchanged = inputs.changes.applies.is_empty() || was_settled;
    let over_quota = inputs.objects_over_quota().is_some();
    ready && unchanged && inputs.changes.blocked.is_empty() && !over_quota
}

/// Why a class is Degraded; the first that applies.
fn failure(
    status: &ClassRuntimeStatus,
    inputs: &StatusInputs<'_>,
    settled: bool,
) -> Option<Failure> {
    // What waits for a quota fails after the deadline only.
    let failed = join(inputs.failures).filter(|it| it.reason != Reason::QuotaExceeded);
    if failed.is_some() {
        return failed;
    }
    if !inputs.changes.conflicts.is_empty() {
        let names = inputs.changes.conflicts.join(", ");
        let message = format!("owned by another controller or user: {names}");
        return Some(Failure { reason: Reason::NameTaken, message });
    }
    if settled {
        return None;
    }
    if let Some(rejection) = inputs.rejection {
        let message = rejection.message.clone();
        return Some(Failure { reason: rejection.reason.into(), message });
    }
    let components = inputs.components().into_iter();
    let mut problems = components.filter_map(|(key, it)| problem(key, it));
    let permanent = problems.find(|it| !it.reason.is_transient());
    let overdue = time_left(status, inputs.deadline, inputs.now).is_some_and(|it| it.is_zero());
    permanent.or_else(|| (overdue && !inputs.spec.paused).then(|| deadline_exceeded(inputs)))
}

fn deadline_exceeded(inputs: &StatusInputs<'_>) -> Failure {
    let components = inputs.components();
    let first = || components.iter().find_map(|(_, it)| it.problem.clone());
    let cause = inputs.objects_over_quota().map(|it| (it.reason, it.message));
    let cause = cause.or_else(|| first().map(|it| (it.reason, it.message)));
    let waiting: Vec<&str> =
        components.iter().filter(|(_, it)| !it.ready).map(|(key, _)| display(key)).collect();
    let waiting = match waiting.as_slice() {
        [] => String::new(),
        names => format!("; not ready: {}", names.join(", ")),
    };
    let (reason, details) = match cause {
        Some((reason, message)) => (reason, format!(" ({message})")),
        None => (Reason::ProgressDeadlineExceeded, String::new()),
    };
    let seconds = inputs.deadline.as_secs();
    Failure { reason, message: format!("not Available within {seconds} s{waiting}{details}") }
}

fn mark_in_progress(
    status: &mut ClassRuntimeStatus,
    old: Option<&ClassRuntimeStatus>,
    inputs: &StatusInputs<'_>,
) {
    let (components, changes) = (inputs.components(), inputs.changes);
    let ready = components.iter().filter(|(_, component)| component.ready).count();
    let (phase, reason, message) = if inputs.spec.paused && inputs.resource_refs.is_empty() {
        let message = "spec.paused is set: no object is created".to_owned();
        (Phase::Pending, Reason::Paused, message)
    } else if let Some(Failure { reason, message }) = inputs.over_quota() {
        let none = inputs.resource_refs.is_empty();
        (if none { Phase::Pending } else { Phase::Applying }, reason, message)
    } else if changes.blocked.contains(&Blocked::Deletion) {
        let message = "waiting for the deletion of former objects".to_owned();
        (Phase::Applying, Reason::WaitingForDeletion, message)
    } else if !changes.blocked.is_empty() {
        let message = format!("{} objects wait for the data grid", changes.blocked.len());
        (Phase::Applying, Reason::WaitingForDataGrid, message)
    } else {
        let message = format!("{ready} of {} components are ready", components.len());
        (Phase::Progressing, Reason::Progressing, message)
    };
    let missing = match ready == components.len() {
        true if inputs.spec.paused => "a change waits until spec.paused is cleared",
        true => "a change is being applied",
        false => "not all components are ready",
    };
    // A class that was not Available becomes so when its rollout ends: one write less.
    let serving = components.iter().all(|(_, it)| it.serving);
    let available = serving && old.is_some_and(|old| old.is_true(AVAILABLE));
    status.mark_in_progress(phase, reason, &message, (!available).then_some(missing), inputs.now);
}

fn mark_settled(
    status: &mut ClassRuntimeStatus,
    inputs: &StatusInputs<'_>,
    replaced: Option<Replaced>,
) {
    let now = inputs.now;
    if inputs.is_rolled_back() {
        let why = inputs.rejection.map_or_else(
            || "missed its deadline".to_owned(),
            |rejection| format!("is rejected ({}: {})", rejection.reason, rejection.message),
        );
        let message = format!(
            "generation {} {why}; generation {} runs",
            inputs.generation, inputs.class.identity.generation
        );
        status.mark_rolled_back(&message, now);
    } else {
        status.mark_available(now);
        let kept = status.last_available.take();
        if inputs.spec.rollout.as_ref().is_some_and(|it| it.rollback) {
            // A stored record of this generation stays: its size needn't be checked again.
            let stored = kept
                .filter(|kept| kept.generation == inputs.generation && kept.selection.is_some());
            status.last_available = stored.or_else(|| last_available(inputs));
        }
    }
    let refs: Vec<_> = inputs.changes.draining.iter().map(|child| child.reference()).collect();
    // An object that starts to drain restarts the time of all.
    let known = replaced.filter(|it| refs.iter().all(|one| it.resource_refs.contains(one)));
    status.replaced = (!refs.is_empty()).then(|| Replaced {
        since: known.map_or(Time(now), |replaced| replaced.since),
        resource_refs: refs,
    });
}

/// The record for a rollback; none if it is too large.
fn last_available(inputs: &StatusInputs<'_>) -> Option<LastAvailable> {
    let size = serde_json::to_string(inputs.spec).ok()?.len();
    (size <= MAX_KEPT_SPEC).then(|| LastAvailable {
        generation: inputs.generation,
        spec: inputs.spec.clone(),
        selection: Some(inputs.selection.status(inputs.generation)),
    })
}

/// The time until a change that is immaterial by itself is written nevertheless: a function that
/// has been ready for a while although others aren't, or a phase that has lasted.
pub(super) fn until_reported(
    old: Option<&ClassRuntimeStatus>,
    status: &ClassRuntimeStatus,
    inputs: &StatusInputs<'_>,
) -> Option<Duration> {
    let old = old.filter(|old| {
        old.phase.is_in_progress()
            && status.phase.is_in_progress()
            && old.observed_generation == status.observed_generation
    })?;
    let reported = |key: &str| old.functions.iter().any(|it| it.key == key && it.ready);
    let functions = status
        .functions
        .iter()
        .zip(&inputs.functions)
        .filter(|(it, _)| it.ready && !reported(&it.key))
        .filter_map(|(_, it)| Some(remaining(it.ready_since?, READY_DELAY, inputs.now)));
    let rollout = old.phase == Phase::Applying && status.phase == Phase::Progressing;
    let phase = inputs.last_created.filter(|_| rollout);
    functions.chain(phase.map(|since| remaining(since, PHASE_DELAY, inputs.now))).min()
}

/// The time until the deadline of a rollout.
pub(super) fn time_left(
    status: &ClassRuntimeStatus,
    deadline: Duration,
    now: Timestamp,
) -> Option<Duration> {
    status.progress_since.as_ref().map(|since| remaining(since.0, deadline, now))
}

/// What is left of a span of time.
pub(super) fn remaining(since: Timestamp, span: Duration, now: Timestamp) -> Duration {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span.saturating_sub(passed)
}

/// Conditions that don't depend on the phase.
fn record_remarks(status: &mut ClassRuntimeStatus, inputs: &StatusInputs<'_>) {
    let now = inputs.now;
    if inputs.changes.scaled_by_others.is_empty() {
        status.remove_condition(FOREIGN_AUTOSCALER);
    } else {
        let names = inputs.changes.scaled_by_others.join(", ");
        let message =
            format!("an autoscaler of another owner scales {names}: CRM doesn't set replicas");
        status.set_condition(FOREIGN_AUTOSCALER, true, Reason::ForeignAutoscaler, &message, now);
    }
    let unlimited: Vec<&str> = inputs
        .desired
        .functions
        .iter()
        .filter(|plan| plan.unenforced_concurrency.is_some())
        .map(|plan| plan.key.as_str())
        .collect();
    if unlimited.is_empty() {
        status.remove_condition(CONCURRENCY_LIMITED);
    } else {
        let message = format!(
            "k8s_deployment doesn't enforce max_concurrency, knative does: {}",
            unlimited.join(", ")
        );
        status.set_condition(CONCURRENCY_LIMITED, false, Reason::NotEnforced, &message, now);
    }
}
