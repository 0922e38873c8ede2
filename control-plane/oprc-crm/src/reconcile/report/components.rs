//! The status of functions and of the data grid.

use oprc_unit::truncate_message;

use super::{
    super::{
        data_protection::collection_statuses,
        manifest::FunctionPlan,
        shapes::{self, Component},
    },
    Facts,
};
use crate::{
    crd::{FunctionStatus, OdgmConnectionStatus, OdgmStatus},
    reason::Reason,
};

pub(super) fn function_statuses(facts: &Facts<'_>) -> Vec<FunctionStatus> {
    let (old, class) = (facts.old(), &facts.target.admitted.class);
    let before = |key: &str| old.and_then(|old| old.functions.iter().find(|it| it.key == key));
    let running = facts.desired.functions.iter().zip(&facts.functions);
    let running = running.map(|(plan, component)| {
        let (runs_as, url, public_url) = addresses(plan, component, before(&plan.key), facts);
        let (reason, message) = problem(component);
        FunctionStatus {
            key: plan.key.clone(),
            runs_as,
            ready: component.ready,
            url,
            public_url,
            completed: component.completed.then_some(class.identity.generation),
            reason,
            message,
            odgm_connection_status: connection_status(component, facts.odgm.as_ref()),
        }
    });
    let passive = class.passive.iter().map(|passive| FunctionStatus {
        key: passive.key.clone(),
        reason: Some(Reason::from(passive.reason).to_string()),
        ..FunctionStatus::default()
    });
    running.chain(passive).collect()
}

/// Functions start when enough nodes of the grid serve, and can't work with fewer.
fn connection_status(
    function: &Component,
    grid: Option<&Component>,
) -> Option<OdgmConnectionStatus> {
    if grid?.serving {
        function.ready.then_some(OdgmConnectionStatus::Connected)
    } else {
        Some(OdgmConnectionStatus::WaitingForDataGrid)
    }
}

/// Reason and message of a component's problem.
fn problem(component: &Component) -> (Option<String>, Option<String>) {
    let problem = component.problem.as_ref();
    problem.map(|it| (it.reason.to_string(), truncate_message(&it.message))).unzip()
}

/// The shape that serves a function, its URL and its public URL. While the shape changes, the former
/// one serves until the new one is ready.
fn addresses(
    plan: &FunctionPlan,
    component: &Component,
    before: Option<&FunctionStatus>,
    facts: &Facts<'_>,
) -> (Option<String>, Option<String>, Option<String>) {
    let shape = plan.shape.as_str();
    let same_shape = before.is_some_and(|it| it.runs_as.as_deref() == Some(shape));
    if component.ready || same_shape {
        let known = component.ready || before.is_some_and(|it| it.url.is_some());
        let url = component.url.clone().filter(|_| known);
        return (Some(shape.to_owned()), url, component.public_url.clone().filter(|_| known));
    }
    let still_serves = |before: &&FunctionStatus| {
        facts.changes.draining.iter().any(|child| {
            let former = shapes::labelled(child.template.as_deref());
            child.function.as_deref() == Some(&plan.label)
                && child.template == before.runs_as
                && former.and_then(|it| it.address_kind.as_ref()) == Some(&child.kind)
        })
    };
    match before.filter(still_serves) {
        Some(before) => (before.runs_as.clone(), before.url.clone(), before.public_url.clone()),
        None => (Some(shape.to_owned()), None, None),
    }
}

pub(super) fn odgm_status(facts: &Facts<'_>) -> Option<OdgmStatus> {
    let (grid, component) = (facts.desired.odgm.as_ref()?, facts.odgm.as_ref()?);
    let plan = facts.target.admitted.class.odgm.as_ref()?;
    let (reason, message) = problem(component);
    Some(OdgmStatus {
        ready: component.ready,
        service: grid.service.clone(),
        replicas: grid.replicas,
        collections: collection_statuses(plan).collect(),
        reason,
        message,
    })
}
