//! The objects of a class under its template.

use oprc_unit::{
    InstanceBounds, Platform, Scaling, Selection, Shape, ValidClass, ValidFunction,
    instance_bounds, names, shape_with, spec::Dimension,
};

use super::{
    container_resources::{specified_resources, with_applied},
    manifest::{Context, add_spec_hash, monitor},
    shapes::{self, grid},
};
use crate::crd::Recommendation;

pub(crate) use super::manifest::pod::CONTAINER as FUNCTION_CONTAINER;
pub use super::manifest::{
    COMPONENT, DEPLOYMENT_ID, DNS_NAME, DesiredObject, FUNCTION, FunctionPlan, MANAGED_BY,
    ODGM_COMPONENT, ODGM_ENABLED, OWNER, PARTITION, PARTITION_REPLICA, RENEW_AFTER, SPEC_HASH,
    TEMPLATE,
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

/// `applied` is what enforcement applies to the class.
pub fn render(
    class: &ValidClass,
    selection: &Selection,
    platform: &Platform,
    applied: &[Recommendation],
) -> Desired {
    let context = Context { class, platform, selection };
    let functions: Vec<_> = class.functions.iter().map(|it| plan(&context, it, applied)).collect();
    let grid = class.odgm.as_ref().map(|plan| grid::objects(&context, plan, &functions, applied));
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

/// How each function of a class runs.
pub fn function_plans(
    class: &ValidClass,
    selection: &Selection,
    platform: &Platform,
    applied: &[Recommendation],
) -> Vec<FunctionPlan> {
    let context = Context { class, platform, selection };
    class.functions.iter().map(|it| plan(&context, it, applied)).collect()
}

/// The highest number of instances that enforcement may set.
pub fn max_floor(function: &ValidFunction, min: i32, scaling: &Scaling) -> i32 {
    function.max_scale.unwrap_or(scaling.max_instances).min(scaling.max_instances).max(min)
}

fn applied_to<'a>(
    function: &ValidFunction,
    dimension: Dimension,
    applied: &'a [Recommendation],
) -> Option<&'a Recommendation> {
    let mut of_function = applied.iter().filter(|it| it.component == function.key);
    of_function.find(|it| it.dimension == dimension.as_str())
}

/// What enforcement decided, within what the specification and the settings allow now.
fn floor(function: &ValidFunction, min: i32, scaling: &Scaling, applied: &[Recommendation]) -> i32 {
    let target = applied_to(function, Dimension::Replicas, applied);
    #[allow(clippy::cast_possible_truncation)]
    let target = target.map_or(min, |it| it.target.round() as i32);
    target.clamp(min, max_floor(function, min, scaling))
}

fn plan(
    context: &Context<'_>,
    function: &ValidFunction,
    applied: &[Recommendation],
) -> FunctionPlan {
    let (identity, selection) = (&context.class.identity, context.selection);
    let decided = applied_to(function, Dimension::Template, applied);
    let decided = decided.and_then(|it| Shape::parse(it.template.as_deref()?));
    let shape = shape_with(selection.template, function, context.platform, decided);
    let rules = shapes::of(shape);
    let workload = (rules.workload_name)(identity, function.name_key.as_deref());
    let called = rules.address_kind.is_some();
    let InstanceBounds { min, max } = instance_bounds(function, shape, selection.profile);
    let scales = shape != Shape::Job;
    let scaling = &context.platform.scaling;
    let floor = if scales { floor(function, min, scaling, applied) } else { min };
    let specified = specified_resources(function, context.platform, selection.profile);
    let resources = if scales {
        with_applied(&specified, function.into(), scaling, applied)
    } else {
        specified
    };
    FunctionPlan {
        key: function.key.clone(),
        label: names::label(&function.key),
        shape,
        url: called.then(|| format!("http://{workload}.{}.svc", identity.namespace)),
        workload,
        min,
        floor,
        max,
        resources,
        autoscaled: rules.needs_autoscaler && max > min && context.platform.features.hpa,
        proxied: function.proxy && rules.takes_init_containers,
    }
}
