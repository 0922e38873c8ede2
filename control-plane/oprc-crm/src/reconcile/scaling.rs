//! How enforcement may scale the functions of a class, and size its data grid.

use oprc_nfr::resources::Resource;
use oprc_unit::{OdgmPlan, Shape, ValidFunction, alternative_shape, instance_bounds, shape_under};

use super::{
    Input,
    container_resources::{ContainerResource, SizedContainer, made_for, specified_resources},
    diff::is_scaled_by_others,
    enforced,
    manifest::Context,
    render::{FunctionPlan, function_plans, max_floor},
    rollback,
    shapes::grid,
};
use crate::crd::{GRID_KEY, Recommendation};

/// What bounds the number of instances of a function, and what each of them may use. The data grid is one
/// whose number of instances and shape aren't decided here.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionScaling {
    /// Of a function, or [`GRID_KEY`].
    pub key: String,
    /// Whether decisions are never applied, because instances can't be replaced without an interruption
    /// or a loss of state.
    pub only_recommended: bool,
    pub shape: Shape,
    /// The shape that follows from the declaration.
    pub declared_shape: Shape,
    /// The shape that enforcement may choose instead.
    pub alternative_shape: Option<Shape>,
    /// Whether Knative would run no instance without requests.
    pub scales_to_zero: bool,
    /// What the specification requires.
    pub min: i32,
    /// The highest number that enforcement may set.
    pub max: i32,
    /// Whether an autoscaler of another owner sets the number.
    pub scaled_by_others: bool,
    pub cpu: ContainerResource,
    pub memory: ContainerResource,
    pub image: String,
    /// What decisions about CPU and memory are made for.
    pub made_for: String,
    /// Concurrent calls of an instance.
    pub max_concurrency: Option<i32>,
}

/// The functions of the specification that runs. Empty if none does.
pub fn function_scaling(input: &Input<'_>) -> Vec<FunctionScaling> {
    let Ok(target) = rollback::target(input) else { return Vec::new() };
    let (class, selection) = (&target.admitted.class, &target.admitted.selection);
    let plans = function_plans(class, selection, input.platform, enforced(input.class));
    let resource = |resource: Resource, function: &ValidFunction, plan: &FunctionPlan| {
        let specified = specified_resources(function, input.platform, selection.profile);
        let scaling = &input.platform.scaling;
        ContainerResource::of(resource, function.into(), &specified, &plan.resources, scaling)
    };
    let functions = class.functions.iter().zip(plans);
    let scaled = functions.filter(|(_, plan)| plan.shape != Shape::Job);
    let scaling = scaled.map(|(function, plan)| FunctionScaling {
        only_recommended: false,
        min: plan.min,
        max: max_floor(function, plan.min, &input.platform.scaling),
        scaled_by_others: is_scaled_by_others(input.view, &class.identity, &plan.workload),
        cpu: resource(Resource::Cpu, function, &plan),
        memory: resource(Resource::Memory, function, &plan),
        image: function.image.clone(),
        made_for: made_for(function.into()),
        max_concurrency: function.max_concurrency,
        shape: plan.shape,
        declared_shape: shape_under(selection.template, function, input.platform),
        alternative_shape: alternative_shape(selection.template, function, input.platform),
        scales_to_zero: instance_bounds(function, Shape::Knative, selection.profile).min == 0,
        key: plan.key,
    });
    let grid = class.odgm.as_ref().map(|plan| {
        let context = Context { class, platform: input.platform, selection };
        grid_scaling(&context, plan, enforced(input.class))
    });
    scaling.chain(grid).collect()
}

/// More nodes don't make a replicated grid faster, because each of them stores everything: their number
/// follows from the required availability.
fn grid_scaling(
    context: &Context<'_>,
    plan: &OdgmPlan,
    applied: &[Recommendation],
) -> FunctionScaling {
    let (specified, current) = grid::resources(context, plan, applied);
    let image = grid::image(context, plan);
    let container = SizedContainer::of_grid(plan, &image);
    let resource = |resource: Resource| {
        let scaling = &context.platform.scaling;
        ContainerResource::of(resource, container, &specified, &current, scaling)
    };
    FunctionScaling {
        key: GRID_KEY.to_owned(),
        only_recommended: !plan.is_replicated(),
        shape: Shape::Deployment,
        declared_shape: Shape::Deployment,
        alternative_shape: None,
        scales_to_zero: false,
        min: plan.replicas,
        max: plan.replicas,
        scaled_by_others: false,
        cpu: resource(Resource::Cpu),
        memory: resource(Resource::Memory),
        made_for: made_for(container),
        image,
        max_concurrency: None,
    }
}

impl FunctionScaling {
    /// CPU limit of an instance, or else its request, in cores.
    pub fn cpu_of_instance(&self) -> Option<f64> {
        self.cpu.current.limit.or(self.cpu.current.request)
    }
}
