//! Macros of a unit. Steps of packages name functions, those of units name methods of the target.

use oprc_models::{Macro, Origin, ResolvedClass, ResolvedFunction, Step, StepRef, split_reference};

use super::Source;
use crate::spec::{MacroSpec, MacroStep};

pub(super) fn spec(source: &Source<'_>, of: &ResolvedFunction, flow: &Macro) -> MacroSpec {
    let steps = flow.steps.iter().map(|step| MacroStep {
        method: method(source, of, flow, step),
        target: step.target.clone(),
        name: step.name.clone(),
        args: step.args.clone(),
        arg_refs: step.arg_refs.clone(),
        inputs: step.inputs.clone(),
    });
    MacroSpec { steps: steps.collect(), output: flow.output.clone() }
}

/// The function, in the package of whatever names it.
fn origin(within: &str, reference: &str) -> Origin {
    let (package, key) = split_reference(reference);
    Origin { package: package.unwrap_or(within).to_owned(), key: key.to_owned() }
}

/// The method of the target's class that calls the step's function. The class of another package isn't
/// known here: it must have a method with the function's key as its name.
fn method(source: &Source<'_>, of: &ResolvedFunction, flow: &Macro, step: &Step) -> String {
    let called = origin(&of.origin.package, &step.function);
    let class = match StepRef::parse(step.target()) {
        Some(StepRef::Key(name)) => {
            let reference = source.class.references.iter().find(|it| it.name == name);
            reference.and_then(|it| source.class_named(&it.class))
        }
        Some(StepRef::Step(name, None)) => {
            let earlier = flow.steps.iter().find(|it| it.name.as_deref() == Some(name));
            earlier.and_then(|it| output_class(source, of, it))
        }
        _ => Some(source.class),
    };
    let found = class.and_then(|class| Some(method_of(class, function_of(class, &called)?)));
    found.unwrap_or(called.key)
}

/// The name of the method that calls a function: that of its first binding. A function without one has
/// its key as the name, or its qualified key if a binding of another function has that name.
pub(super) fn method_of(class: &ResolvedClass, function: &ResolvedFunction) -> String {
    let mut bindings = class.bindings.iter();
    if let Some(binding) = bindings.clone().find(|it| it.function == function.key) {
        return binding.name.clone();
    }
    let is_taken = bindings.any(|it| it.name == function.key);
    if is_taken { function.origin.to_string() } else { function.key.clone() }
}

fn function_of<'a>(class: &'a ResolvedClass, origin: &Origin) -> Option<&'a ResolvedFunction> {
    class.functions.iter().find(|it| it.origin == *origin)
}

/// The class of the object that a step returns.
fn output_class<'a>(
    source: &'a Source<'_>,
    of: &ResolvedFunction,
    step: &Step,
) -> Option<&'a ResolvedClass> {
    let called = origin(&of.origin.package, &step.function);
    let function = function_of(source.class, &called)?;
    let class = function.function.output_cls.as_deref()?;
    let origin = origin(&called.package, class);
    source.class_named(&origin.to_string())
}
