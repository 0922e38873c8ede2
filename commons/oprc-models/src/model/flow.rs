//! Macros: functions that call other functions in sequence.

use std::collections::BTreeMap;

use crate::macros::models;

models! {
    /// A sequence of function calls. A macro has no container: PM validates it and deploys the
    /// functions of its steps with each class that binds the macro; the data grid of the class
    /// executes the steps. Sent to CRM as `functions[].macro`.
    Macro {
        /// The calls, in order.
        steps: Vec<Step>,
        /// The step whose result the macro returns; the default is the last one.
        output: Option<String>,
    }

    /// One function call. References have one of these forms: `$`, the object that the macro was
    /// called on; `$.key`, a key of its state; `$args.name`, an argument of the macro; `step`, the
    /// result of an earlier step; `step.key`, a key of that result.
    Step {
        /// The function: `key`, or `package.key` for a dependency.
        function: String,
        /// The object to call the function on: `$` (the default), `$.name` for an object that the
        /// class refers to, or an earlier step whose function returns an object (`outputCls`).
        target: Option<String>,
        /// Name of the result for later steps.
        name = "as": Option<String>,
        /// Arguments with literal values.
        args: BTreeMap<String, String>,
        /// Arguments whose values are references.
        arg_refs: BTreeMap<String, String>,
        /// Additional inputs of the call, as references.
        inputs | "inputRefs": Vec<String>,
    }
    => rejected {
        "condition" => "steps are always executed; check the condition in the function",
    }
}

impl Step {
    /// The object to call the function on.
    pub fn target(&self) -> &str {
        self.target.as_deref().unwrap_or("$")
    }
}
