//! One reconcile: from what is seen of a class to a numbered list of actions, without any IO.
//!
//! `validate` (in [`crate::class`]) → [`select`] → [`render`] → [`diff`] → [`report`]; [`observe`]
//! says what is seen. Performing the actions is somebody else's part.

mod components;
pub mod data_protection;
pub mod diff;
pub mod fields;
mod going;
pub mod observe;
mod pods;
pub mod render;
pub mod report;
#[cfg(test)]
mod tests;
mod unmade;

use std::{borrow::Cow, sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use oprc_unit::{
    Identity, Platform, Profile, Rejection, SelectionStatus, UnitSpec, ValidClass, Violation,
    names, validate,
};

use self::{
    diff::{Changes, Write},
    observe::{Child, Sight},
    report::{Failure, Seen},
};
use crate::{
    crd::{ClassRuntimeStatus, Phase},
    reconcile::data_protection::{guard_data, with_nodes_kept},
};

/// Keeps a class until everything that was made for it is gone.
pub const FINALIZER: &str = "oaas.io/class-runtime";
/// The annotation with the id of the call that asked for a class last.
pub const CORRELATION: &str = "oaas.io/correlation-id";

/// A ClassRuntime as it is seen. Its specification may be one that we can't read.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedClass {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its identity.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// How often its specification has changed.
    pub generation: i64,
    /// Since when it is going.
    pub deleting: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// What must happen before it is gone.
    pub finalizers: Vec<String>,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
    /// The id it was deployed under.
    pub deployment_id: Option<String>,
    /// What asked for it last.
    pub correlation_id: Option<String>,
    /// What it is to be, or why that can't be read.
    pub spec: Result<UnitSpec, Violation>,
    /// What became of it.
    pub status: Option<ClassRuntimeStatus>,
}

impl ObservedClass {
    fn selection_of(&self, generation: i64) -> Option<&SelectionStatus> {
        let before = self.status.as_ref().and_then(|status| status.selection.as_ref());
        before.filter(|before| before.generation == generation)
    }

    /// The profile that a generation was given. It stays, whatever CRM is configured to give now.
    pub fn profile_of(&self, generation: i64) -> Option<Profile> {
        self.selection_of(generation).and_then(profile)
    }

    fn identity(&self, spec: &UnitSpec, generation: i64) -> Identity {
        let unit = spec.deployment_unit.as_ref().map(|unit| unit.id.clone());
        Identity {
            name: self.name.clone(),
            base: names::base(&self.name),
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            generation,
            deployment_id: unit
                .or_else(|| self.deployment_id.clone())
                .unwrap_or_else(|| self.name.clone()),
            environment: spec.target_environment.clone(),
        }
    }
}

fn profile(selection: &SelectionStatus) -> Option<Profile> {
    Profile::parse(&selection.profile)
}

/// Something that is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Keep the class until everything is gone.
    AddFinalizer,
    /// Let the class go.
    RemoveFinalizer,
    /// Write an object.
    Apply(Box<Write>),
    /// Delete an object.
    Delete(Arc<Child>),
    /// Write the status.
    Status(Box<ClassRuntimeStatus>),
    /// Tell of something.
    Event(Notice),
}

impl Action {
    /// Whether it is done although another was refused: what has to wait for something else isn't
    /// planned before that is there, so objects don't depend on each other here. What tells of
    /// them all does.
    pub fn stands_alone(&self) -> bool {
        matches!(self, Self::Apply(_) | Self::Delete(_))
    }
}

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is bad news.
    pub warning: bool,
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub note: String,
}

/// What is to be done about a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What is to be done, in order.
    pub actions: Vec<Action>,
    /// When to look again although nothing has changed.
    pub requeue_after: Option<Duration>,
    /// The phase that the class is in.
    pub phase: Phase,
    /// The template that it has.
    pub template: Option<oprc_unit::Template>,
}

/// What a decision follows from.
pub struct Input<'a> {
    /// The class.
    pub class: &'a ObservedClass,
    /// What it meets.
    pub environment: &'a Platform,
    /// What can be seen.
    pub sight: &'a dyn Sight,
    /// The time.
    pub now: Timestamp,
    /// What has just failed, where it has.
    pub failures: &'a [Failure],
}

/// Decides what is to be done about a class.
pub fn decide(input: &Input<'_>) -> Decision {
    let class = input.class;
    if class.deleting.is_some() {
        return going::decide(input);
    }
    let old = class.status.as_ref();
    let mut actions = Vec::new();
    if !class.finalizers.iter().any(|it| it == FINALIZER) {
        actions.push(Action::AddFinalizer);
    }
    let refuse = |mut actions: Vec<Action>, rejection: &Rejection| {
        let mut status = report::refused(old, class.generation, rejection, input.now);
        components::look_at_what_runs(&mut status, class, input.sight);
        let phase = status.phase;
        if status.worth_writing_over(old) {
            tell(&mut actions, input, status, None);
        }
        Decision { actions, phase, ..Decision::default() }
    };
    let spec = match &class.spec {
        Ok(spec) => spec,
        Err(violation) => {
            return refuse(actions, &Rejection::invalid(vec![violation.clone()]));
        }
    };
    let deadline = deadline(spec, input.environment);
    // A generation that missed its deadline is taken back for as long as it is the latest, and as
    // what it goes back to can be.
    let back = old
        .filter(|old| old.rolled_back == Some(class.generation))
        .and_then(|old| former(input, old)?.ok());
    let before = class.selection_of(class.generation);
    let (settled, rolled_back, rejection) = match back {
        Some(back) => (back, true, None),
        None => match settle(input, Cow::Borrowed(spec), class.generation, before) {
            Ok(settled) => (settled, false, None),
            Err(mut rejection) => match instead(input, spec, &mut rejection) {
                Some(back) => (back, true, Some(rejection)),
                None => return refuse(actions, &rejection),
            },
        },
    };
    let Settled { spec: effective, class: valid, selection } = settled;
    let generation = valid.identity.generation;
    let desired = render::render(&valid, &selection, input.environment);
    let identity = &valid.identity;
    let completed = |key: &str| {
        // What was Available has run: that is what it goes back to.
        rolled_back
            || old.is_some_and(|old| {
                old.functions.iter().any(|it| it.key == key && it.completed == Some(generation))
            })
    };
    let completed_job = |workload: &str| {
        desired.functions.iter().any(|plan| plan.workload == workload && completed(&plan.key))
    };
    let answers = desired
        .odgm
        .as_ref()
        .is_none_or(|odgm| components::odgm_answers(identity, odgm, input.sight));
    let changes = diff::diff(identity, &desired, input.sight, answers, &completed_job);
    let functions: Vec<_> = desired
        .functions
        .iter()
        .map(|plan| {
            let others = changes.scaled_by_others.contains(&plan.workload);
            components::function(identity, plan, input.sight, others, completed(&plan.key))
        })
        .collect();
    let seen = Seen {
        class: &valid,
        spec: &effective,
        generation: class.generation,
        selection: &selection,
        desired: &desired,
        changes: &changes,
        functions,
        odgm: desired.odgm.as_ref().map(|odgm| components::odgm(identity, odgm, input.sight)),
        rejection: rejection.as_ref(),
        failures: input.failures,
        deadline,
        now: input.now,
    };
    let mut status = report::report(old, &seen);
    if spec.rollout.as_ref().is_some_and(|it| it.rollback)
        && status.rolled_back.is_none()
        && rejection.is_none()
        && !spec.paused
        && report::time_left(&status, deadline, input.now).is_some_and(|left| left.is_zero())
    {
        take_back(&mut status, input);
    }
    status.resource_refs = references(&desired, input.sight, identity);
    let until_told = report::until_told(old, &status, &seen.functions, input.now);
    let requeue_after = again(&status, &changes, spec, input, deadline)
        .into_iter()
        .chain(until_told.filter(|left| !left.is_zero()))
        .min();
    if !spec.paused && input.failures.is_empty() {
        plan_writes(&mut actions, &changes, &status, spec, input);
    }
    let phase = status.phase;
    if until_told.is_some_and(|left| left.is_zero()) || status.worth_writing_over(old) {
        tell(&mut actions, input, status, Some(&selection));
    }
    Decision { actions, requeue_after, phase, template: Some(selection.template) }
}

/// A specification that can be brought about.
struct Settled<'a> {
    spec: Cow<'a, UnitSpec>,
    class: ValidClass,
    selection: oprc_unit::Selection,
}

/// Settles everything that follows from a specification.
fn settle<'a>(
    input: &Input<'_>,
    spec: Cow<'a, UnitSpec>,
    generation: i64,
    before: Option<&SelectionStatus>,
) -> Result<Settled<'a>, Rejection> {
    let old = input.class.status.as_ref();
    let profile = before.and_then(profile).unwrap_or(input.environment.profile);
    known_by_its_id(&input.class.name, &spec)?;
    let identity = input.class.identity(&spec, generation);
    let class = validate(profile, identity, &spec, input.environment)?;
    guard_data(class.odgm.as_ref(), old, &spec)?;
    let selection = oprc_unit::select(&class, input.environment, before)?;
    Ok(Settled { spec, class, selection })
}

/// Whoever asks for a class by its id must find it, and no other.
fn known_by_its_id(name: &str, spec: &UnitSpec) -> Result<(), Rejection> {
    let id = spec.deployment_unit.as_ref().map(|unit| unit.id.as_str());
    match id.filter(|id| *id != name && names::class_runtime(id) != name) {
        None => Ok(()),
        Some(id) => {
            let field = "deployment_unit.id".to_owned();
            let message = format!("{id:?} is no id of a ClassRuntime that is named {name:?}");
            Err(Rejection::invalid(vec![Violation { field, message }]))
        }
    }
}

/// What was Available last, where something was, as it would be brought about now.
fn former(
    input: &Input<'_>,
    old: &ClassRuntimeStatus,
) -> Option<Result<Settled<'static>, Rejection>> {
    let last = old.last_available.as_ref()?;
    let spec = serde_json::from_value::<UnitSpec>(last.spec.0.clone());
    Some(match spec {
        Ok(mut spec) => {
            with_nodes_kept(&mut spec, old);
            // What it was given then, it is given again: the selection that is told by now may be
            // that of what failed.
            let told = || input.class.selection_of(last.generation);
            let before = last.selection.as_ref().or_else(told);
            settle(input, Cow::Owned(spec), last.generation, before)
        }
        Err(error) => {
            let field = "status.last_available.spec".to_owned();
            Err(Rejection::invalid(vec![Violation { field, message: error.to_string() }]))
        }
    })
}

/// What runs in place of a specification that is refused, where the class wants to go back. It is
/// asked for anew each time: what was refused is tried as soon as it can be.
fn instead(
    input: &Input<'_>,
    spec: &UnitSpec,
    rejection: &mut Rejection,
) -> Option<Settled<'static>> {
    let old = input.class.status.as_ref()?;
    let goes_back = spec.rollout.as_ref().is_some_and(|it| it.rollback) && !spec.paused;
    let last = old.last_available.as_ref().map(|last| last.generation);
    let last = last.filter(|last| goes_back && *last < input.class.generation)?;
    match former(input, old)? {
        Ok(back) => Some(back),
        Err(why) => {
            rejection.message.push_str(&cant_go_back(last, &why));
            None
        }
    }
}

fn cant_go_back(generation: i64, rejection: &Rejection) -> String {
    format!("; it can't go back to generation {generation}: {}", rejection.message)
}

/// A generation has missed its deadline: it is taken back, or told why it can't be.
fn take_back(status: &mut ClassRuntimeStatus, input: &Input<'_>) {
    let last = status.last_available.as_ref().map(|last| last.generation);
    let Some(last) = last.filter(|last| *last < input.class.generation) else { return };
    match former(input, status) {
        Some(Ok(_)) => {
            // Told first, done in the next pass: so it survives an end between the two.
            status.rolled_back = Some(input.class.generation);
            status.progress_since = Some(Time(input.now));
        }
        Some(Err(rejection)) => {
            let message = status.message.clone().unwrap_or_default();
            let reason = status.reason.clone().unwrap_or_default();
            status.fail(&reason, &(message + &cant_go_back(last, &rejection)), input.now);
        }
        None => {}
    }
}

fn deadline(spec: &UnitSpec, environment: &Platform) -> Duration {
    let own = spec.rollout.as_ref().and_then(|it| it.progress_deadline_seconds);
    own.and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(environment.progress_deadline, Duration::from_secs)
}

fn drain(spec: &UnitSpec, environment: &Platform) -> Duration {
    let own = spec.rollout.as_ref().and_then(|it| it.drain_seconds);
    own.and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(environment.drain, Duration::from_secs)
}

/// What the status refers to: everything of ours that is there and wanted.
fn references(
    desired: &render::Desired,
    sight: &dyn Sight,
    identity: &Identity,
) -> Vec<crate::crd::ResourceRef> {
    let seen = desired.objects.iter().filter_map(|wanted| {
        let child = sight.named(&wanted.kind, &identity.namespace, &wanted.name)?;
        (child.owner.as_deref() == Some(&identity.uid)).then(|| child.reference())
    });
    seen.collect()
}

/// What was told before it is replaced goes when its time is over.
fn drained(status: &ClassRuntimeStatus, spec: &UnitSpec, input: &Input<'_>) -> Option<Duration> {
    let replaced = status.replaced.as_ref()?;
    // Only what was told in an earlier pass counts: the write may fail.
    let before = input.class.status.as_ref().and_then(|old| old.replaced.as_ref());
    let told = before.is_some_and(|before| before.since == replaced.since);
    let left = report::remaining(replaced.since.0, drain(spec, input.environment), input.now);
    Some(if told { left } else { left.max(Duration::from_millis(1)) })
}

fn plan_writes(
    actions: &mut Vec<Action>,
    changes: &Changes,
    status: &ClassRuntimeStatus,
    spec: &UnitSpec,
    input: &Input<'_>,
) {
    // First what nobody wants: a quota may have no room for the new beside the old.
    actions.extend(changes.deletes.iter().cloned().map(Action::Delete));
    actions.extend(changes.writes.iter().cloned().map(Box::new).map(Action::Apply));
    if drained(status, spec, input).is_some_and(|left| left.is_zero()) {
        actions.extend(changes.replaced.iter().cloned().map(Action::Delete));
    }
    // What waits for the data grid follows: one notice tells of all.
    if !changes.writes.is_empty() && changes.held == 0 {
        let names: Vec<String> = changes
            .writes
            .iter()
            .map(|write| format!("{} {}", write.wanted.kind, write.wanted.name))
            .collect();
        let note = format!("applied {}", names.join(", "));
        actions.push(Action::Event(Notice { warning: false, reason: "Applied".to_owned(), note }));
    }
}

fn again(
    status: &ClassRuntimeStatus,
    changes: &Changes,
    spec: &UnitSpec,
    input: &Input<'_>,
    deadline: Duration,
) -> Option<Duration> {
    let in_progress = status.phase == Phase::Progressing || status.phase == Phase::Applying;
    let rolls_back = status.last_available.is_some() && status.rolled_back.is_none();
    let deadline = (in_progress || rolls_back)
        .then(|| report::time_left(status, deadline, input.now))
        .flatten()
        .filter(|left| !left.is_zero());
    let drained = (!changes.replaced.is_empty()).then(|| drained(status, spec, input)).flatten();
    deadline.into_iter().chain(drained.filter(|left| !left.is_zero())).min()
}

/// Writes the status, and tells of what has changed.
fn tell(
    actions: &mut Vec<Action>,
    input: &Input<'_>,
    mut status: ClassRuntimeStatus,
    selection: Option<&oprc_unit::Selection>,
) {
    let old = input.class.status.as_ref();
    let mut notices = Vec::new();
    let template = |status: Option<&ClassRuntimeStatus>| {
        status.and_then(|it| it.selection.as_ref()).map(|it| it.template.clone())
    };
    if let Some(selection) = selection
        && template(old).as_deref() != Some(selection.template.as_str())
    {
        notices.push(Notice {
            warning: false,
            reason: "TemplateSelected".to_owned(),
            note: format!("{}: {}", selection.template.as_str(), selection.basis),
        });
    }
    let applied = actions.iter().any(|action| matches!(action, Action::Apply(_)));
    let (before, after) = (old.map(|old| old.phase).unwrap_or_default(), status.phase);
    let reasons_differ = old.is_none_or(|old| old.reason != status.reason);
    if after == Phase::Degraded && (before != after || reasons_differ) {
        let reason = status.reason.clone().unwrap_or_default();
        let rolled_back = reason == "RolledBack";
        let note = format!("{reason}: {}", status.message.clone().unwrap_or_default());
        let reason = if rolled_back { reason } else { "Failed".to_owned() };
        notices.push(Notice { warning: true, reason, note });
    } else if before != after && !(applied && after == Phase::Progressing) {
        let note = status.message.clone().unwrap_or_default();
        notices.push(Notice { warning: false, reason: after.as_str().to_owned(), note });
    }
    status.last_updated = Some(Time(input.now));
    actions.push(Action::Status(Box::new(status)));
    actions.extend(notices.into_iter().map(Action::Event));
}
