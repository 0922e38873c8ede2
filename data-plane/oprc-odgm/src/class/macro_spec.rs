//! Macros: methods that call other methods, step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use oprc_condition::Condition;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    key_spec::State,
    method::{Access, timeout_ms},
};

const MAX_STEPS: usize = 64;

/// A sequence of calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MacroSpec {
    #[serde(default)]
    pub access: Access,
    #[serde(default = "default_timeout", deserialize_with = "timeout_ms")]
    timeout_ms: u64,
    /// Must hold before the first step.
    #[serde(default)]
    pub condition: Option<Condition>,
    #[serde(flatten)]
    pub flow: Flow,
}

/// What a macro does. A run keeps its own, so that a change of the class doesn't concern it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    pub steps: Vec<MacroStep>,
    /// The name of the step whose result the macro returns; the default is the last one.
    #[serde(default)]
    pub output: Option<String>,
}

/// A call of a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MacroStep {
    /// Name of the result for later steps.
    pub name: Option<String>,
    /// A method or macro of the class of the target.
    pub method: String,
    /// A reference to the id of an object. The object of the macro, if there is none.
    pub target: Option<String>,
    /// Of the target.
    pub collection: Option<String>,
    /// Address of the grid of the target, if that is another one.
    pub url: Option<String>,
    pub args: State,
    /// Arguments by reference.
    pub arg_refs: BTreeMap<String, String>,
    /// Further values by reference, for the argument `inputs`.
    pub inputs: Vec<String>,
}

fn default_timeout() -> u64 {
    300_000
}

impl MacroSpec {
    /// Of a whole run.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(super) fn problem(&self) -> Option<String> {
        let Flow { steps, output } = &self.flow;
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Some(format!("has {} steps; expected: 1 to {MAX_STEPS}", steps.len()));
        }
        let mut names = BTreeSet::new();
        for (index, step) in steps.iter().enumerate() {
            let references = step.arg_refs.values().chain(&step.inputs).chain(&step.target);
            for text in references {
                match ValueRef::parse(text) {
                    Some(ValueRef::Step(name, _)) if !names.contains(name) => {
                        return Some(format!(
                            "steps[{index}] refers to {text:?}, which no earlier step has as name"
                        ));
                    }
                    Some(_) => {}
                    None => {
                        let allowed = "$, $.key, $args.name, step or step.key";
                        return Some(format!("steps[{index}] has {text:?}; expected: {allowed}"));
                    }
                }
            }
            if step.method.is_empty() {
                return Some(format!("steps[{index}] has no method"));
            }
            if let Some(name) = &step.name
                && (!is_name(name) || !names.insert(name.as_str()))
            {
                return Some(format!("steps[{index}] has the name {name:?}; expected: a new name"));
            }
        }
        let missing = output.as_ref().filter(|it| !names.contains(it.as_str()))?;
        Some(format!("output is {missing:?}, which no step has as name"))
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
}

/// What a step refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// The state of the object of the macro.
    State,
    /// A key of that.
    Key(&'a str),
    /// An argument of the macro.
    Arg(&'a str),
    /// The result of an earlier step, or a key of it.
    Step(&'a str, Option<&'a str>),
}

impl<'a> ValueRef<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        if text == "$" {
            return Some(Self::State);
        }
        if let Some(key) = text.strip_prefix("$.") {
            return is_name(key).then_some(Self::Key(key));
        }
        if let Some(name) = text.strip_prefix("$args.") {
            return is_name(name).then_some(Self::Arg(name));
        }
        let (step, key) = match text.split_once('.') {
            Some((step, key)) => (step, Some(key)),
            None => (text, None),
        };
        (is_name(step) && key.is_none_or(is_name)).then_some(Self::Step(step, key))
    }
}

/// Values that steps refer to.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    pub state: &'a State,
    pub args: &'a Value,
    pub results: &'a BTreeMap<String, Value>,
}

impl Values<'_> {
    /// The error is why there is no value.
    pub fn get(&self, text: &str) -> Result<Value, String> {
        let missing = |why: &str| format!("{text:?} has no value: {why}");
        match ValueRef::parse(text) {
            None => Err(missing("it is not a reference")),
            Some(ValueRef::State) => Ok(Value::Object(self.state.clone())),
            // Keys may be optional.
            Some(ValueRef::Key(key)) => Ok(self.state.get(key).cloned().unwrap_or_default()),
            Some(ValueRef::Arg(name)) => {
                let value = self.args.get(name).cloned();
                value.ok_or_else(|| missing("there is no such argument"))
            }
            Some(ValueRef::Step(step, key)) => {
                let result = self.results.get(step);
                let result = result.ok_or_else(|| missing("there is no such step"))?;
                let Some(key) = key else { return Ok(result.clone()) };
                let part = result.get(key).cloned();
                part.ok_or_else(|| missing("the result of the step has no such key"))
            }
        }
    }

    /// The arguments of a step.
    pub fn arguments(&self, step: &MacroStep) -> Result<Value, String> {
        let mut args = step.args.clone();
        for (name, text) in &step.arg_refs {
            args.insert(name.clone(), self.get(text)?);
        }
        if !step.inputs.is_empty() {
            let inputs: Result<Vec<_>, _> = step.inputs.iter().map(|text| self.get(text)).collect();
            args.insert("inputs".to_owned(), Value::Array(inputs?));
        }
        Ok(Value::Object(args))
    }
}
