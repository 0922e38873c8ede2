//! What people can find in a package: its classes and functions.

use oprc_models::{Faults, Lookup, ResolvedClass, ResolvedPackage, resolve};
use oprc_rest::{BindingEntry, ClassEntry, FunctionEntry, PackageVersion};

/// What people can find in one version of a package, in the order of its keys, each with what
/// searches look at.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalogue {
    pub(super) classes: Vec<(ClassEntry, String)>,
    pub(super) functions: Vec<(FunctionEntry, String)>,
}

impl Catalogue {
    pub(super) fn new(version: &PackageVersion, others: &dyn Lookup) -> Result<Self, Faults> {
        Ok(Self::of(version, &resolve(&version.package, others)?))
    }

    pub(super) fn of(version: &PackageVersion, resolved: &ResolvedPackage) -> Self {
        let mut classes: Vec<_> =
            resolved.classes.iter().map(|class| entry(resolved, class)).collect();
        classes.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        let mut functions = functions(version, resolved);
        functions.sort_by(|a, b| a.0.key.cmp(&b.0.key));
        Self { classes, functions }
    }
}

fn entry(package: &ResolvedPackage, class: &ResolvedClass) -> (ClassEntry, String) {
    let functions = class.bindings.iter().map(|binding| BindingEntry {
        name: binding.name.clone(),
        function: binding.function.clone(),
        access: binding.access.unwrap_or_default().to_string(),
        default_route: binding.default_route,
    });
    let entry = ClassEntry {
        package: package.name.clone(),
        version: package.version.to_string(),
        key: class.key.clone(),
        name: class.name.clone(),
        description: class.description.clone(),
        lineage: class.lineage.iter().map(ToString::to_string).collect(),
        stateful: class.has_grid(),
        disabled: class.disabled,
        functions: functions.collect(),
    };
    let words = [&entry.package, &entry.key].into_iter().chain(&entry.name);
    let words = words.chain(&entry.description).chain(&entry.lineage);
    let words = words.chain(entry.functions.iter().map(|it| &it.name));
    let text = small(words);
    (entry, text)
}

fn functions(version: &PackageVersion, resolved: &ResolvedPackage) -> Vec<(FunctionEntry, String)> {
    let package = &version.package;
    let entries = package.functions.iter().map(|function| {
        let offers = |class: &&ResolvedClass| {
            class.bindings.iter().any(|binding| binding.function == function.key)
        };
        let entry = FunctionEntry {
            package: package.name.clone(),
            version: package.version.to_string(),
            key: function.key.clone(),
            kind: function.kind().to_string(),
            description: function.description.clone(),
            image: function.container().and_then(|it| it.image.clone()),
            state: function.state().to_string(),
            classes: resolved.classes.iter().filter(offers).map(|it| it.key.clone()).collect(),
            status: Vec::new(),
        };
        let words = [&entry.package, &entry.key, &entry.kind].into_iter().chain(&function.name);
        let words = words.chain(&entry.description).chain(&entry.image).chain(&entry.classes);
        let text = small(words);
        (entry, text)
    });
    entries.collect()
}

fn small<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words.map(String::as_str).collect::<Vec<_>>().join("\n").to_lowercase()
}
