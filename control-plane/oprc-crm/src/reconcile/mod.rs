//! One reconcile of a class, without IO: from what is observed to a list of actions.
//!
//! [`observe`] → [`admission`] (validate and select, for the specification that [`rollback`]
//! chooses) → [`render`] → [`diff`] → [`report`]. The controller applies the actions.

pub mod admission;
pub mod container_resources;
pub mod data_protection;
pub mod diff;
mod drain;
pub mod events;
mod finalize;
mod grid_rollout;
pub mod managed_fields;
mod manifest;
pub mod observe;
mod pod_creation_failure;
mod pod_problem;
mod readiness;
pub mod render;
pub mod report;
pub mod revision_scale;
mod rollback;
pub mod scaling;
mod shapes;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use oprc_unit::{
    Identity, Platform, Rejection, Selection, SelectionStatus, UnitSpec, Violation, names,
};

pub use self::events::EventRecord;
use self::{
    diff::Apply,
    observe::{Child, ClusterView},
    readiness::Readiness,
    render::Desired,
    report::Facts,
    revision_scale::RevisionScale,
    rollback::Target,
};
use crate::{
    crd::{ClassRuntimeStatus, Recommendation},
    kinds::SECRET,
    reason::Failure,
};

/// Keeps a class until all of its objects are deleted.
pub const FINALIZER: &str = "oaas.io/class-runtime";
/// Annotation: the correlation id of the last Deploy call.
pub const CORRELATION: &str = "oaas.io/correlation-id";
/// Annotation: overrides the enforcement mode of the class.
pub const ENFORCEMENT: &str = "oaas.io/enforcement";

/// A ClassRuntime as it was read. Its specification may be unreadable.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedClass {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    /// The deletion timestamp.
    pub deleting: Option<Timestamp>,
    pub created: Option<Timestamp>,
    pub finalizers: Vec<String>,
    pub labels: std::collections::BTreeMap<String, String>,
    /// The annotation with the deployment id.
    pub deployment_id: Option<String>,
    pub correlation_id: Option<String>,
    /// The annotation [`ENFORCEMENT`].
    pub enforcement: Option<String>,
    /// The violation says why it can't be read.
    pub spec: Result<UnitSpec, Violation>,
    pub status: Option<ClassRuntimeStatus>,
}

impl ObservedClass {
    /// The selection of a generation. It keeps its profile and template, whatever CRM's
    /// configuration is now.
    pub fn selection_of(&self, generation: i64) -> Option<&SelectionStatus> {
        let before = self.status.as_ref().and_then(|status| status.selection.as_ref());
        before.filter(|before| before.generation == generation)
    }

    /// The id that it was deployed under by a specification, or its name.
    pub fn deployment_id_in<'a>(&'a self, spec: Option<&'a UnitSpec>) -> &'a str {
        let unit = spec.and_then(|spec| spec.deployment_unit.as_ref());
        unit.map(|unit| &unit.id).or(self.deployment_id.as_ref()).unwrap_or(&self.name)
    }

    fn identity(&self, spec: &UnitSpec, generation: i64) -> Identity {
        Identity {
            name: self.name.clone(),
            base: names::base(&self.name),
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            generation,
            deployment_id: self.deployment_id_in(Some(spec)).to_owned(),
            environment: spec.target_environment.clone(),
        }
    }
}

/// One step towards the desired state.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    AddFinalizer,
    RemoveFinalizer,
    Apply(Box<Apply>),
    /// Makes keys and writes them to a Secret.
    IssueCertificate(Box<Apply>),
    Delete(Arc<Child>),
    ScaleRevision(RevisionScale),
    Status(Box<ClassRuntimeStatus>),
    Event(EventRecord),
}

impl Action {
    /// Whether it is performed although an earlier action failed. Objects don't depend on each
    /// other here, because an object that has to wait isn't planned yet; the status depends on all.
    pub fn is_independent(&self) -> bool {
        matches!(self, Self::Apply(_) | Self::IssueCertificate(_) | Self::Delete(_))
    }
}

/// The result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// To be performed in this order.
    pub actions: Vec<Action>,
    /// When to reconcile again although nothing has changed.
    pub requeue_after: Option<Duration>,
    /// The Service, host and port, of a data grid whose reports later decisions depend on.
    pub followed_grid: Option<String>,
}

/// Everything that a decision follows from.
pub struct Input<'a> {
    pub class: &'a ObservedClass,
    pub platform: &'a Platform,
    pub view: &'a dyn ClusterView,
    pub now: Timestamp,
    /// Writes of this reconcile that failed and are to be reported.
    pub failures: &'a [Failure],
}

/// Plans what has to be done for a class.
pub fn plan_actions(input: &Input<'_>) -> Decision {
    let class = input.class;
    if class.deleting.is_some() {
        return finalize::plan_deletion(input);
    }
    let target = match rollback::target(input) {
        Ok(target) => target,
        Err(rejection) => return reject(input, &rejection),
    };
    let selection = &target.admitted.selection;
    let applied = enforced(class);
    let desired = render::render(&target.admitted.class, selection, input.platform, applied);
    let facts = gather_facts(input, &target, &desired);
    let mut status = report::report(&facts);
    rollback::start_if_overdue(&mut status, &target, input);
    let mut actions = add_finalizer(class);
    if !target.latest.paused && input.failures.is_empty() {
        plan_changes(&mut actions, &facts, &status);
    }
    let unreported = report::until_reported(&status, &facts);
    let requeue_after = requeue_after(&status, &facts, unreported);
    let due = unreported.is_some_and(|it| it.is_zero());
    write_status(&mut actions, input, status, Some(selection), due);
    let grid = desired.odgm.as_ref().filter(|it| it.is_replicated);
    Decision { actions, requeue_after, followed_grid: grid.map(|it| it.service.clone()) }
}

/// What enforcement applies to a class.
fn enforced(class: &ObservedClass) -> &[Recommendation] {
    class.status.as_ref().map_or(&[], |status| &status.last_applied_recommendations)
}

/// The objects of a rejected class stay as they are.
fn reject(input: &Input<'_>, rejection: &Rejection) -> Decision {
    let mut status = report::carried(input.class);
    // The deadline starts when the specification is admitted.
    status.progress_since = None;
    let serving = Readiness::new(input.class, input.view).refresh(&mut status);
    status.mark_degraded(rejection.reason.into(), &rejection.message, serving, input.now);
    let mut actions = add_finalizer(input.class);
    write_status(&mut actions, input, status, None, false);
    Decision { actions, ..Decision::default() }
}

fn add_finalizer(class: &ObservedClass) -> Vec<Action> {
    if finalize::has_finalizer(class) { Vec::new() } else { vec![Action::AddFinalizer] }
}

/// Compares the desired with the observed state.
fn gather_facts<'a>(
    input: &'a Input<'a>,
    target: &'a Target<'a>,
    desired: &'a Desired,
) -> Facts<'a> {
    let (class, identity) = (input.class, &target.admitted.class.identity);
    let readiness = Readiness::new(class, input.view);
    // After a rollback every Job has completed: the class was Available.
    let has_completed = |key: &str| {
        let mut functions = class.status.iter().flat_map(|old| &old.functions);
        let generation = Some(identity.generation);
        target.rolled_back || functions.any(|it| it.key == key && it.completed == generation)
    };
    let completed = desired.functions.iter().filter(|plan| has_completed(&plan.key));
    let completed: Vec<&str> = completed.map(|plan| plan.workload.as_str()).collect();
    let mut odgm = desired.odgm.as_ref().map(|grid| readiness.grid(grid));
    let grid_ready = odgm.as_ref().is_none_or(|grid| grid.serving);
    let changes = diff::diff(identity, desired, input.view, grid_ready, &completed, input.now);
    if let Some(grid) = odgm.as_mut().filter(|it| !it.ready && it.problem.is_none()) {
        grid.problem = report::waiting_for_nodes(&changes);
    }
    let functions = desired.functions.iter().map(|plan| {
        let scaled_by_others = changes.scaled_by_others.contains(&plan.workload);
        readiness.function(plan, scaled_by_others, completed.contains(&plan.workload.as_str()))
    });
    let grid = desired.odgm.as_ref().and_then(|grid| readiness.own(&grid.kind, &grid.workload));
    let existing = desired.objects.iter().filter_map(|it| readiness.own(&it.kind, &it.name));
    Facts {
        functions: functions.collect(),
        resource_refs: existing.map(|child| child.reference()).collect(),
        last_created: readiness.last_created(),
        grid_nodes: grid.and_then(|it| it.replicas()),
        input,
        target,
        desired,
        changes,
        odgm,
    }
}

fn plan_changes(actions: &mut Vec<Action>, facts: &Facts<'_>, status: &ClassRuntimeStatus) {
    let changes = &facts.changes;
    // Deletions come first: a quota may have no room for both.
    actions.extend(changes.deletes.iter().cloned().map(Action::Delete));
    actions.extend(changes.revision_scales.iter().cloned().map(Action::ScaleRevision));
    actions.extend(changes.applies.iter().cloned().map(Box::new).map(|apply| {
        let is_certificate = apply.desired.kind == SECRET;
        if is_certificate { Action::IssueCertificate(apply) } else { Action::Apply(apply) }
    }));
    if drain::time_left(status, facts).is_some_and(|left| left.is_zero()) {
        actions.extend(changes.draining.iter().cloned().map(Action::Delete));
    }
    // Blocked objects follow later: one Event names all.
    if !changes.applies.is_empty() && changes.blocked.is_empty() {
        actions.push(Action::Event(events::applied(&changes.applies)));
    }
}

/// A setting of the class in seconds, or the platform's.
fn platform_or(seconds: Option<i32>, platform: Duration) -> Duration {
    let own = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    own.map_or(platform, Duration::from_secs)
}

/// What is left of a span of time.
fn remaining(since: Timestamp, span: Duration, now: Timestamp) -> Duration {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span.saturating_sub(passed)
}

fn requeue_after(
    status: &ClassRuntimeStatus,
    facts: &Facts<'_>,
    unreported: Option<Duration>,
) -> Option<Duration> {
    let may_roll_back = status.last_available.is_some() && status.rolled_back.is_none();
    let has_deadline = status.phase.is_in_progress() || may_roll_back;
    let deadline = facts.target.time_left(status, facts.input.now).filter(|_| has_deadline);
    let renewal = facts.changes.renew_after.map(|at| at.duration_since(facts.input.now));
    let renewal = renewal.and_then(|it| Duration::try_from(it).ok());
    let all = [deadline, drain::time_left(status, facts), unreported, renewal];
    all.into_iter().flatten().filter(|left| !left.is_zero()).min()
}

/// Writes the status if it is due, or if it differs from the stored one.
fn write_status(
    actions: &mut Vec<Action>,
    input: &Input<'_>,
    mut status: ClassRuntimeStatus,
    selection: Option<&Selection>,
    due: bool,
) {
    let old = input.class.status.as_ref();
    if !due && !status.differs_materially_from(old) {
        return;
    }
    let applied = actions
        .iter()
        .any(|action| matches!(action, Action::Apply(_) | Action::IssueCertificate(_)));
    let events = events::of_status(old, &status, selection, applied);
    status.last_updated = Some(Time(input.now));
    actions.push(Action::Status(Box::new(status)));
    actions.extend(events.into_iter().map(Action::Event));
}
