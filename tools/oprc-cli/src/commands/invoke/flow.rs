//! Macros: their steps are taken here, one after the other, by calling the functions that were
//! deployed for them.

use std::collections::BTreeMap;

use anyhow::Result;
use oprc_models::{Macro, Step, StepRef};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// What a macro is called with, and what it calls functions with.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// The object that it is called on: its state, by key.
    object: Value,
    args: Map<String, Value>,
    inputs: Vec<Value>,
}

impl Asked {
    /// Reads what was sent; nothing where nothing was.
    pub(super) fn read(text: Option<&str>) -> Result<Self, Failure> {
        let read = |text| serde_json::from_str(text);
        text.map(read).transpose().map(Option::unwrap_or_default).map_err(|error| {
            let form = r#"{"object": {…}, "args": {…}, "inputs": […]}"#;
            Failure::Wrong(format!("a macro takes data such as {form}: {error}"))
        })
    }

    /// What a step is called with.
    fn of(&self, step: &Step, results: &BTreeMap<&str, Value>) -> Result<Self, Failure> {
        let mut args: Map<_, _> =
            step.args.iter().map(|(name, text)| (name.clone(), text.as_str().into())).collect();
        for (name, text) in &step.arg_refs {
            args.insert(name.clone(), self.value(text, results)?);
        }
        let inputs =
            step.inputs.iter().map(|text| self.value(text, results)).collect::<Result<_, _>>();
        Ok(Self { object: self.value(step.target(), results)?, args, inputs: inputs? })
    }

    /// What a text of a step refers to.
    fn value(&self, text: &str, results: &BTreeMap<&str, Value>) -> Result<Value, Failure> {
        let nothing = |why: &str| Failure::Wrong(format!("a step refers to {text}: {why}"));
        match StepRef::parse(text) {
            Some(StepRef::Object) => Ok(self.object.clone()),
            // A key may be one that not every object has.
            Some(StepRef::Key(key)) => Ok(self.object.get(key).cloned().unwrap_or_default()),
            Some(StepRef::Arg(name)) => {
                self.args.get(name).cloned().ok_or_else(|| nothing("no such argument was sent"))
            }
            Some(StepRef::Step(step, part)) => {
                let result = results.get(step).ok_or_else(|| nothing("there is no such step"))?;
                let Some(part) = part else { return Ok(result.clone()) };
                let part = result.get(part).cloned();
                part.ok_or_else(|| nothing("the step's result has no such part"))
            }
            None => Err(nothing("that is nothing")),
        }
    }
}

/// Takes the steps of a macro, and gives its result. A function is called by the name that its step
/// has for it.
pub(super) async fn take(
    flow: &Macro,
    asked: &Asked,
    mut call: impl AsyncFnMut(&str, Asked) -> Result<Value>,
) -> Result<Value> {
    let mut results = BTreeMap::new();
    let mut last = Value::Null;
    for step in &flow.steps {
        last = call(&step.function, asked.of(step, &results)?).await?;
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
    async fn steps_get_what_they_refer_to_and_the_output_is_the_macros_own() {
        let flow = flow(json!({"steps": [
            {"function": "scale", "as": "larger", "args": {"unit": "cm"},
             "argRefs": {"factor": "$args.factor", "label": "$.label", "none": "$.other"}},
            {"function": "area", "target": "larger", "as": "result", "inputs": ["$", "larger.size"]},
            {"function": "tell", "argRefs": {"of": "result"}},
        ], "output": "result"}));
        let asked =
            Asked::read(Some(r#"{"object": {"label": "x"}, "args": {"factor": 2}}"#)).unwrap();
        let mut calls = Vec::new();
        let result = take(&flow, &asked, async |function, asked| {
            calls.push((function.to_owned(), serde_json::to_value(asked)?));
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
        assert_eq!(calls, expected.map(|(function, asked)| (function.to_owned(), asked)));
    }

    #[tokio::test]
    async fn what_is_missing_is_told_before_anything_is_called() {
        let flow = flow(json!({"steps": [{"function": "a", "argRefs": {"x": "$args.x"}}]}));
        let none = Asked::default();
        let called = take(&flow, &none, async |_, _| panic!("nothing is called")).await;
        let told = called.unwrap_err().to_string();
        assert!(told.contains("$args.x"), "{told}");
        assert!(Asked::read(Some("1")).is_err());
        assert!(Asked::read(Some(r#"{"arg": {}}"#)).unwrap_err().to_string().contains("arg"));
    }
}
