//! Inheritance: computes the complete classes of a package.
//!
//! The order of ancestors is the C3 linearization, as in Python: a class precedes its parents, and
//! parents keep their order. A class without such an order is rejected. Where several ancestors
//! define the same name, the nearest one wins.

mod class;
mod compatibility;
mod functions;
mod lineage;
mod merge;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

pub use self::compatibility::check_against;

use crate::{
    check,
    diagnostics::{Diagnostics, FieldCursor},
    model::{
        Access, Constraints, OClass, OFunction, OPackage, Provider, ProxyMode, Reference,
        Requirements, StateSpec, StateType, Version,
    },
    names::{quote, split_reference},
};

/// Why a state change cannot trigger a function.
pub(crate) const TRIGGER_NEEDS_CONTAINER: &str =
    "state changes can trigger only functions that run in a container";

/// Problems of a class: the binding that each concerns, if any, and the message.
type ClassProblems = Vec<(Option<String>, String)>;

/// Access to dependencies, with one version of each package.
pub trait Lookup {
    fn package(&self, name: &str) -> Option<&OPackage>;
}

impl Lookup for BTreeMap<String, OPackage> {
    fn package(&self, name: &str) -> Option<&OPackage> {
        self.get(name)
    }
}

/// No dependencies.
impl Lookup for () {
    fn package(&self, _: &str) -> Option<&OPackage> {
        None
    }
}

/// The package and key of a class or function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    pub package: String,
    pub key: String,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.package, self.key)
    }
}

/// A package whose classes include what they inherit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedPackage {
    pub name: String,
    pub version: Version,
    pub classes: Vec<ResolvedClass>,
}

impl ResolvedPackage {
    pub fn class(&self, key: &str) -> Option<&ResolvedClass> {
        self.classes.iter().find(|class| class.key == key)
    }
}

/// A class including what it inherits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedClass {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The class and its ancestors, nearest first.
    pub lineage: Vec<Origin>,
    pub state_type: StateType,
    /// Keys of ancestors come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_spec: Option<StateSpec>,
    /// Bindings of ancestors come first.
    pub bindings: Vec<ResolvedBinding>,
    /// With fully qualified classes; those of ancestors come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
    /// The functions of its bindings, and those that its macros call.
    pub functions: Vec<ResolvedFunction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    pub proxy: Option<ProxyMode>,
    pub disabled: bool,
    pub mark_for_removal: bool,
}

impl ResolvedClass {
    pub fn has_grid(&self) -> bool {
        let provider = self.state_spec.as_ref().map(|it| it.default_provider.unwrap_or_default());
        provider == Some(Provider::Odgm)
    }

    pub fn function(&self, key: &str) -> Option<&ResolvedFunction> {
        self.functions.iter().find(|function| function.key == key)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedBinding {
    pub name: String,
    /// The key of the function in [`ResolvedClass::functions`].
    pub function: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    pub default_route: bool,
    pub immutable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    pub trigger_on_state_change: bool,
    pub async_execution: bool,
    /// The class that declares it.
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedFunction {
    /// The key within the class: `key`, or `package.key` for a function of a dependency.
    pub key: String,
    pub origin: Origin,
    pub function: Arc<OFunction>,
}

/// A package and its dependencies.
pub(crate) struct Scope<'a> {
    own: &'a OPackage,
    others: &'a dyn Lookup,
}

impl<'a> Scope<'a> {
    fn package(&self, name: &str) -> Option<&'a OPackage> {
        if name == self.own.name { Some(self.own) } else { self.others.package(name) }
    }

    /// Resolves a reference that occurs in the package `within`.
    fn origin(within: &str, reference: &str) -> Origin {
        let (package, key) = split_reference(reference);
        Origin { package: package.unwrap_or(within).to_owned(), key: key.to_owned() }
    }

    fn class(&self, origin: &Origin) -> Option<&'a OClass> {
        let package = self.package(&origin.package)?;
        package.classes.iter().find(|class| class.key == origin.key)
    }

    fn function(&self, origin: &Origin) -> Option<&'a OFunction> {
        let package = self.package(&origin.package)?;
        package.functions.iter().find(|function| function.key == origin.key)
    }

    /// Resolves a reference that occurs in the package itself.
    fn own_origin(&self, reference: &str) -> Origin {
        Self::origin(&self.own.name, reference)
    }

    fn check_class(&self, at: &FieldCursor<'_>, reference: &str) {
        if self.class(&self.own_origin(reference)).is_none() {
            at.add(format!("the class {} does not exist", quote(reference)));
        }
    }

    /// The key of a function within classes of this package.
    fn key(&self, origin: &Origin) -> String {
        if origin.package == self.own.name { origin.key.clone() } else { origin.to_string() }
    }
}

/// Computes what the classes of a package inherit, and validates the result. Expects a package that
/// passed [`check`](crate::check); for others the diagnostics may be incomplete.
pub fn resolve(package: &OPackage, others: &dyn Lookup) -> Result<ResolvedPackage, Diagnostics> {
    Diagnostics::collect(|root| {
        let scope = Scope { own: package, others };
        let mut resolved = ResolvedPackage {
            name: package.name.clone(),
            version: package.version.clone(),
            classes: Vec::new(),
        };
        // Bounds memory: every resolved class holds a copy of what it inherits.
        if package.classes.len() > check::MAX_CLASSES {
            let message = format!("has more than {} entries", check::MAX_CLASSES);
            root.field("classes").add(message);
            return resolved;
        }
        check_dependencies(&root.field("dependencies"), package, others);
        check_function_references(&root.field("functions"), &scope);
        resolved.classes = class::resolve_classes(&root.field("classes"), &scope);
        if root.is_document_valid() {
            for (at, deployment) in root.field("deployments").items(&package.deployments) {
                compatibility::check_against_at(&at, deployment, &resolved);
            }
        }
        resolved
    })
}

fn check_dependencies(at: &FieldCursor<'_>, package: &OPackage, others: &dyn Lookup) {
    for (at, dependency) in at.items(&package.dependencies) {
        match others.package(&dependency.name) {
            None => at
                .field("name")
                .add(format!("the package {} does not exist", quote(&dependency.name))),
            Some(found) if !dependency.version.matches(&found.version) => at
                .field("version")
                .add(format!("{} does not match {}", found.version, dependency.version)),
            Some(_) => {}
        }
    }
}

/// Checks `outputCls` and the functions of macro steps, including those of dependencies.
fn check_function_references(at: &FieldCursor<'_>, scope: &Scope<'_>) {
    for (at, function) in at.items(&scope.own.functions) {
        if let Some(class) = &function.output_cls {
            scope.check_class(&at.field("outputCls"), class);
        }
        let steps = function.flow.as_ref().map(|flow| flow.steps.as_slice()).unwrap_or_default();
        for (at, step) in at.field("macro").field("steps").items(steps) {
            if scope.function(&scope.own_origin(&step.function)).is_none() {
                let message = format!("the function {} does not exist", quote(&step.function));
                at.field("function").add(message);
            }
        }
    }
}
