//! How enforcement may scale the functions of a class.

use oprc_nfr::resources::Resource;
use oprc_unit::{Shape, ValidFunction, alternative_shape, instance_bounds, shape_under};

use super::{
    Input,
    container_resources::{ContainerResource, made_for, specified_resources},
    diff::is_scaled_by_others,
    enforced,
    render::{FunctionPlan, function_plans, max_floor},
    rollback,
};

/// What bounds the number of instances of a function, and what each of them may use.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionScaling {
    pub key: String,
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
        ContainerResource::of(resource, function, &specified, &plan.resources, scaling)
    };
    let functions = class.functions.iter().zip(plans);
    let scaled = functions.filter(|(_, plan)| plan.shape != Shape::Job);
    let scaling = scaled.map(|(function, plan)| FunctionScaling {
        min: plan.min,
        max: max_floor(function, plan.min, &input.platform.scaling),
        scaled_by_others: is_scaled_by_others(input.view, &class.identity, &plan.workload),
        cpu: resource(Resource::Cpu, function, &plan),
        memory: resource(Resource::Memory, function, &plan),
        image: function.image.clone(),
        made_for: made_for(function),
        max_concurrency: function.max_concurrency,
        shape: plan.shape,
        declared_shape: shape_under(selection.template, function, input.platform),
        alternative_shape: alternative_shape(selection.template, function, input.platform),
        scales_to_zero: instance_bounds(function, Shape::Knative, selection.profile).min == 0,
        key: plan.key,
    });
    scaling.collect()
}

impl FunctionScaling {
    /// CPU limit of an instance, or else its request, in cores.
    pub fn cpu_of_instance(&self) -> Option<f64> {
        self.cpu.current.limit.or(self.cpu.current.request)
    }
}
