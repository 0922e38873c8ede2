//! How the components of a class are: each function, and the data grid.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use oprc_unit::{Identity, Shape, names};

use super::{
    ObservedClass,
    observe::{Child, Sight, State, Trouble},
    render::{FunctionPlan, ODGM_COMPONENT, OdgmWanted},
};
use crate::{
    crd::ClassRuntimeStatus,
    kinds::{DEPLOYMENT, JOB, KNATIVE_SERVICE, SERVICE, STATEFUL_SET},
};

/// One component of a class, as it is seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Component {
    pub(super) ready: bool,
    /// Since when, as far as the object itself says.
    pub(super) ready_since: Option<Timestamp>,
    pub(super) trouble: Option<Trouble>,
    pub(super) url: Option<String>,
    pub(super) public_url: Option<String>,
    pub(super) completed: bool,
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
    let mut component = Component {
        url: plan.url.clone(),
        ready_since: child.as_ref().and_then(|child| child.ready_since),
        ..Component::default()
    };
    match child.as_deref().map(|child| (child, &child.state)) {
        Some((child, State::Workload(workload))) => {
            let address = sight.named(&SERVICE, namespace, &plan.workload).filter(ours);
            let varies = plan.max > plan.min || scaled_by_others;
            // Others may scale to less than the class asks for, down to nothing.
            let min = if scaled_by_others { plan.min.min(workload.replicas) } else { plan.min };
            let reached = address.is_some_and(|address| !address.deleting);
            component.ready = reached && is_ready(child, min, varies);
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
        Some((child, State::Job(job))) => {
            component.ready = job.complete;
            component.completed = job.complete;
            let unmade = || sight.unmade(&child.uid).as_deref().map(creation_trouble);
            component.trouble = job
                .failed
                .clone()
                .map(|message| Trouble { reason: "JobFailed", message, soft: false })
                .or_else(unmade);
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
    let child = odgm_workload(identity, wanted, sight);
    let mut component = Component::default();
    if let Some(child) = &child {
        component.ready = is_ready(child, wanted.replicas, false);
        if let State::Workload(workload) = &child.state {
            let failure = workload.failure.clone().or_else(|| sight.unmade(&child.uid));
            component.trouble = failure.as_deref().map(creation_trouble);
        }
    }
    if !component.ready {
        let troubles = sight.troubles(&identity.namespace, &identity.base);
        let of_pods = troubles.into_iter().filter(|it| it.function.is_none()).map(|it| it.trouble);
        let claims = if wanted.kind == STATEFUL_SET {
            claims(sight, &identity.namespace, &identity.base)
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

/// How what runs is, where nothing can be told of how it is to be: a class that is refused leaves
/// everything in place, and that may fail and recover meanwhile.
pub(super) fn look_at_what_runs(
    status: &mut ClassRuntimeStatus,
    class: &ObservedClass,
    sight: &dyn Sight,
) {
    let children = sight.owned(&class.namespace, &class.uid);
    let answers = |child: &Child| is_ready(child, 1, true);
    for function in status.functions.iter_mut().filter(|it| it.runs_as.is_some()) {
        // A run that has completed has.
        if function.runs_as.as_deref() == Some(Shape::Job.as_str()) {
            continue;
        }
        let label = names::label(&function.key);
        let own: Vec<&Child> = children
            .iter()
            .map(Arc::as_ref)
            .filter(|it| it.function.as_deref() == Some(&label) && it.template == function.runs_as)
            .collect();
        let knative = own.iter().find_map(|child| match &child.state {
            State::Knative(knative) if !child.deleting => Some(knative),
            _ => None,
        });
        if let Some(knative) = knative {
            function.ready = knative.current && knative.ready == Some(true);
            function.url = knative.address.clone().or_else(|| function.url.take());
        } else {
            let reached = own.iter().any(|child| child.kind == SERVICE && !child.deleting);
            function.ready = reached && own.iter().any(|child| answers(child));
        }
        if function.ready {
            (function.reason, function.message) = (None, None);
        }
    }
    if let Some(odgm) = &mut status.odgm {
        let grid = |child: &&Arc<Child>| child.template.as_deref() == Some(ODGM_COMPONENT);
        odgm.ready = children.iter().filter(grid).any(|it| is_ready(it, odgm.replicas, false));
        if odgm.ready {
            (odgm.reason, odgm.message) = (None, None);
        }
    }
    let all: Vec<(&str, bool)> = status
        .functions
        .iter()
        .filter(|it| it.runs_as.is_some())
        .map(|it| (it.key.as_str(), it.ready))
        .chain(status.odgm.iter().map(|it| ("odgm", it.ready)))
        .collect();
    let ready = all.iter().filter(|(_, ready)| *ready).count();
    status.ready = status.ready.take().map(|_| format!("{ready}/{}", all.len()));
    status.stable_since.retain(|name, _| all.contains(&(name.as_str(), true)));
}

/// Whether so many nodes of the data grid answer that functions can be begun.
pub(super) fn odgm_answers(identity: &Identity, wanted: &OdgmWanted, sight: &dyn Sight) -> bool {
    odgm_workload(identity, wanted, sight).is_some_and(|child| {
        matches!(&child.state, State::Workload(workload) if workload.available >= wanted.needed)
    })
}

fn odgm_workload(
    identity: &Identity,
    wanted: &OdgmWanted,
    sight: &dyn Sight,
) -> Option<Arc<Child>> {
    let child = sight.named(&wanted.kind, &identity.namespace, &wanted.workload)?;
    (child.owner.as_deref() == Some(&identity.uid)).then_some(child)
}

/// Volume claims of a class's data grid. A label alone, which anybody can set, makes none of them:
/// they may be deleted with the class.
pub(super) fn claims(sight: &dyn Sight, namespace: &str, base: &str) -> Vec<Arc<Child>> {
    let mut all = sight.claims(namespace, base);
    all.retain(|claim| {
        claim.template.as_deref() == Some(ODGM_COMPONENT) && names::is_odgm_claim(base, &claim.name)
    });
    all
}

/// Whether a workload is as it is to be, all of it.
fn is_ready(child: &Child, min: i32, varies: bool) -> bool {
    let State::Workload(workload) = &child.state else { return false };
    if child.deleting || !workload.current {
        return false;
    }
    if varies {
        return workload.rolled_out && workload.available >= min;
    }
    workload.replicas >= min
        && workload.updated >= workload.replicas
        && workload.available >= workload.replicas
        && workload.total <= workload.updated
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
