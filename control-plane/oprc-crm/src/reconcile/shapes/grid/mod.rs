//! The data grid of a class: a StatefulSet if it has several nodes or persistent collections,
//! otherwise a Deployment, with its Services.

mod document;
mod env;
mod objects;

use k8s_openapi::api::{apps::v1::StatefulSetStatus, core::v1::ResourceRequirements};
use oprc_unit::{OdgmPlan, grid_sizes, names};
use serde_json::Value;

use super::{
    super::{
        container_resources::{SizedContainer, with_applied},
        manifest::{Context, DesiredObject, FunctionPlan, GRID_PORT, budget, pod},
    },
    Assessed, Component, Observation, ObservedState, Revisions, Workload, creation_problem,
    spec_replicas, status, text,
};
use crate::{
    crd::Recommendation,
    kinds::{DEPLOYMENT, Kind, STATEFUL_SET},
};

/// The name of its container.
pub(crate) const CONTAINER: &str = "odgm";
const DATA_DIR: &str = "/data";
/// The folder of the certificate of a replicated grid.
const TLS_DIR: &str = "/etc/odgm-tls";

/// How the data grid runs.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredGrid {
    pub kind: Kind,
    /// The workload's name.
    pub workload: String,
    /// Host and port for clients.
    pub service: String,
    pub replicas: i32,
    /// How many nodes must be available before functions start.
    pub needed: i32,
    pub is_replicated: bool,
}

impl DesiredGrid {
    /// The kind of workload that the grid had with another number of nodes or persistence.
    pub(crate) fn other_kind(&self) -> Kind {
        if self.kind == DEPLOYMENT { STATEFUL_SET } else { DEPLOYMENT }
    }
}

/// The size of the volume of a node.
fn volume_size(context: &Context<'_>, plan: &OdgmPlan) -> String {
    plan.storage.size.clone().unwrap_or_else(|| context.platform.odgm_disk.clone())
}

/// The image of the nodes.
pub(crate) fn image(context: &Context<'_>, plan: &OdgmPlan) -> String {
    let default = || context.platform.odgm_images.of(context.selection.profile);
    plan.image.clone().unwrap_or_else(default)
}

/// Requests and limits of a node without enforcement, and with what it applies. Only nodes of a
/// replicated grid can be replaced while calls continue.
pub(crate) fn resources(
    context: &Context<'_>,
    plan: &OdgmPlan,
    applied: &[Recommendation],
) -> (ResourceRequirements, ResourceRequirements) {
    let sizes = grid_sizes(context.platform, context.selection.profile);
    let specified = pod::resources(&plan.requests, &plan.limits, &sizes);
    let image = image(context, plan);
    let container = SizedContainer::of_grid(plan, &image);
    let applied = if plan.is_replicated() { applied } else { &[] };
    let current = with_applied(&specified, container, &context.platform.scaling, applied);
    (specified, current)
}

pub(crate) fn objects(
    context: &Context<'_>,
    plan: &OdgmPlan,
    functions: &[FunctionPlan],
    applied: &[Recommendation],
) -> (DesiredGrid, Vec<DesiredObject>) {
    let base = &context.class.identity.base;
    let name = names::odgm(base);
    let service = names::odgm_service(base);
    let mut all = vec![
        objects::service(context, plan, &service, false),
        document::config_map(context, plan, functions),
    ];
    all.extend(plan.is_replicated().then(|| objects::certificate(context)));
    let template = objects::template(context, plan, resources(context, plan, applied).1);
    let metadata = context.meta(&name, context.odgm_labels());
    let workload = if plan.stateful() {
        all.push(objects::service(context, plan, &names::odgm_peers(base), true));
        objects::stateful_set(context, plan, metadata.clone(), template)
    } else {
        objects::deployment(context, plan, metadata.clone(), template)
    };
    let kind = workload.kind.clone();
    all.push(workload);
    all.extend((plan.replicas > 1).then(|| {
        // A majority stays.
        let most = (plan.replicas - 1) / 2;
        budget(metadata, context.odgm_selector(), most)
    }));
    let grid = DesiredGrid {
        kind,
        workload: name,
        service: format!("{service}:{GRID_PORT}"),
        replicas: plan.replicas,
        needed: plan.needed(),
        is_replicated: plan.is_replicated(),
    };
    (grid, all)
}

/// `needed` nodes suffice for functions to work with the grid.
pub(crate) fn assess(workload: &Assessed<'_>, needed: i32) -> Component {
    let ObservedState::Workload(state) = workload.state else { return Component::default() };
    let failure = state.failure.as_ref().or(workload.creation_failure.as_ref());
    Component {
        ready: !workload.deleting && state.is_complete(workload.required.min, false),
        serving: state.available >= needed,
        problem: failure.map(|message| creation_problem(message)),
        ..Component::default()
    }
}

pub(super) fn observe_stateful_set(object: &Value, generation: i64) -> Observation {
    let status: StatefulSetStatus = status(object);
    let rolled_out = status.current_revision == status.update_revision;
    let ready = status.ready_replicas.unwrap_or(0);
    let state = ObservedState::Workload(Workload {
        current: status.observed_generation.unwrap_or(0) >= generation,
        replicas: spec_replicas(object),
        updated: if rolled_out { ready } else { status.updated_replicas.unwrap_or(0) },
        available: status.available_replicas.unwrap_or(0),
        total: status.replicas,
        rolled_out,
        failure: None,
        revisions: Some(revisions(object, &status)),
    });
    (state, None)
}

fn revisions(object: &Value, status: &StatefulSetStatus) -> Revisions {
    let strategy = object.pointer("/spec/updateStrategy/rollingUpdate");
    let partition = strategy.and_then(|it| it.get("partition")?.as_i64()).unwrap_or(0);
    Revisions {
        complete: status.current_revision.clone().unwrap_or_default(),
        latest: status.update_revision.clone().unwrap_or_default(),
        partition: i32::try_from(partition).unwrap_or(i32::MAX),
        keeps_others: strategy.is_some_and(|it| it.get("maxUnavailable").is_some()),
    }
}

pub(super) fn observe_claim(object: &Value, _: i64) -> Observation {
    let bound = text(object, "/status/phase").as_deref() == Some("Bound");
    (ObservedState::Claim(bound, text(object, "/spec/storageClassName")), None)
}
