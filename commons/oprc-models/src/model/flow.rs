//! Macros: functions that are a flow of calls of other functions.

use std::collections::BTreeMap;

use crate::macros::model;

model! {
    /// A flow of calls. It runs in no container: PM checks it, sees to it that the functions of its
    /// steps are deployed with each class that offers the macro, and serves it in the catalogue,
    /// from where whoever invokes the macro (`oprc invoke`) takes the steps. A function is called with
    /// a document that has the `object` it is called on, `args` and `inputs`; so is the macro.
    Macro {
        /// The calls, in their order.
        steps: Vec<Step>,
        /// The step whose result is the macro's own, the last unless said otherwise.
        output: Option<String>,
    }
}

model! {
    /// One call. What it refers to is `$`, the object that the macro was called on; `$.key`, a key
    /// of its state; `$args.name`, an argument of the macro; `step`, the result of an earlier step;
    /// or `step.key`, a part of that.
    Step {
        /// The function, as `key` or as `package.key` of a dependency.
        function: String,
        /// The object that it is called on: `$` unless said otherwise, `$.name` for an object that
        /// the class refers to, or an earlier step whose function gives an object (`outputCls`).
        target: Option<String>,
        /// What later steps know the result by.
        name = "as": Option<String>,
        /// Arguments, as they are.
        args: BTreeMap<String, String>,
        /// Arguments that are taken from elsewhere.
        arg_refs: BTreeMap<String, String>,
        /// What is given along as input.
        inputs | "inputRefs": Vec<String>,
    }
    refused {
        "condition" => "steps are always taken; let the function decide",
    }
}

impl Step {
    /// The object that the step's function is called on.
    pub fn target(&self) -> &str {
        self.target.as_deref().unwrap_or("$")
    }
}
