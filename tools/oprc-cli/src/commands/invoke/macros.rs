//! Macros: runs their steps in sequence by calling the deployed functions.

use std::collections::BTreeMap;

use anyhow::Result;
use oprc_models::{Macro, Step, StepRef};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::CliError;

/// Input of a macro, and of the functions that its steps call.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MacroInput {
    /// State of the object, by key.
    object: Value,
    args: Map<String, Value>,
    inputs: Vec<Value>,
}

impl MacroInput {
    /// Empty if there is no body.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, CliError> {
        let parse = |text| serde_json::from_str(text);
        text.map(parse).transpose().map(Option::unwrap_or_default).map_err(|error| {
            let form = r#"{"object": {…}, "args": {…}, "inputs": […]}"#;
            CliError::InvalidInput(format!("invalid input of a macro: {error}; expected {form}"))
        })
    }

    fn for_step(&self, step: &Step, results: &BTreeMap<&str, Value>) -> Result<Self, CliError> {
        let mut args: Map<_, _> =
            step.args.iter().map(|(name, text)| (name.clone(), text.as_str().into())).collect();
        for (name, text) in &step.arg_refs {
            args.insert(name.clone(), self.value(text, results)?);
        }
        let inputs =
            step.inputs.iter().map(|text| self.value(text, results)).collect::<Result<_, _>>();
        Ok(Self { object: self.value(step.target(), results)?, args, inputs: inputs? })
    }

    /// Resolves a reference of a step.
    fn value(&self, text: &str, results: &BTreeMap<&str, Value>) -> Result<Value, CliError> {
        let invalid = |why: &str| {
            CliError::InvalidInput(format!(
                "cannot resolve reference {text:?} of a macro step: {why}"
            ))
        };
        match StepRef::parse(text) {
            Some(StepRef::Object) => Ok(self.object.clone()),
            // Keys are optional, so a missing one is null.
            Some(StepRef::Key(key)) => Ok(self.object.get(key).cloned().unwrap_or_default()),
            Some(StepRef::Arg(name)) => self
                .args
                .get(name)
                .cloned()
                .ok_or_else(|| invalid("the input has no such argument")),
            Some(StepRef::Step(step, part)) => {
                let result =
                    results.get(step).ok_or_else(|| invalid("no earlier step has that name"))?;
                let Some(part) = part else { return Ok(result.clone()) };
                let part = result.get(part).cloned();
                part.ok_or_else(|| invalid("the result of the step has no such field"))
            }
            None => Err(invalid("it is not a valid reference")),
        }
    }
}

/// Returns the output of the macro. `call` gets the function name as the step has it.
pub(super) async fn run(
    flow: &Macro,
    input: &MacroInput,
    mut call: impl AsyncFnMut(&str, MacroInput) -> Result<Value>,
) -> Result<Value> {
    let mut results = BTreeMap::new();
    let mut last = Value::Null;
    for step in &flow.steps {
        last = call(&step.function, input.for_step(step, &results)?).await?;
        if let Some(name) = &step.name {
            results.insert(name.as_str(), last.clone());
        }
    }
    let output = flow.output.as_deref().and_then(|output| results.remove(output));
    Ok(output.unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn flow(value: Value) -> Macro {
        serde_json::from_value(value).unwrap()
    }

    #[tokio::test]
    async fn resolves_references_and_returns_the_declared_output() {
        let flow = flow(json!({"steps": [
            {"function": "scale", "as": "larger", "args": {"unit": "cm"},
             "argRefs": {"factor": "$args.factor", "label": "$.label", "none": "$.other"}},
            {"function": "area", "target": "larger", "as": "result", "inputs": ["$", "larger.size"]},
            {"function": "tell", "argRefs": {"of": "result"}},
        ], "output": "result"}));
        let input = MacroInput::parse(Some(r#"{"object": {"label": "x"}, "args": {"factor": 2}}"#))
            .unwrap();
        let mut calls = Vec::new();
        let result = run(&flow, &input, async |function, input| {
            calls.push((function.to_owned(), serde_json::to_value(input)?));
            Ok(json!({"by": function, "size": 7}))
        });
        assert_eq!(result.await.unwrap(), json!({"by": "area", "size": 7}));
        let expected = [
            (
                "scale",
                json!({"object": {"label": "x"}, "inputs": [],
                "args": {"unit": "cm", "factor": 2, "label": "x", "none": null}}),
            ),
            (
                "area",
                json!({"object": {"by": "scale", "size": 7}, "args": {},
                "inputs": [{"label": "x"}, 7]}),
            ),
            (
                "tell",
                json!({"object": {"label": "x"}, "inputs": [],
                "args": {"of": {"by": "area", "size": 7}}}),
            ),
        ];
        assert_eq!(calls, expected.map(|(function, input)| (function.to_owned(), input)));
    }

    #[tokio::test]
    async fn rejects_missing_arguments_before_any_call() {
        let flow = flow(json!({"steps": [{"function": "a", "argRefs": {"x": "$args.x"}}]}));
        let none = MacroInput::default();
        let called = run(&flow, &none, async |_, _| panic!("nothing is called")).await;
        let error = called.unwrap_err().to_string();
        assert!(error.contains("$args.x"), "{error}");
        assert!(MacroInput::parse(Some("1")).is_err());
        assert!(MacroInput::parse(Some(r#"{"arg": {}}"#)).unwrap_err().to_string().contains("arg"));
    }
}
