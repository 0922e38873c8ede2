//! What classes come to be once they have what they inherit.
//!
//! A class comes first, then its parents in their order, each before its own parents: the C3
//! order, as in Python. Where that can't be (two parents want each other's parents the other way
//! round), the class is refused. Whatever several have under one name is taken from the first.

mod class;
mod functions;
mod lineage;
mod merge;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    check,
    fault::{Faults, Path},
    model::{
        Access, Constraints, OClass, OFunction, OPackage, Provider, Reference, Requirements,
        StateSpec, StateType, Version,
    },
    names::{shown, split},
};

/// Packages that others depend on, one version of each.
pub trait Lookup {
    /// The package of that name.
    fn package(&self, name: &str) -> Option<&OPackage>;
}

impl Lookup for BTreeMap<String, OPackage> {
    fn package(&self, name: &str) -> Option<&OPackage> {
        self.get(name)
    }
}

/// No package at all.
impl Lookup for () {
    fn package(&self, _: &str) -> Option<&OPackage> {
        None
    }
}

/// Something of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The package.
    pub package: String,
    /// The key within it.
    pub key: String,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.package, self.key)
    }
}

/// A package whose classes have what they inherit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedPackage {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Its classes, in their order.
    pub classes: Vec<ResolvedClass>,
}

impl ResolvedPackage {
    /// The class of that key.
    pub fn class(&self, key: &str) -> Option<&ResolvedClass> {
        self.classes.iter().find(|class| class.key == key)
    }
}

/// A class that has what it inherits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedClass {
    /// Its key.
    pub key: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The class and all that it inherits from, nearest first.
    pub lineage: Vec<Origin>,
    /// What an object of the class is.
    pub state_type: StateType,
    /// What its objects keep; keys of ancestors come first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_spec: Option<StateSpec>,
    /// The names under which it offers functions; those of ancestors come first.
    pub bindings: Vec<ResolvedBinding>,
    /// Classes that its objects refer to, by package and key; those of ancestors come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
    /// The functions that it needs: those that it offers, and those that steps of macros call.
    pub functions: Vec<ResolvedFunction>,
    /// What is required of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    /// What none of its functions may exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// Whether it can't be deployed.
    pub disabled: bool,
    /// Whether a later version may come without it.
    pub mark_for_removal: bool,
}

impl ResolvedClass {
    /// Whether it has a data grid.
    pub fn has_grid(&self) -> bool {
        let provider = self.state_spec.as_ref().map(|it| it.default_provider.unwrap_or_default());
        provider == Some(Provider::Odgm)
    }

    /// The function of that key.
    pub fn function(&self, key: &str) -> Option<&ResolvedFunction> {
        self.functions.iter().find(|function| function.key == key)
    }
}

/// A name under which a class offers a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedBinding {
    /// The name.
    pub name: String,
    /// The function, by its key in [`ResolvedClass::functions`].
    pub function: String,
    /// Who may call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Whether calls that name no binding go here.
    pub default_route: bool,
    /// Whether nothing may change it.
    pub immutable: bool,
    /// Whether the function is called when an object of the class changes.
    pub trigger_on_state_change: bool,
    /// Whether such a call isn't waited for.
    pub async_execution: bool,
    /// The class that it comes from.
    pub origin: Origin,
}

/// A function that a class needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedFunction {
    /// What it is known by within the class: its own key, with its package and a dot before it
    /// where that is another.
    pub key: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What it is.
    pub function: Arc<OFunction>,
}

/// A package and those that it depends on.
pub(crate) struct Scope<'a> {
    own: &'a OPackage,
    others: &'a dyn Lookup,
}

impl<'a> Scope<'a> {
    fn package(&self, name: &str) -> Option<&'a OPackage> {
        if name == self.own.name { Some(self.own) } else { self.others.package(name) }
    }

    /// What a reference means that stands in a package.
    fn origin(within: &str, reference: &str) -> Origin {
        let (package, key) = split(reference);
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

    /// What a function is known by within a class of the package.
    fn key(&self, origin: &Origin) -> String {
        if origin.package == self.own.name { origin.key.clone() } else { origin.to_string() }
    }
}

/// Settles what the classes of a package inherit, and checks what can only be checked then. The
/// package is one that [`check`](crate::check) finds nothing wrong with; others are met with
/// faults too, if not with all of theirs.
pub fn resolve(package: &OPackage, others: &dyn Lookup) -> Result<ResolvedPackage, Faults> {
    let mut faults = Faults::default();
    let root = Path::default();
    let scope = Scope { own: package, others };
    // What each class inherits is held for each: there may not be any number of them.
    if package.classes.len() > check::MAX_CLASSES {
        let message = format!("there are more than {}", check::MAX_CLASSES);
        faults.add(&root.field("classes"), message);
        return Err(faults);
    }
    dependencies(&mut faults, &root.field("dependencies"), package, others);
    outputs(&mut faults, &root.field("functions"), &scope);
    let classes = class::all(&mut faults, &root.field("classes"), &scope);
    let resolved =
        ResolvedPackage { name: package.name.clone(), version: package.version.clone(), classes };
    if faults.is_empty() {
        for (at, deployment) in package.deployments.iter().enumerate() {
            let path = root.field("deployments").index(at);
            check::check_inline(&mut faults, &path, deployment, &resolved);
        }
    }
    faults.or(resolved)
}

fn dependencies(faults: &mut Faults, path: &Path, package: &OPackage, others: &dyn Lookup) {
    for (at, dependency) in package.dependencies.iter().enumerate() {
        match others.package(&dependency.name) {
            None => {
                let message = format!("there is no package {}", shown(&dependency.name));
                faults.add(&path.index(at).field("name"), message);
            }
            Some(found) if !dependency.version.matches(&found.version) => {
                let message = format!("{} isn't {}", found.version, dependency.version);
                faults.add(&path.index(at).field("version"), message);
            }
            Some(_) => {}
        }
    }
}

/// Classes that functions give, and functions that macros call, of other packages.
fn outputs(faults: &mut Faults, path: &Path, scope: &Scope<'_>) {
    for (at, function) in scope.own.functions.iter().enumerate() {
        let path = path.index(at);
        if let Some(class) = &function.output_cls
            && scope.class(&Scope::origin(&scope.own.name, class)).is_none()
        {
            faults.add(&path.field("outputCls"), format!("there is no class {}", shown(class)));
        }
        for (at, step) in function.flow.iter().flat_map(|it| &it.steps).enumerate() {
            if scope.function(&Scope::origin(&scope.own.name, &step.function)).is_none() {
                let message = format!("there is no function {}", shown(&step.function));
                faults
                    .add(&path.field("macro").field("steps").index(at).field("function"), message);
            }
        }
    }
}
