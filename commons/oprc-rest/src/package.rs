//! Packages, and the catalogue of what is in them.

use std::collections::BTreeMap;

use oprc_models::{Macro, OPackage};

use crate::document;

document! {
    /// One version of a package, as it was published. Its ETag is its digest.
    pub struct PackageVersion {
        /// What was published.
        pub package: OPackage,
        /// A digest of it.
        pub digest: String,
        /// When it was published.
        pub published_at: String,
        /// By whom, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub published_by: Option<String>,
        /// Why it shouldn't be used any more, where it shouldn't.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deprecated: Option<String>,
        /// The versions of other packages that it was settled with, by name.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub resolved: BTreeMap<String, String>,
    }

    /// A package in a list.
    pub struct PackageSummary {
        /// Its name.
        pub name: String,
        /// Its newest version that isn't deprecated, or the newest of all.
        pub latest: String,
        /// All of its versions, newest first.
        pub versions: Vec<VersionSummary>,
        /// What it is for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// Words to find it by.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub tags: Vec<String>,
        /// Keys and values to select it by.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub labels: BTreeMap<String, String>,
        /// The classes of its latest version.
        pub classes: Vec<String>,
    }

    /// A version in a list.
    pub struct VersionSummary {
        /// The version.
        pub version: String,
        /// When it was published.
        pub published_at: String,
        /// Why it shouldn't be used any more, where it shouldn't.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub deprecated: Option<String>,
    }

    /// What came of publishing a file of packages and deployments.
    pub struct Published {
        /// The package.
        pub name: String,
        /// The version.
        pub version: String,
        /// Whether it was there already, just the same.
        pub unchanged: bool,
    }

    /// A request to deprecate a version.
    pub struct Deprecation {
        /// Why, for those who still use it.
        pub reason: String,
    }

    /// A class in the catalogue.
    pub struct ClassEntry {
        /// The package.
        pub package: String,
        /// The version.
        pub version: String,
        /// The class.
        pub key: String,
        /// What people call it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// What it is for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// It and all that it inherits from, nearest first, as `package.class`.
        pub lineage: Vec<String>,
        /// Whether its objects have state.
        pub stateful: bool,
        /// Whether it can't be deployed.
        pub disabled: bool,
        /// The keys of an object's state, those that it inherits first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub key_specs: Vec<KeyEntry>,
        /// The classes that its objects refer to, those that it inherits first.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub ref_spec: Vec<ReferenceEntry>,
        /// What it offers.
        pub functions: Vec<BindingEntry>,
    }

    /// A key of an object's state.
    pub struct KeyEntry {
        /// Its name.
        pub name: String,
        /// What stands there.
        #[serde(rename = "type")]
        pub kind: String,
        /// Whether it may be left out.
        pub optional: bool,
    }

    /// A class that objects of another refer to.
    pub struct ReferenceEntry {
        /// What the reference is called.
        pub name: String,
        /// The class, as `package.class`.
        pub class: String,
        /// Who may follow it.
        pub access: String,
    }

    /// A function that a class offers.
    pub struct BindingEntry {
        /// The name that it is offered under.
        pub name: String,
        /// The function.
        pub function: String,
        /// Who may call it.
        pub access: String,
        /// Whether calls that name none go here.
        pub default_route: bool,
    }

    /// A function in the catalogue.
    pub struct FunctionEntry {
        /// The package.
        pub package: String,
        /// The version.
        pub version: String,
        /// The function.
        pub key: String,
        /// What people call it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// What kind of function it is.
        #[serde(rename = "type")]
        pub kind: String,
        /// What it does.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// Its image, where it runs in a container.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub image: Option<String>,
        /// The class of the object that it gives, as `package.class`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub output_cls: Option<String>,
        /// The steps of a macro, as they were published.
        #[serde(rename = "macro", skip_serializing_if = "Option::is_none")]
        pub flow: Option<Macro>,
        /// What its variables are for.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub variable_descriptions: Vec<VariableEntry>,
        /// Whether it is to run, and may change.
        pub state: String,
        /// The classes of its package that offer it.
        pub classes: Vec<String>,
        /// How it is where it is deployed.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub status: Vec<crate::FunctionStatus>,
    }
    /// A variable of a function.
    pub struct VariableEntry {
        /// Its name.
        pub name: String,
        /// What it is for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
    }
}
