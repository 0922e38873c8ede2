//! The status of functions and of the data grid.

use oprc_unit::truncate_message;

use super::{
    super::{
        data_protection::collection_status,
        manifest::FunctionPlan,
        shapes::{self, Component, WorkloadShape},
    },
    StatusInputs,
};
use crate::{
    crd::{ClassRuntimeStatus, FunctionStatus, OdgmStatus},
    reason::Reason,
};

pub(super) fn function_statuses(
    old: Option<&ClassRuntimeStatus>,
    inputs: &StatusInputs<'_>,
) -> Vec<FunctionStatus> {
    let before = |key: &str| old.and_then(|old| old.functions.iter().find(|it| it.key == key));
    let running = inputs.desired.functions.iter().zip(&inputs.functions);
    let running = running.map(|(plan, component)| {
        let (runs_as, url, public_url) = addresses(plan, component, before(&plan.key), inputs);
        FunctionStatus {
            key: plan.key.clone(),
            runs_as,
            ready: component.ready,
            url,
            public_url,
            completed: component.completed.then_some(inputs.class.identity.generation),
            reason: component.problem.as_ref().map(|it| it.reason.as_str().to_owned()),
            message: component.problem.as_ref().map(|it| truncate_message(&it.message)),
        }
    });
    let passive = inputs.class.passive.iter().map(|passive| FunctionStatus {
        key: passive.key.clone(),
        reason: Some(Reason::from(passive.reason).as_str().to_owned()),
        ..FunctionStatus::default()
    });
    running.chain(passive).collect()
}

/// The shape that serves a function, its URL and its public URL. While the shape changes, the former
/// one serves until the new one is ready.
fn addresses(
    plan: &FunctionPlan,
    component: &Component,
    before: Option<&FunctionStatus>,
    inputs: &StatusInputs<'_>,
) -> (Option<String>, Option<String>, Option<String>) {
    let shape = plan.shape.as_str();
    let same_shape = before.is_some_and(|it| it.runs_as.as_deref() == Some(shape));
    if component.ready || same_shape {
        let known = component.ready || before.is_some_and(|it| it.url.is_some());
        let url = component.url.clone().filter(|_| known);
        return (Some(shape.to_owned()), url, component.public_url.clone().filter(|_| known));
    }
    let still_serves = |before: &&FunctionStatus| {
        inputs.changes.draining.iter().any(|child| {
            let former = shapes::labelled(child.template.as_deref());
            child.function.as_deref() == Some(&plan.label)
                && child.template == before.runs_as
                && former.and_then(WorkloadShape::address_kind).as_ref() == Some(&child.kind)
        })
    };
    match before.filter(still_serves) {
        Some(before) => (before.runs_as.clone(), before.url.clone(), before.public_url.clone()),
        None => (Some(shape.to_owned()), None, None),
    }
}

pub(super) fn odgm_status(inputs: &StatusInputs<'_>) -> Option<OdgmStatus> {
    let (grid, component) = (inputs.desired.odgm.as_ref()?, inputs.odgm.as_ref()?);
    let collections = inputs.class.odgm.iter().flat_map(|plan| &plan.collections);
    Some(OdgmStatus {
        ready: component.ready,
        service: grid.service.clone(),
        replicas: grid.replicas,
        collections: collections.map(collection_status).collect(),
        reason: component.problem.as_ref().map(|it| it.reason.as_str().to_owned()),
        message: component.problem.as_ref().map(|it| truncate_message(&it.message)),
    })
}
