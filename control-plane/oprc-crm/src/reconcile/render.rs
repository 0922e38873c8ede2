//! The objects of a class under its template.

use oprc_unit::{Platform, Selection, Shape, ValidClass, ValidFunction, names, shape_under};

use super::{
    manifest::{Context, add_spec_hash},
    shapes::{self, grid},
};

pub use super::manifest::{
    COMPONENT, DEPLOYMENT_ID, DesiredObject, FUNCTION, FunctionPlan, MANAGED_BY, ODGM_COMPONENT,
    ODGM_ENABLED, OWNER, PARTITION, PARTITION_REPLICA, SPEC_HASH, TEMPLATE,
};
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
    let (odgm, mut objects) = class
        .odgm
        .as_ref()
        .map(|plan| grid::objects(&context, plan, &functions))
        .map_or_else(|| (None, Vec::new()), |(grid, objects)| (Some(grid), objects));
    for (function, plan) in class.functions.iter().zip(&functions) {
        objects.extend(shapes::of(plan.shape).objects(&context, function, plan));
    }
    objects.iter_mut().for_each(add_spec_hash);
    Desired { objects, functions, odgm }
}

fn plan(context: &Context<'_>, function: &ValidFunction) -> FunctionPlan {
    let (identity, selection) = (&context.class.identity, context.selection);
    let shape = shape_under(selection.template, function, context.platform);
    let workload = shapes::of(shape).workload_name(identity, function.name_key.as_deref());
    let called = shapes::of(shape).address_kind().is_some();
    let (min, max) = bounds(function, shape, selection.profile.function_replicas());
    FunctionPlan {
        key: function.key.clone(),
        label: names::label(&function.key),
        shape,
        url: called.then(|| format!("http://{workload}.{}.svc", identity.namespace)),
        workload,
        min,
        max,
        autoscaled: shape == Shape::Deployment && max > min && context.platform.features.hpa,
        unenforced_concurrency: function.max_concurrency.filter(|_| shape == Shape::Deployment),
    }
}

/// The minimum and maximum number of instances of a function.
fn bounds(function: &ValidFunction, shape: Shape, profile: i32) -> (i32, i32) {
    match shape {
        Shape::Job => (1, 1),
        // A maximum of 0 means no limit to Knative.
        Shape::Knative => (
            if function.standby { 0 } else { function.min_scale.unwrap_or(0) },
            function.max_scale.unwrap_or(0),
        ),
        Shape::Deployment => {
            let by_load = function.throughput.map(|rps| (rps / 1000).max(1).saturating_mul(2));
            let max = function.max_scale;
            let min = match (function.min_scale, max) {
                (Some(min), _) => min.max(1),
                (None, _) if function.standby => 1,
                (None, max) => profile.min(max.unwrap_or(profile)),
            };
            // A minimum without a maximum is a fixed number.
            let ceiling = max.or(if function.min_scale.is_some() { None } else { by_load });
            (min, ceiling.unwrap_or(min).max(min))
        }
    }
}
