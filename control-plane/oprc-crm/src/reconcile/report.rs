//! The status of a class: phase, conditions, references and addresses.

mod components;

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use self::components::{function_statuses, odgm_status};
use super::{
    Input, ObservedClass, data_protection,
    diff::{Blocked, Changes},
    remaining,
    render::Desired,
    rollback::Target,
    shapes::Component,
};
pub use crate::{
    crd::{AVAILABLE, DATA_GRID_STORAGE_PRESSURE, DEGRADED, FOREIGN_AUTOSCALER, PROGRESSING},
    reason::Failure,
};
use crate::{
    crd::{ClassRuntimeStatus, GRID_KEY, LastAvailable, Phase, Replaced, ResourceRef},
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

/// The first reason, and all messages. A quota counts only if nothing else failed.
pub(super) fn join(failures: &[Failure]) -> Option<Failure> {
    let reasons = failures.iter().map(|it| it.reason);
    let reason = reasons.min_by_key(|it| *it == Reason::QuotaExceeded)?;
    let messages: Vec<&str> = failures.iter().map(|it| it.message.as_str()).collect();
    Some(Failure { reason, message: messages.join("; ") })
}

/// Everything that a status follows from.
pub(super) struct Facts<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) target: &'a Target<'a>,
    pub(super) desired: &'a Desired,
    pub(super) changes: Changes,
    pub(super) functions: Vec<Component>,
    pub(super) odgm: Option<Component>,
    /// How many nodes the data grid has.
    pub(super) grid_nodes: Option<i32>,
    /// Objects of the class that exist.
    pub(super) resource_refs: Vec<ResourceRef>,
    /// When the newest of them was created.
    pub(super) last_created: Option<Timestamp>,
}

impl Facts<'_> {
    fn old(&self) -> Option<&ClassRuntimeStatus> {
        self.input.class.status.as_ref()
    }

    /// Functions and the data grid, by the keys of `stable_since`.
    fn components(&self) -> impl Iterator<Item = (&str, &Component)> + Clone {
        let keys = self.desired.functions.iter().map(|plan| plan.key.as_str());
        let grid = self.odgm.iter().map(|component| (GRID_KEY, component));
        keys.zip(&self.functions).chain(grid)
    }

    /// How many components there are, and how many of them are ready.
    fn counts(&self) -> (usize, usize) {
        (self.components().count(), self.components().filter(|(_, it)| it.ready).count())
    }

    fn is_serving(&self) -> bool {
        self.components().all(|(_, component)| component.serving)
    }

    /// The problems of components that aren't ready, with their names.
    fn problems(&self) -> impl Iterator<Item = Failure> {
        let waiting = self.components().filter(|(_, component)| !component.ready);
        waiting.filter_map(|(key, component)| {
            let Failure { reason, message } = component.problem.as_ref()?;
            Some(Failure { reason: *reason, message: format!("{}: {message}", display(key)) })
        })
    }

    /// The failed writes, if all of them wait for a quota.
    fn objects_over_quota(&self) -> Option<Failure> {
        join(self.input.failures).filter(|it| it.reason == Reason::QuotaExceeded)
    }

    /// The latest generation; after a rollback an earlier one is reconciled.
    fn generation(&self) -> i64 {
        self.input.class.generation
    }

    fn reconciled_generation(&self) -> i64 {
        self.target.admitted.class.identity.generation
    }

    fn is_rolled_back(&self) -> bool {
        self.reconciled_generation() != self.generation()
    }
}

/// How a component is called in messages.
fn display(key: &str) -> &str {
    if key == GRID_KEY { "the data grid" } else { key }
}

/// The status of a class's generation before anything is known of it.
pub(super) fn carried(class: &ObservedClass) -> ClassRuntimeStatus {
    let old = class.status.as_ref();
    let mut status = old.map(ClassRuntimeStatus::owned_by_reconciler).unwrap_or_default();
    status.observed_generation = Some(class.generation);
    status
}

pub(super) fn report(facts: &Facts<'_>) -> ClassRuntimeStatus {
    let (target, now) = (facts.target, facts.input.now);
    let mut status = carried(facts.input.class);
    record_facts(&mut status, facts);
    let settled = is_settled(facts);
    let observed = facts.old().and_then(|old| old.observed_generation);
    if settled {
        status.progress_since = None;
    } else if observed != Some(facts.generation()) || status.progress_since.is_none() {
        status.progress_since = Some(Time(now));
    }
    // A rejected generation isn't given up: it is tried again in each reconcile.
    let given_up = facts.is_rolled_back() && target.rejection.is_none();
    status.rolled_back = given_up.then_some(facts.generation());
    // Draining starts over when a replacement isn't ready any more.
    let replaced = status.replaced.take();
    match failure(&status, facts, settled) {
        Some(it) => status.mark_degraded(it.reason, &it.message, facts.is_serving(), now),
        None if settled => mark_settled(&mut status, facts, replaced),
        None => mark_in_progress(&mut status, facts),
    }
    if target.spec.paused {
        let message = "spec.paused is set: no object is changed";
        status.set_condition(PROGRESSING, false, Reason::Paused, message, now);
    }
    if target.rejection.is_some() {
        status.progress_since = None;
    }
    record_remarks(&mut status, facts);
    status
}

/// Records what is known of components, selection and data, whatever the phase.
fn record_facts(status: &mut ClassRuntimeStatus, facts: &Facts<'_>) {
    let (all, ready) = facts.counts();
    status.ready = Some(format!("{ready}/{all}"));
    let selection = &facts.target.admitted.selection;
    status.selection = Some(selection.status(facts.reconciled_generation()));
    status.functions = function_statuses(facts);
    status.odgm = odgm_status(facts);
    status.resource_refs.clone_from(&facts.resource_refs);
    let spec = &facts.target.spec;
    if data_protection::may_lose_data(spec) {
        status.unreadable.clear();
    }
    let plan = facts.target.admitted.class.odgm.as_ref();
    status.kept_collections =
        data_protection::kept_collections(plan, &status.kept_collections, spec);
    status.kept_nodes = data_protection::kept_nodes(
        plan,
        facts.grid_nodes,
        status.kept_nodes,
        &status.kept_collections,
    );
    let before = std::mem::take(&mut status.stable_since);
    let ready = facts.components().filter(|(_, component)| component.ready);
    let since = |key: &str| before.get(key).cloned().unwrap_or(Time(facts.input.now));
    status.stable_since = ready.map(|(key, _)| (key.to_owned(), since(key))).collect();
}

/// Whether everything that is desired exists and is ready.
fn is_settled(facts: &Facts<'_>) -> bool {
    let ready = facts.components().all(|(_, component)| component.ready);
    // While a generation is rejected, the last good one runs under the same observedGeneration:
    // compare the generation of the selection instead.
    let was_settled = facts.old().is_some_and(|old| {
        let selected = old.selection.as_ref().map(|it| it.generation);
        let rolled_back = old.reason.as_deref() == Some(Reason::RolledBack.as_str());
        old.observed_generation == Some(facts.generation())
            && selected == Some(facts.reconciled_generation())
            && (old.phase == Phase::Available || rolled_back)
    });
    // An apply that restores drift doesn't make a class less ready; what it leads to may.
    let unchanged = facts.changes.applies.is_empty() || was_settled;
    let waiting = !facts.changes.blocked.is_empty() || facts.objects_over_quota().is_some();
    ready && unchanged && !waiting
}

/// Why a class is Degraded; the first that applies.
fn failure(status: &ClassRuntimeStatus, facts: &Facts<'_>, settled: bool) -> Option<Failure> {
    // What waits for a quota fails only after the deadline.
    let failed = join(facts.input.failures).filter(|it| it.reason != Reason::QuotaExceeded);
    if failed.is_some() {
        return failed;
    }
    if !facts.changes.conflicts.is_empty() {
        let names = facts.changes.conflicts.join(", ");
        let message = format!("owned by another controller or user: {names}");
        return Some(Failure { reason: Reason::NameConflict, message });
    }
    if settled {
        return None;
    }
    if let Some(rejection) = &facts.target.rejection {
        let message = rejection.message.clone();
        return Some(Failure { reason: rejection.reason.into(), message });
    }
    let overdue = facts.target.is_overdue(status, facts.input.now) && !facts.target.spec.paused;
    let permanent = facts.problems().find(|it| !it.reason.is_transient());
    permanent.or_else(|| overdue.then(|| deadline_exceeded(facts)))
}

fn deadline_exceeded(facts: &Facts<'_>) -> Failure {
    let problem =
        || facts.components().filter(|(_, it)| !it.ready).find_map(|(_, it)| it.problem.clone());
    let (reason, details) = match facts.objects_over_quota().or_else(problem) {
        Some(cause) => (cause.reason, format!(" ({})", cause.message)),
        None => (Reason::ProgressDeadlineExceeded, String::new()),
    };
    let waiting = facts.components().filter(|(_, it)| !it.ready).map(|(key, _)| display(key));
    let waiting = match waiting.collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        names => format!("; not ready: {}", names.join(", ")),
    };
    let seconds = facts.target.deadline.as_secs();
    Failure { reason, message: format!("not Available within {seconds} s{waiting}{details}") }
}

/// Why the rollout of the data grid is held back, if it is.
pub(super) fn waiting_for_nodes(changes: &Changes) -> Option<Failure> {
    let nodes = &changes.waits_for_nodes;
    (!nodes.is_empty()).then(|| Failure {
        reason: Reason::WaitingForGridNodes,
        message: format!(
            "the update waits until {} is ready, so that a majority stays",
            nodes.join(" and ")
        ),
    })
}

fn mark_in_progress(status: &mut ClassRuntimeStatus, facts: &Facts<'_>) {
    let (paused, blocked) = (facts.target.spec.paused, &facts.changes.blocked);
    let none = facts.last_created.is_none();
    let (all, ready) = facts.counts();
    let pods = || facts.problems().find(|it| it.reason == Reason::QuotaExceeded);
    let (phase, reason, message) = if paused && none {
        let message = "spec.paused is set: no object is created".to_owned();
        (Phase::Pending, Reason::Paused, message)
    } else if let Some(quota) = facts.objects_over_quota().or_else(pods) {
        (if none { Phase::Pending } else { Phase::Applying }, quota.reason, quota.message)
    } else if blocked.contains(&Blocked::Deletion) {
        let message = "waiting for the deletion of former objects".to_owned();
        (Phase::Applying, Reason::WaitingForDeletion, message)
    } else if blocked.contains(&Blocked::GridMember) {
        let message = "waiting until the data grid has removed members".to_owned();
        (Phase::Progressing, Reason::WaitingForDataGrid, message)
    } else if let Some(it) = waiting_for_nodes(&facts.changes) {
        let message = format!("{}: {}", display(GRID_KEY), it.message);
        (Phase::Progressing, it.reason, message)
    } else if !blocked.is_empty() {
        let message = format!("{} objects wait for the data grid", blocked.len());
        (Phase::Applying, Reason::WaitingForDataGrid, message)
    } else if facts.odgm.as_ref().is_some_and(|grid| !grid.serving) {
        let message = format!("{ready} of {all} components are ready; the data grid is not");
        (Phase::Progressing, Reason::WaitingForDataGrid, message)
    } else {
        let message = format!("{ready} of {all} components are ready");
        (Phase::Progressing, Reason::Progressing, message)
    };
    let missing = match ready == all {
        true if paused => "a change waits until spec.paused is cleared",
        true => "a change is being applied",
        false => "not all components are ready",
    };
    // A class that was not Available becomes so when its rollout ends: one write less. One that
    // waits for a quota may have to wait for long.
    let lasts = reason == Reason::QuotaExceeded;
    let was_available = facts.old().is_some_and(|old| old.is_true(AVAILABLE));
    let available = facts.is_serving() && (lasts || was_available);
    let missing = (!available).then_some(missing);
    status.mark_in_progress(phase, reason, &message, missing, facts.input.now);
}

fn mark_settled(status: &mut ClassRuntimeStatus, facts: &Facts<'_>, replaced: Option<Replaced>) {
    let now = facts.input.now;
    if facts.is_rolled_back() {
        let (latest, running) = (facts.generation(), facts.reconciled_generation());
        let why = facts.target.rejection.as_ref().map_or_else(
            || "missed its deadline".to_owned(),
            |rejection| format!("is rejected ({}: {})", rejection.reason, rejection.message),
        );
        let message = format!("generation {latest} {why}; generation {running} runs");
        status.mark_degraded(Reason::RolledBack, &message, true, now);
    } else {
        status.mark_available(now);
        let kept = status.last_available.take();
        if facts.target.spec.rollout.as_ref().is_some_and(|it| it.rollback) {
            // A stored record of this generation stays: its size needn't be checked again.
            let stored = kept
                .filter(|kept| kept.generation == facts.generation() && kept.selection.is_some());
            status.last_available = stored.or_else(|| last_available(facts));
        }
    }
    let refs: Vec<_> = facts.changes.draining.iter().map(|child| child.reference()).collect();
    // An object that starts to drain restarts the time of all.
    let known = replaced.filter(|it| refs.iter().all(|one| it.resource_refs.contains(one)));
    status.replaced = (!refs.is_empty()).then(|| Replaced {
        since: known.map_or(Time(now), |replaced| replaced.since),
        resource_refs: refs,
    });
}

/// The record for a rollback; none if it is too large.
fn last_available(facts: &Facts<'_>) -> Option<LastAvailable> {
    let (generation, target) = (facts.generation(), facts.target);
    let size = serde_json::to_string(&target.spec).ok()?.len();
    (size <= MAX_KEPT_SPEC).then(|| LastAvailable {
        generation,
        spec: target.spec.clone().into_owned(),
        selection: Some(target.admitted.selection.status(generation)),
    })
}

/// The time until a change that is immaterial by itself is written nevertheless: a function that
/// has been ready for a while although others aren't, or a phase that has lasted.
pub(super) fn until_reported(status: &ClassRuntimeStatus, facts: &Facts<'_>) -> Option<Duration> {
    let now = facts.input.now;
    let old = facts.old().filter(|old| {
        old.phase.is_in_progress()
            && status.phase.is_in_progress()
            && old.observed_generation == status.observed_generation
    })?;
    let reported = |key: &str| old.functions.iter().any(|it| it.key == key && it.ready);
    let functions = status
        .functions
        .iter()
        .zip(&facts.functions)
        .filter(|(it, _)| it.ready && !reported(&it.key))
        .filter_map(|(_, it)| Some(remaining(it.ready_since?, READY_DELAY, now)));
    let rollout = old.phase == Phase::Applying && status.phase == Phase::Progressing;
    let phase = facts.last_created.filter(|_| rollout);
    functions.chain(phase.map(|since| remaining(since, PHASE_DELAY, now))).min()
}

/// Conditions that don't depend on the phase.
fn record_remarks(status: &mut ClassRuntimeStatus, facts: &Facts<'_>) {
    let now = facts.input.now;
    let scaled = facts.changes.scaled_by_others.join(", ");
    if scaled.is_empty() {
        status.remove_condition(FOREIGN_AUTOSCALER);
    } else {
        let message =
            format!("an autoscaler of another owner scales {scaled}: CRM doesn't set replicas");
        status.set_condition(FOREIGN_AUTOSCALER, true, Reason::ForeignAutoscaler, &message, now);
    }
    let identity = &facts.target.admitted.class.identity;
    match facts.input.view.grid(&identity.namespace, &identity.name) {
        _ if !facts.desired.odgm.as_ref().is_some_and(|it| it.is_replicated) => {
            status.remove_condition(DATA_GRID_STORAGE_PRESSURE);
        }
        // The condition stays as it is.
        None => {}
        Some(grid) if grid.low_on_space => {
            let message = "most of the quota of the data grid is used, and writes fail when it is full: \
                           delete objects, or restore a backup into a class with fewer";
            let reason = Reason::DataGridStorageLow;
            status.set_condition(DATA_GRID_STORAGE_PRESSURE, true, reason, message, now);
        }
        Some(_) => status.remove_condition(DATA_GRID_STORAGE_PRESSURE),
    }
}
