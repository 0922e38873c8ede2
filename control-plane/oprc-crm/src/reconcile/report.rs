//! What the status of a class says: phase, conditions, references, addresses.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use oprc_unit::{Rejection, Selection, UnitSpec, ValidClass, truncate_message};

use super::{
    components::Component,
    data_protection::{self, collection_status},
    diff::Changes,
    render::{Desired, FunctionPlan},
};
pub use crate::crd::{AVAILABLE, CONCURRENCY_LIMITED, DEGRADED, FOREIGN_AUTOSCALER, PROGRESSING};
use crate::{
    crd::{
        AnyObject, ClassRuntimeStatus, FunctionStatus, LastAvailable, OdgmStatus, Phase, Replaced,
    },
    kinds::{KNATIVE_SERVICE, SERVICE},
};

/// The largest specification that is kept to go back to: the whole status has to fit into an
/// object of the API server, beside the specification itself.
const KEPT: usize = 256 * 1024;
/// How long a function that is ready may wait for others before its address is told.
const UNTOLD: Duration = Duration::from_secs(10);

/// Why a write failed in a way that the class has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In one word.
    pub reason: &'static str,
    /// In one sentence.
    pub message: String,
}

/// All that failed, in one word and in one sentence.
pub(super) fn all(failures: &[Failure]) -> Option<(&'static str, String)> {
    let messages: Vec<&str> = failures.iter().map(|it| it.message.as_str()).collect();
    Some((failures.first()?.reason, messages.join("; ")))
}

/// Everything that a status follows from.
pub(super) struct Seen<'a> {
    pub(super) class: &'a ValidClass,
    pub(super) spec: &'a UnitSpec,
    /// The generation that was asked for; `class` may be an older one that it went back to.
    pub(super) generation: i64,
    pub(super) selection: &'a Selection,
    pub(super) desired: &'a Desired,
    pub(super) changes: &'a Changes,
    pub(super) functions: Vec<Component>,
    pub(super) odgm: Option<Component>,
    /// Why an older one runs, where the one that was asked for can't be brought about.
    pub(super) rejection: Option<&'a Rejection>,
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
    rejection: &Rejection,
    now: Timestamp,
) -> ClassRuntimeStatus {
    let mut status = carried(old, generation);
    // Its time begins when it can be brought about.
    status.progress_since = None;
    status.fail(rejection.reason, &rejection.message, now);
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
    status.go(message, now);
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
    if data_protection::may_lose_data(seen.spec) {
        status.unreadable.clear();
    }
    let plan = seen.class.odgm.as_ref();
    status.kept_collections = data_protection::kept_collections(plan, &before, seen.spec);
    status.kept_nodes =
        data_protection::kept_nodes(plan, status.kept_nodes, &status.kept_collections);
    status.stable_since = components
        .iter()
        .filter(|(_, component)| component.ready)
        .map(|(name, _)| {
            let before = old.and_then(|old| old.stable_since.get(*name)).cloned();
            ((*name).to_owned(), before.unwrap_or(Time(now)))
        })
        .collect::<BTreeMap<_, _>>();

    // One generation may stand for two: itself, and what runs while it is refused.
    let same = old
        .and_then(|old| old.selection.as_ref())
        .is_some_and(|it| it.generation == seen.class.identity.generation);
    let was_available = !fresh && same && old.is_some_and(|old| old.holds(AVAILABLE));
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
    // One that was refused isn't given up: it is tried as soon as it can be.
    status.rolled_back = (rolled_back && seen.rejection.is_none()).then_some(seen.generation);
    if let Some((reason, message)) = all(seen.failures) {
        status.fail(reason, &message, now);
    } else if !seen.changes.foreign.is_empty() {
        let names = seen.changes.foreign.join(", ");
        let message = format!("belongs to somebody else, and is left alone: {names}");
        status.fail("NameTaken", &message, now);
    } else if settled {
        status.progress_since = None;
        settle(&mut status, seen, rolled_back, replaced);
    } else if let Some(rejection) = seen.rejection {
        status.fail(rejection.reason, &rejection.message, now);
    } else if let Some((name, trouble)) = hard {
        let message = format!("{name}: {}", trouble.message);
        status.fail(trouble.reason, &message, now);
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
        status.fail(reason, &message, now);
    } else {
        let message = format!("{ready} of {} components are ready", components.len());
        let missing = match ready == components.len() {
            true if seen.spec.paused => "a change waits until spec.paused is cleared",
            true => "a change is being written",
            false => "not all components are ready",
        };
        status.progress(&message, missing, now);
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
    if seen.rejection.is_some() {
        status.progress_since = None;
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
        let why = seen.rejection.map_or_else(
            || "missed its deadline".to_owned(),
            |rejection| {
                format!("can't be brought about ({}: {})", rejection.reason, rejection.message)
            },
        );
        let message = format!(
            "generation {} {why}; generation {} runs",
            seen.generation, seen.class.identity.generation
        );
        status.run_as_before(&message, now);
    } else {
        status.become_available(now);
        let kept = status.last_available.take();
        if seen.spec.rollout.as_ref().is_some_and(|it| it.rollback) {
            // What was told of this generation stays as it was told: numbers may come back from
            // the API server in another form.
            let told =
                kept.filter(|kept| kept.generation == seen.generation && kept.selection.is_some());
            status.last_available = told.or_else(|| last_available(seen));
        }
    }
    let refs: Vec<_> = seen.changes.replaced.iter().map(|child| child.reference()).collect();
    // With what is replaced only now, time begins anew.
    let known = replaced.filter(|it| refs.iter().all(|one| it.resource_refs.contains(one)));
    status.replaced = (!refs.is_empty()).then(|| Replaced {
        since: known.map_or(Time(now), |replaced| replaced.since),
        resource_refs: refs,
    });
}

/// What to go back to, where it isn't too large to be kept.
fn last_available(seen: &Seen<'_>) -> Option<LastAvailable> {
    let text = serde_json::to_string(seen.spec).ok().filter(|text| text.len() <= KEPT)?;
    let spec = AnyObject(serde_json::from_str(&text).ok()?);
    let selection = Some(seen.selection.status(seen.generation));
    Some(LastAvailable { generation: seen.generation, spec, selection })
}

/// How long until functions that are ready are told of although others aren't; none where there is
/// nothing new to tell.
pub(super) fn until_told(
    old: Option<&ClassRuntimeStatus>,
    status: &ClassRuntimeStatus,
    functions: &[Component],
    now: Timestamp,
) -> Option<Duration> {
    let old = old.filter(|old| {
        old.phase == Phase::Progressing
            && status.phase == Phase::Progressing
            && old.observed_generation == status.observed_generation
    })?;
    let told = |key: &str| old.functions.iter().any(|it| it.key == key && it.ready);
    let untold =
        status.functions.iter().zip(functions).filter(|(it, _)| it.ready && !told(&it.key));
    untold.filter_map(|(_, it)| Some(remaining(it.ready_since?, UNTOLD, now))).min()
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
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span.saturating_sub(passed)
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
            message: component.trouble.as_ref().map(|it| truncate_message(&it.message)),
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
        collections: collections.map(collection_status).collect(),
        reason: component.trouble.as_ref().map(|it| it.reason.to_owned()),
        message: component.trouble.as_ref().map(|it| truncate_message(&it.message)),
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
