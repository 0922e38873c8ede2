//! Macros: references of their steps, and cycles among them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Declarations, duplicate};
use crate::{
    diagnostics::FieldCursor,
    limits,
    model::{Macro, OFunction, Step},
    names::{NameKind, format_path, quote, split_reference},
};

/// What a macro step refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepRef<'a> {
    /// The object that the macro was called on.
    Object,
    /// A state key or a reference of that object.
    Key(&'a str),
    /// An argument of the macro.
    Arg(&'a str),
    /// The result of an earlier step, or a key of it.
    Step(&'a str, Option<&'a str>),
}

impl<'a> StepRef<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        let valid = |name: &str| NameKind::Identifier.violation(name).is_none();
        if text == "$" {
            return Some(Self::Object);
        }
        if let Some(key) = text.strip_prefix("$.") {
            return valid(key).then_some(Self::Key(key));
        }
        if let Some(arg) = text.strip_prefix("$args.") {
            return valid(arg).then_some(Self::Arg(arg));
        }
        let (step, key) = match text.split_once('.') {
            Some((step, key)) => (step, Some(key)),
            None => (text, None),
        };
        (valid(step) && key.is_none_or(valid)).then_some(Self::Step(step, key))
    }
}

/// The named steps of a macro: all of them, and those before the current one.
struct NamedSteps<'a> {
    all: BTreeSet<&'a str>,
    earlier: BTreeMap<&'a str, &'a Step>,
}

pub(super) fn check(
    at: &FieldCursor<'_>,
    flow: &Macro,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Declarations<'_>,
) {
    let steps = at.field("steps");
    if flow.steps.is_empty() {
        steps.add("a macro needs at least one step");
    }
    let mut named = NamedSteps {
        all: flow.steps.iter().filter_map(|step| step.name.as_deref()).collect(),
        earlier: BTreeMap::new(),
    };
    for (at, step) in steps.limited(limits::STEPS, &flow.steps) {
        known.check_function(&at.field("function"), &step.function);
        check_arguments(&at, step, &named);
        check_target(&at.field("target"), step, &named, functions);
        if let Some(name) = &step.name {
            let at = at.field("as");
            at.name(NameKind::Identifier, name);
            if named.earlier.insert(name, step).is_some() {
                at.add(duplicate(name));
            }
        }
    }
    if let Some(output) = flow.output.as_deref().filter(|output| !named.all.contains(output)) {
        at.field("output").add(format!("the step {} does not exist", quote(output)));
    }
}

fn check_arguments(at: &FieldCursor<'_>, step: &Step, named: &NamedSteps<'_>) {
    let (args, arg_refs) = (at.field("args"), at.field("argRefs"));
    for (key, text) in &step.arg_refs {
        check_step_ref(&arg_refs.key(key), text, named);
    }
    for (at, text) in at.field("inputs").limited(limits::STEPS, &step.inputs) {
        check_step_ref(&at, text, named);
    }
    at.field("args").count(step.args.len() + step.arg_refs.len(), limits::STEP_ARGS);
    for (key, text) in &step.args {
        args.key(key).max_length(text, limits::ARGUMENT);
    }
    for key in step.args.keys().chain(step.arg_refs.keys()) {
        args.key(key).length(key, limits::NAME);
    }
    for key in step.args.keys().filter(|&key| step.arg_refs.contains_key(key)) {
        arg_refs.key(key).add("is also set in args");
    }
}

fn check_target(
    at: &FieldCursor<'_>,
    step: &Step,
    named: &NamedSteps<'_>,
    functions: &BTreeMap<&str, &OFunction>,
) {
    match check_step_ref(at, step.target(), named) {
        Some(StepRef::Arg(_)) => at.add("an argument is not an object"),
        Some(StepRef::Step(_, Some(_))) => at.add("a key of a result is not an object"),
        Some(StepRef::Step(earlier, None)) => {
            let called = named.earlier.get(earlier);
            let called = called.and_then(|it| functions.get(it.function.as_str()));
            if called.is_some_and(|function| function.output_cls.is_none()) {
                let message = format!("the step {} does not return an object", quote(earlier));
                at.add_with_hint(message, "set outputCls of the function it calls");
            }
        }
        _ => {}
    }
}

/// What a text refers to, if that exists and precedes the current step.
fn check_step_ref<'a>(
    at: &FieldCursor<'_>,
    text: &'a str,
    named: &NamedSteps<'_>,
) -> Option<StepRef<'a>> {
    let Some(reference) = StepRef::parse(text) else {
        let message = format!("{} is not a valid reference", quote(text));
        at.add_with_hint(message, "use $, $.key, $args.name, step or step.key");
        return None;
    };
    if let StepRef::Step(step, _) = reference
        && !named.earlier.contains_key(step)
    {
        let why =
            if named.all.contains(step) { "is not before this one" } else { "does not exist" };
        at.add(format!("the step {} {why}", quote(step)));
        return None;
    }
    Some(reference)
}

/// Rejects macros that call themselves, and shows the cycle.
pub(super) fn check_cycles(at: &FieldCursor<'_>, functions: &[OFunction]) {
    let edges: Vec<(&str, Vec<&str>)> = functions
        .iter()
        .map(|function| {
            let steps = function.flow.iter().flat_map(|flow| &flow.steps);
            let own = steps.map(|it| split_reference(&it.function)).filter(|it| it.0.is_none());
            (function.key.as_str(), own.map(|(_, key)| key).collect())
        })
        .collect();
    for (index, cycle) in find_cycles(&edges) {
        let message = format!("the macro calls itself: {}", format_path(&cycle));
        at.index(index).field("macro").add(message);
    }
}

/// How many cycles are reported for one graph.
const MAX_CYCLES: usize = 8;

/// Depth-first search for cycles; each with the index of its first node and the path around it.
pub(super) fn find_cycles<'a>(edges: &[(&'a str, Vec<&'a str>)]) -> Vec<(usize, Vec<&'a str>)> {
    let indices: BTreeMap<&str, usize> =
        edges.iter().enumerate().rev().map(|(at, (key, _))| (*key, at)).collect();
    let mut found = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for (start, _) in edges {
        // The nodes from the start to here, each with the number of edges already followed.
        let mut stack: Vec<(&str, usize)> = Vec::new();
        if !done.contains(start) {
            stack.push((start, 0));
        }
        while let Some((key, followed)) = stack.last_mut()
            && found.len() < MAX_CYCLES
        {
            let (key, next) = (*key, *followed);
            *followed += 1;
            let below = indices.get(key).and_then(|&at| edges.get(at)).map(|(_, below)| below);
            let Some(&to) = below.and_then(|below| below.get(next)) else {
                done.insert(key);
                stack.pop();
                continue;
            };
            if let Some(at) = stack.iter().position(|(key, _)| *key == to) {
                let mut cycle: Vec<&str> = stack.iter().skip(at).map(|(key, _)| *key).collect();
                cycle.push(to);
                let first = cycle.iter().filter_map(|key| indices.get(key)).min();
                found.push((first.copied().unwrap_or_default(), cycle));
            } else if !done.contains(to) && indices.contains_key(to) {
                stack.push((to, 0));
            }
        }
    }
    found
}
