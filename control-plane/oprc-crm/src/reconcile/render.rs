//! The objects of a class under its template.

use oprc_unit::{
    InstanceBounds, Platform, Selection, ValidClass, ValidFunction, instance_bounds, names,
    shape_under,
};

use super::{
    manifest::{Context, add_spec_hash, monitor},
    shapes::{self, grid},
};

pub(crate) use super::manifest::pod::CONTAINER as FUNCTION_CONTAINER;
pub use super::manifest::{
    COMPONENT, DEPLOYMENT_ID, DesiredObject, FUNCTION, FunctionPlan, MANAGED_BY, ODGM_COMPONENT,
    ODGM_ENABLED, OWNER, PARTITION, PARTITION_REPLICA, SPEC_HASH, TEMPLATE,
};
pub(crate) use super::shapes::grid::CONTAINER as GRID_CONTAINER;
pub use super::shapes::grid::DesiredGrid;

/// Everything that must exist for a class.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// In the order in which they are applied.
    pub objects: Vec<DesiredObject>,
    pub functions: Vec<FunctionPlan>,
    pub odgm: Option<DesiredGrid>,
}

pub fn render(class: &ValidClass, selection: &Selection, platform: &Platform) -> Desired {
    let context = Context { class, platform, selection };
    let functions: Vec<_> = class.functions.iter().map(|it| plan(&context, it)).collect();
    let grid = class.odgm.as_ref().map(|plan| grid::objects(&context, plan, &functions));
    let (odgm, objects) = grid.unzip();
    let mut objects = objects.unwrap_or_default();
    for (function, plan) in class.functions.iter().zip(&functions) {
        let shape = shapes::of(plan.shape);
        let own = (shape.objects)(&context, function, plan).into_iter();
        // An init container waits otherwise.
        let waits_for_odgm = !shape.takes_init_containers;
        objects.extend(own.map(|it| DesiredObject { waits_for_odgm, ..it }));
    }
    if let Some(monitors) = &platform.monitors {
        objects.extend(monitor(&context, monitors, &functions));
    }
    objects.iter_mut().for_each(add_spec_hash);
    Desired { objects, functions, odgm }
}

fn plan(context: &Context<'_>, function: &ValidFunction) -> FunctionPlan {
    let (identity, selection) = (&context.class.identity, context.selection);
    let shape = shape_under(selection.template, function, context.platform);
    let rules = shapes::of(shape);
    let workload = (rules.workload_name)(identity, function.name_key.as_deref());
    let called = rules.address_kind.is_some();
    let InstanceBounds { min, max } = instance_bounds(function, shape, selection.profile);
    FunctionPlan {
        key: function.key.clone(),
        label: names::label(&function.key),
        shape,
        url: called.then(|| format!("http://{workload}.{}.svc", identity.namespace)),
        workload,
        min,
        max,
        autoscaled: rules.needs_autoscaler && max > min && context.platform.features.hpa,
        proxied: function.proxy && rules.takes_init_containers,
    }
}
