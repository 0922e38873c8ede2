//! Packages, and the catalogue of their classes and functions.

use std::collections::BTreeMap;

use oprc_models::{Macro, OPackage};

use crate::document;

document! {
    /// A published version of a package. The ETag is the digest.
    pub struct PackageVersion {
        /// The published package.
        pub package: OPackage,
        /// Digest of the package.
        pub digest: String,
        /// Publication time.
        pub published_at: String,
        /// Caller who published it, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub published_by: Option<String>,
        /// Reason for the deprecation, if it is deprecated.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deprecated: Option<String>,
        /// Resolved versions of its dependencies, by package name.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub resolved: BTreeMap<String, String>,
    }

    /// A summary of a package.
    pub struct PackageSummary {
        /// Name of the package.
        pub name: String,
        /// Latest version that isn't deprecated, or the latest of all.
        pub latest: String,
        /// Versions, newest first.
        pub versions: Vec<VersionSummary>,
        /// Description.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// Tags.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub tags: Vec<String>,
        /// Labels.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub labels: BTreeMap<String, String>,
        /// Keys of the classes of the latest version.
        pub classes: Vec<String>,
    }

    /// A summary of a version.
    pub struct VersionSummary {
        /// Version.
        pub version: String,
        /// Publication time.
        pub published_at: String,
        /// Reason for the deprecation, if it is deprecated.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deprecated: Option<String>,
    }

    /// The result of publishing a package.
    pub struct Published {
        /// Name of the package.
        pub name: String,
        /// Version.
        pub version: String,
        /// Whether the same version was already published.
        pub unchanged: bool,
    }

    /// A request to deprecate a version.
    pub struct Deprecation {
        /// Reason, shown to users of the version.
        pub reason: String,
    }

    /// A class in the catalogue.
    pub struct ClassEntry {
        /// Name of the package.
        pub package: String,
        /// Version.
        pub version: String,
        /// Key of the class.
        pub key: String,
        /// Display name.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Description.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// The class and its ancestors, nearest first, as `package.class`.
        pub lineage: Vec<String>,
        /// Whether its objects have state.
        pub stateful: bool,
        /// Whether deployment is disabled.
        pub disabled: bool,
        /// Keys of the object state, inherited ones first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub key_specs: Vec<KeyEntry>,
        /// References to other classes, inherited ones first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub ref_spec: Vec<ReferenceEntry>,
        /// Functions bound to the class.
        pub functions: Vec<BindingEntry>,
    }

    /// A key of the object state.
    pub struct KeyEntry {
        /// Name.
        pub name: String,
        /// Type of the value.
        #[serde(rename = "type")]
        pub kind: String,
        /// Whether the key is optional.
        pub optional: bool,
    }

    /// A reference to another class.
    pub struct ReferenceEntry {
        /// Name of the reference.
        pub name: String,
        /// Class, as `package.class`.
        pub class: String,
        /// Access modifier.
        pub access: String,
    }

    /// A function bound to a class.
    pub struct BindingEntry {
        /// Name of the binding.
        pub name: String,
        /// Key of the function.
        pub function: String,
        /// Access modifier.
        pub access: String,
        /// Whether invocations without a function name use this binding.
        pub default_route: bool,
    }

    /// A function in the catalogue.
    pub struct FunctionEntry {
        /// Name of the package.
        pub package: String,
        /// Version.
        pub version: String,
        /// Key of the function.
        pub key: String,
        /// Display name.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Type of the function: BUILTIN, TASK, MACRO, LOGICAL or CUSTOM.
        #[serde(rename = "type")]
        pub kind: String,
        /// Description.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// Container image, if it runs in a container.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub image: Option<String>,
        /// Class of the returned object, as `package.class`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub output_cls: Option<String>,
        /// Steps, if it is a macro.
        #[serde(rename = "macro", skip_serializing_if = "Option::is_none")]
        pub flow: Option<Macro>,
        /// Descriptions of its variables.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variable_descriptions: Vec<VariableEntry>,
        /// Lifecycle state: ENABLED, DISABLED (doesn't run) or FROZEN (runs, but can't be changed).
        pub state: String,
        /// Keys of the classes of the package that bind it.
        pub classes: Vec<String>,
        /// Status in each deployment.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub status: Vec<crate::FunctionStatus>,
    }
    /// A variable of a function.
    pub struct VariableEntry {
        /// Name.
        pub name: String,
        /// Description.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
    }
}
