//! Macros: methods that call other methods in sequence.

use std::collections::BTreeMap;

use oprc_models::limits;
use serde::{Deserialize, Serialize};

unit_types! {
    /// A sequence of calls that the data grid executes.
    MacroSpec {
        /// The calls, in order, at most 64.
        #[schemars(length(max = limits::STEPS))]
        steps?: Vec<MacroStep>,
        /// Name of the step whose result is that of the macro. Defaults to the last step.
        #[schemars(length(min = 1, max = limits::NAME))]
        output?: Option<String>,
    }

    /// One call. References have one of these forms: `$`, the object that the macro was called on;
    /// `$.key`, a key of its state; `$args.name`, an argument of the macro; `step`, the result of an
    /// earlier step; `step.key`, a key of that result.
    MacroStep {
        /// Method of the target to call.
        #[schemars(length(min = 1, max = limits::NAME))]
        method: String,
        /// The object to call the method on: `$`, `$.name` for an object that the class refers to, or
        /// an earlier step that returns an object. Defaults to `$`.
        #[schemars(length(min = 1, max = limits::STEP_REFERENCE))]
        target?: Option<String>,
        /// Name of the result for later steps.
        #[schemars(length(min = 1, max = limits::NAME))]
        #[serde(rename = "as")]
        name?: Option<String>,
        /// Arguments with literal values.
        #[schemars(extend("maxProperties" = limits::STEP_ARGS))]
        args?: BTreeMap<String, String>,
        /// Arguments whose values are references.
        #[schemars(extend("maxProperties" = limits::STEP_ARGS))]
        arg_refs?: BTreeMap<String, String>,
        /// Additional inputs of the call, as references.
        #[schemars(length(max = limits::STEPS), inner(length(min = 1, max = limits::STEP_REFERENCE)))]
        inputs?: Vec<String>,
    }
}

impl MacroStep {
    /// The object to call the method on.
    pub fn target(&self) -> &str {
        self.target.as_deref().unwrap_or("$")
    }
}
