//! Functions and their settings.

use std::collections::BTreeMap;

use super::{Constraints, Container, Macro, Requirements, Text};
use crate::macros::{models, string_enums};

models! {
    /// A function that classes can bind.
    OFunction {
        /// Key of the function, unique in the package. Sent to CRM as `functions[].key`.
        key | "_key": String,
        /// Display name, shown in the catalogue.
        name: Option<String>,
        /// Purpose of the function, shown in the catalogue.
        description: Option<String>,
        /// Type of the function. TASK (the default): runs in a container. BUILTIN: provided by the
        /// platform; runs in a container only if it has an image. MACRO: calls other functions in
        /// sequence. LOGICAL: no implementation of its own; runs in a container only if it has an
        /// image. CUSTOM: runs in a container, and never as a Job. Sent to CRM as `functions[].type`.
        kind = "type": Option<FunctionType>,
        /// Class of the returned object: `class`, or `package.class` for a dependency. Macro steps can
        /// call functions of that class on the result; the catalogue shows it.
        output_cls: Option<String>,
        /// Steps of a function of type MACRO.
        flow = "macro": Option<Macro>,
        /// Container of the function.
        provision: Option<Provision>,
        /// Requirements of the function. Sent to CRM as `functions[].requirements`.
        requirements: Option<Requirements>,
        /// Limits of the function. Sent to CRM as `functions[].constraints`.
        constraints: Option<Constraints>,
        /// Settings of the function. Sent to CRM as `functions[].config`.
        config: Option<FunctionConfig>,
        /// Use of the data grid of the class. Sent to CRM as `functions[].odgm`.
        odgm: Option<GridUse>,
        /// Whether the function runs and can be changed. ENABLED (the default): it runs. DISABLED: it
        /// does not run. FROZEN: it runs, and cannot be changed until a version sets only its state to
        /// ENABLED.
        state: Option<FunctionState>,
        /// Prevents changes and removal by later versions.
        immutable: bool,
        /// Allows a later compatible version to remove the function.
        mark_for_removal: bool,
        /// Documentation of its variables, shown in the catalogue.
        variable_descriptions: Vec<VariableDescription>,
    }
    => rejected {
        "status" => "it is set by PM",
        "_rev" => "PM counts revisions",
        "rev" => "PM counts revisions",
        "pkg" => "it is the name of the enclosing package",
        "image" => "set it in provision.deployment, provision.knative or provision.docker",
        "access" => "set it on the bindings of classes",
        "healthCheck" => "set it next to the image in provision",
    }
}

impl OFunction {
    pub fn kind(&self) -> FunctionType {
        self.kind.unwrap_or_default()
    }

    pub fn state(&self) -> FunctionState {
        self.state.unwrap_or_default()
    }

    /// The container of any form.
    pub fn container(&self) -> Option<&Container> {
        self.provision.as_ref()?.container()
    }

    /// Whether the function has an image.
    pub fn runs_in_container(&self) -> bool {
        self.container().is_some_and(|container| container.image.is_some())
    }
}

string_enums! {
    /// Type of a function.
    FunctionType {
        /// Provided by the platform; runs in a container only if it has an image.
        Builtin = "BUILTIN",
        /// Runs in a container.
        #[default]
        Task = "TASK",
        /// Calls other functions in sequence.
        Macro = "MACRO",
        /// No implementation of its own; runs in a container only if it has an image.
        Logical = "LOGICAL",
        /// Runs in a container, and never as a Job.
        Custom = "CUSTOM",
    }

    /// Whether a function runs and can be changed.
    FunctionState {
        /// The function runs.
        #[default]
        Enabled = "ENABLED",
        /// The function does not run. Sent to CRM in `disabled_functions`.
        Disabled = "DISABLED",
        /// The function runs, and cannot be changed until a version sets only its state to ENABLED.
        Frozen = "FROZEN",
    }
}

models! {
    /// Container of a function, in one of three forms with the same fields.
    Provision {
        /// Prefers the template `knative`, if the cluster has it and no function of the class prefers
        /// another.
        knative: Option<Container>,
        /// Prefers the template `k8s_deployment`, if no function of the class prefers another.
        deployment: Option<Container>,
        /// A container with no preference for a template: the requirements determine it.
        docker: Option<Container>,
    }
    => rejected {
        "image" => "set it in provision.deployment, provision.knative or provision.docker",
    }
}

impl Provision {
    /// The container of any form.
    pub fn container(&self) -> Option<&Container> {
        self.forms().next().map(|(_, container)| container)
    }

    /// The forms that are set, with their names.
    pub fn forms(&self) -> impl Iterator<Item = (&'static str, &Container)> {
        [("knative", &self.knative), ("deployment", &self.deployment), ("docker", &self.docker)]
            .into_iter()
            .filter_map(|(name, form)| Some((name, form.as_ref()?)))
    }
}

models! {
    /// Settings of a function.
    FunctionConfig {
        /// Timeout of a call in milliseconds. Sent to CRM as `config.timeout_ms`.
        timeout | "timeoutMs": Option<i32>,
        /// How often the data grid repeats a call that failed without an answer of the function, 0 to
        /// 10. Sent to CRM as `config.retries`.
        retries: Option<i32>,
        /// Environment variables; those in `provision` take precedence. Sent to CRM as `config.env`.
        env: BTreeMap<String, Text>,
    }

    /// Use of the data grid by a function.
    GridUse {
        /// Collections that the function uses; by default all of the class.
        collections: Vec<String>,
        /// Access to the collections. Calls of a READ_ONLY function change no object, and run
        /// concurrently.
        access_mode: Option<AccessMode>,
        /// Caching of the collections.
        caching_strategy | "caching": Option<CachingStrategy>,
        /// Changes of objects that call the function, in addition to those of bindings.
        event_triggers | "triggers": Vec<FunctionTrigger>,
    }

    /// Changes of objects that call a function.
    FunctionTrigger {
        /// Name of the binding to call; by default the first one of the function.
        method: Option<String>,
        /// Kind of change; by default any.
        trigger_type | "type": Option<TriggerType>,
        /// Names or patterns of collections; by default those that the function uses.
        collections | "collectionFilters": Vec<String>,
        /// Whether the call runs asynchronously.
        async_execution | "async": bool,
    }
}

string_enums! {
    /// Changes of objects that a trigger follows.
    TriggerType {
        /// Any change.
        #[default]
        StateChange = "STATE_CHANGE",
        Create = "CREATE",
        Update = "UPDATE",
        Delete = "DELETE",
    }

    /// Access of a function to collections.
    AccessMode {
        #[default]
        ReadWrite = "READ_WRITE",
        ReadOnly = "READ_ONLY",
        WriteOnly = "WRITE_ONLY",
    }

    /// Caching of collections by a function.
    CachingStrategy {
        #[default]
        None = "NONE",
        /// Caches what it reads.
        ReadThrough = "READ_THROUGH",
        /// Caches what it reads and writes.
        WriteThrough = "WRITE_THROUGH",
    }
}

models! {
    /// Documentation of a variable of a function.
    VariableDescription {
        /// Name of the variable.
        name: String,
        /// Purpose of the variable.
        description: Option<String>,
    }
}
