//! How enforcement may scale the functions of a class.

use oprc_models::parse_quantity;
use oprc_unit::{Shape, ValidFunction};

use super::{
    Input,
    diff::is_scaled_by_others,
    enforced,
    render::{function_plans, max_floor},
    rollback,
};

/// What bounds the number of instances of a function, and what each of them may use.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionScaling {
    pub key: String,
    pub shape: Shape,
    /// What the specification requires.
    pub min: i32,
    /// The highest number that enforcement may set.
    pub max: i32,
    /// Whether an autoscaler of another owner sets the number.
    pub scaled_by_others: bool,
    /// CPU limit of an instance, or else its request, in cores.
    pub cpu: Option<f64>,
    /// Concurrent calls of an instance.
    pub max_concurrency: Option<i32>,
}

/// The functions of the specification that runs. Empty if none does.
pub fn function_scaling(input: &Input<'_>) -> Vec<FunctionScaling> {
    let Ok(target) = rollback::target(input) else { return Vec::new() };
    let (class, selection) = (&target.admitted.class, &target.admitted.selection);
    let plans = function_plans(class, selection, input.platform, enforced(input.class));
    let functions = class.functions.iter().zip(plans);
    let scaled = functions.filter(|(_, plan)| plan.shape != Shape::Job);
    let scaling = scaled.map(|(function, plan)| FunctionScaling {
        min: plan.min,
        max: max_floor(function, plan.min, &input.platform.scaling),
        scaled_by_others: is_scaled_by_others(input.view, &class.identity, &plan.workload),
        cpu: cpu(function, input),
        max_concurrency: function.max_concurrency,
        shape: plan.shape,
        key: plan.key,
    });
    scaling.collect()
}

/// As it is rendered: what the user set, or else the default of the platform.
fn cpu(function: &ValidFunction, input: &Input<'_>) -> Option<f64> {
    let sizes = &input.platform.function_sizes;
    let either = [&function.limits, &sizes.limits, &function.requests, &sizes.requests];
    let mut found = either.into_iter().filter_map(|it| parse_quantity(it.cpu.as_ref()?).ok());
    found.find(|cores| *cores > 0.0)
}
