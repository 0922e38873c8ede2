//! Functions: what they are, and what they run with.

use std::collections::BTreeMap;

use super::{Constraints, Container, Macro, Requirements, Text};
use crate::macros::{model, words};

model! {
    /// A function.
    OFunction {
        /// What it is known by within the package. Goes into `functions[].key`.
        key | "_key": String,
        /// What people call it, for the catalogue.
        name: Option<String>,
        /// What it does, for the catalogue.
        description: Option<String>,
        /// What kind of function it is, TASK unless said otherwise. Goes into `functions[].type`.
        kind = "type": Option<FunctionType>,
        /// The class of the object that it gives, as `class` or as `package.class` of a dependency.
        /// Steps of macros may call functions of that class on it; the catalogue shows it.
        output_cls: Option<String>,
        /// The steps of a MACRO.
        flow = "macro": Option<Macro>,
        /// What its container runs with.
        provision: Option<Provision>,
        /// What is required of it. Goes into `functions[].requirements`.
        requirements: Option<Requirements>,
        /// What it must never exceed. Goes into `functions[].constraints`.
        constraints: Option<Constraints>,
        /// Settings of the function itself. Go into `functions[].config`.
        config: Option<FunctionConfig>,
        /// How it uses the data grid of its class. Goes into `functions[].odgm`.
        odgm: Option<GridUse>,
        /// Whether it is to run, and may change; ENABLED unless said otherwise.
        state: Option<FunctionState>,
        /// Whether no later version may change or drop it.
        immutable: bool,
        /// Whether a later version may come without it.
        mark_for_removal: bool,
        /// Its variables, told to people by the catalogue.
        variable_descriptions: Vec<VariableDescription>,
    }
    refused {
        "status" => "PM tells it (condition, URL, error), nobody sets it",
        "_rev" => "PM counts revisions by itself",
        "rev" => "PM counts revisions by itself",
        "pkg" => "follows from the package that it stands in",
        "image" => "stands in provision.deployment, provision.knative or provision.docker",
        "access" => "is said by the bindings of classes",
        "healthCheck" => "stands beside the image, in provision",
    }
}

impl OFunction {
    /// What kind of function it is.
    pub fn kind(&self) -> FunctionType {
        self.kind.unwrap_or_default()
    }

    /// Whether it is to run, and may change.
    pub fn state(&self) -> FunctionState {
        self.state.unwrap_or_default()
    }

    /// What its container runs with, whatever the form.
    pub fn container(&self) -> Option<&Container> {
        self.provision.as_ref()?.container()
    }

    /// Whether it runs in a container.
    pub fn runs(&self) -> bool {
        self.container().is_some_and(|container| container.image.is_some())
    }
}

words! {
    /// What kind of function it is.
    FunctionType {
        /// Comes with the platform; runs in a container only where it has an image.
        Builtin = "BUILTIN",
        /// Runs in a container.
        #[default]
        Task = "TASK",
        /// A flow of other functions.
        Macro = "MACRO",
        /// Has no implementation of its own; runs in a container only where it has an image.
        Logical = "LOGICAL",
        /// Runs in a container in its own way, and never as a job.
        Custom = "CUSTOM",
    }
}

words! {
    /// Whether a function is to run, and may change.
    FunctionState {
        /// It is, and may.
        #[default]
        Enabled = "ENABLED",
        /// It isn't to run. Goes into `disabled_functions`.
        Disabled = "DISABLED",
        /// It runs, and later versions may not change it until one that only says ENABLED again.
        Frozen = "FROZEN",
    }
}

model! {
    /// What a function's container runs with, in one of three forms that say the same things.
    Provision {
        /// Made for Knative: PM hints at the template `knative` where the cluster has it and no
        /// function of the class says otherwise.
        knative: Option<Container>,
        /// Made to run all the time: PM hints at the template `k8s_deployment` where no function of
        /// the class says otherwise.
        deployment: Option<Container>,
        /// Any container: the template is chosen by what is required.
        docker: Option<Container>,
    }
    refused {
        "image" => "stands in provision.deployment, provision.knative or provision.docker",
    }
}

impl Provision {
    /// What the container runs with, whatever the form.
    pub fn container(&self) -> Option<&Container> {
        self.forms().next().map(|(_, container)| container)
    }

    /// The forms that are given, by name.
    pub fn forms(&self) -> impl Iterator<Item = (&'static str, &Container)> {
        [("knative", &self.knative), ("deployment", &self.deployment), ("docker", &self.docker)]
            .into_iter()
            .filter_map(|(name, form)| Some((name, form.as_ref()?)))
    }
}

model! {
    /// Settings of a function itself.
    FunctionConfig {
        /// How many milliseconds one call may take. Goes into `config.timeout_ms`.
        timeout | "timeoutMs": Option<i32>,
        /// Environment variables; those of `provision` stand before them. Go into `config.env`.
        env: BTreeMap<String, Text>,
    }
}

model! {
    /// How a function uses the data grid of its class.
    GridUse {
        /// The collections that it uses; all of the class's, unless said otherwise.
        collections: Vec<String>,
        /// What it does with them.
        access_mode: Option<AccessMode>,
        /// What it keeps of them.
        caching_strategy | "caching": Option<CachingStrategy>,
    }
}

words! {
    /// What a function does with collections.
    AccessMode {
        /// Reads and writes.
        #[default]
        ReadWrite = "READ_WRITE",
        /// Reads.
        ReadOnly = "READ_ONLY",
        /// Writes.
        WriteOnly = "WRITE_ONLY",
    }
}

words! {
    /// What a function keeps of collections.
    CachingStrategy {
        /// Nothing.
        #[default]
        None = "NONE",
        /// What it has read.
        ReadThrough = "READ_THROUGH",
        /// What it has read or written.
        WriteThrough = "WRITE_THROUGH",
    }
}

model! {
    /// What a variable of a function is for.
    VariableDescription {
        /// Its name.
        name: String,
        /// What it is for.
        description: Option<String>,
    }
}
