//! Macros: what their steps refer to, and that none calls itself.

use std::collections::{BTreeMap, BTreeSet};

use super::{length, many, name, package::Known, reference};
use crate::{
    fault::{Faults, Path},
    model::{Macro, OFunction, Step},
    names::{Name, shown, split, way},
};

/// What a step refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ref<'a> {
    /// The object that the macro was called on.
    Object,
    /// A key of its state, or an object that it refers to.
    Key(&'a str),
    /// An argument of the macro.
    Arg(&'a str),
    /// The result of a step, or a part of it.
    Step(&'a str, Option<&'a str>),
}

impl<'a> Ref<'a> {
    /// Reads a text of a step.
    pub fn parse(text: &'a str) -> Option<Self> {
        let word = |word: &str| Name::Word.fault(word).is_none();
        if text == "$" {
            return Some(Self::Object);
        }
        if let Some(key) = text.strip_prefix("$.") {
            return word(key).then_some(Self::Key(key));
        }
        if let Some(arg) = text.strip_prefix("$args.") {
            return word(arg).then_some(Self::Arg(arg));
        }
        let (step, part) = match text.split_once('.') {
            Some((step, part)) => (step, Some(part)),
            None => (text, None),
        };
        (word(step) && part.is_none_or(word)).then_some(Self::Step(step, part))
    }
}

const FORMS: &str = "$, $.key, $args.name, step or step.key";

pub(super) fn check(
    faults: &mut Faults,
    path: &Path,
    flow: &Macro,
    functions: &BTreeMap<&str, &OFunction>,
    known: &Known<'_>,
) {
    let steps = path.field("steps");
    if flow.steps.is_empty() {
        faults.add(&steps, "a macro needs steps");
    }
    many(faults, &steps, &flow.steps, 64);
    let all: BTreeSet<&str> = flow.steps.iter().filter_map(|step| step.name.as_deref()).collect();
    let mut earlier: BTreeMap<&str, &Step> = BTreeMap::new();
    for (at, step) in flow.steps.iter().enumerate() {
        let path = steps.index(at);
        let (own, others) = (&known.functions, &known.dependencies);
        let (place, to) = (path.field("function"), &step.function);
        reference(faults, &place, "function", Name::Function, to, own, others);
        for (key, text) in &step.arg_refs {
            refer(faults, &path.field("argRefs").key(key), text, &earlier, &all);
        }
        for (at, text) in step.inputs.iter().enumerate() {
            refer(faults, &path.field("inputs").index(at), text, &earlier, &all);
        }
        let place = path.field("target");
        match refer(faults, &place, step.target(), &earlier, &all) {
            Some(Ref::Arg(_)) => faults.add(&place, "an argument is no object"),
            Some(Ref::Step(_, Some(_))) => faults.add(&place, "a part of a result is no object"),
            Some(Ref::Step(before, None)) => {
                let called = earlier.get(before).and_then(|it| functions.get(it.function.as_str()));
                if called.is_some_and(|function| function.output_cls.is_none()) {
                    let message =
                        format!("the function of the step {} gives no object", shown(before));
                    faults.hint(&place, message, "say so by its outputCls");
                }
            }
            _ => {}
        }
        for key in step.args.keys().chain(step.arg_refs.keys()) {
            length(faults, &path.field("args").key(key), key, 253);
        }
        for key in step.args.keys().filter(|&key| step.arg_refs.contains_key(key)) {
            faults.add(&path.field("argRefs").key(key), "is given by args too");
        }
        many(faults, &path.field("inputs"), &step.inputs, 64);
        if let Some(known_by) = &step.name {
            name(faults, &path.field("as"), Name::Word, known_by);
            if earlier.insert(known_by, step).is_some() {
                faults.add(&path.field("as"), format!("{} is given twice", shown(known_by)));
            }
        }
    }
    if let Some(output) = flow.output.as_deref().filter(|output| !all.contains(output)) {
        faults.add(&path.field("output"), format!("there is no step {}", shown(output)));
    }
}

/// What a text refers to, where that is there and comes before.
fn refer<'a>(
    faults: &mut Faults,
    place: &Path,
    text: &'a str,
    earlier: &BTreeMap<&str, &Step>,
    all: &BTreeSet<&str>,
) -> Option<Ref<'a>> {
    let Some(to) = Ref::parse(text) else {
        let message = format!("{} refers to nothing", shown(text));
        faults.hint(place, message, format!("allowed are {FORMS}"));
        return None;
    };
    if let Ref::Step(step, _) = to
        && !earlier.contains_key(step)
    {
        let message = if all.contains(step) {
            format!("the step {} doesn't come before this one", shown(step))
        } else {
            format!("there is no step {}", shown(step))
        };
        faults.add(place, message);
        return None;
    }
    Some(to)
}

/// Refuses macros that call themselves, and shows how.
pub(super) fn cycles(faults: &mut Faults, path: &Path, functions: &[OFunction]) {
    let edges: Vec<(&str, Vec<&str>)> = functions
        .iter()
        .map(|function| {
            let steps = function.flow.iter().flat_map(|flow| &flow.steps);
            let own = steps.filter_map(|step| match split(&step.function) {
                (None, key) => Some(key),
                (Some(_), _) => None,
            });
            (function.key.as_str(), own.collect())
        })
        .collect();
    for (at, cycle) in cycles_of(&edges) {
        let message = format!("the macro calls itself: {}", way(&cycle));
        faults.add(&path.index(at).field("macro"), message);
    }
}

/// How many cycles are told of one graph.
const CYCLES: usize = 8;

/// Cycles of a graph: for each the first of its members and the way round.
pub(crate) fn cycles_of<'a>(edges: &[(&'a str, Vec<&'a str>)]) -> Vec<(usize, Vec<&'a str>)> {
    let places: BTreeMap<&str, usize> =
        edges.iter().enumerate().rev().map(|(at, (key, _))| (*key, at)).collect();
    let mut found = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for (start, _) in edges {
        // The way here, each with how many of its edges were followed.
        let mut way: Vec<(&str, usize)> = Vec::new();
        if !done.contains(start) {
            way.push((start, 0));
        }
        while let Some((key, followed)) = way.last_mut()
            && found.len() < CYCLES
        {
            let (key, next) = (*key, *followed);
            *followed += 1;
            let below = places.get(key).and_then(|&at| edges.get(at)).map(|(_, below)| below);
            let Some(&to) = below.and_then(|below| below.get(next)) else {
                done.insert(key);
                way.pop();
                continue;
            };
            if let Some(at) = way.iter().position(|(key, _)| *key == to) {
                let mut cycle: Vec<&str> = way.iter().skip(at).map(|(key, _)| *key).collect();
                cycle.push(to);
                let first = cycle.iter().filter_map(|key| places.get(key)).min();
                found.push((first.copied().unwrap_or_default(), cycle));
            } else if !done.contains(to) && places.contains_key(to) {
                way.push((to, 0));
            }
        }
    }
    found
}
