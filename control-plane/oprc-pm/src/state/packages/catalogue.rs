//! The classes and functions of a package version, as lists and searches return them.

use oprc_models::{Diagnostics, Lookup, ResolvedClass, ResolvedPackage, resolve};
use oprc_rest::{
    BindingEntry, ClassEntry, FunctionEntry, KeyEntry, PackageVersion, ReferenceEntry,
    VariableEntry,
};

/// Entries sorted by key, each with the lower-case text that searches match.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    pub classes: Vec<(ClassEntry, String)>,
    pub functions: Vec<(FunctionEntry, String)>,
}

impl Catalogue {
    pub fn new(version: &PackageVersion, others: &dyn Lookup) -> Result<Self, Diagnostics> {
        Ok(Self::of(version, &resolve(&version.package, others)?))
    }

    pub fn of(version: &PackageVersion, resolved: &ResolvedPackage) -> Self {
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
    let keys = class.state_spec.iter().flat_map(|it| &it.key_specs).map(|key| KeyEntry {
        name: key.name.clone(),
        kind: key.kind.to_string(),
        optional: key.optional,
    });
    let references = class.references.iter().map(|reference| ReferenceEntry {
        name: reference.name.clone(),
        class: reference.class.clone(),
        access: reference.access.unwrap_or_default().to_string(),
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
        key_specs: keys.collect(),
        ref_spec: references.collect(),
        functions: functions.collect(),
    };
    let words = [&entry.package, &entry.key].into_iter().chain(&entry.name);
    let words = words.chain(&entry.description).chain(&entry.lineage);
    let words = words.chain(entry.functions.iter().map(|it| &it.name));
    let text = search_text(words);
    (entry, text)
}

fn functions(version: &PackageVersion, resolved: &ResolvedPackage) -> Vec<(FunctionEntry, String)> {
    let package = &version.package;
    let entries = package.functions.iter().map(|function| {
        let offers = |class: &&ResolvedClass| {
            class.bindings.iter().any(|binding| binding.function == function.key)
        };
        // Qualified like the classes of lineages and references.
        let full = |class: &String| {
            if class.contains('.') { class.clone() } else { format!("{}.{class}", package.name) }
        };
        let variables = function
            .variable_descriptions
            .iter()
            .map(|it| VariableEntry { name: it.name.clone(), description: it.description.clone() });
        let entry = FunctionEntry {
            package: package.name.clone(),
            version: package.version.to_string(),
            key: function.key.clone(),
            name: function.name.clone(),
            kind: function.kind().to_string(),
            description: function.description.clone(),
            image: function.container().and_then(|it| it.image.clone()),
            output_cls: function.output_cls.as_ref().map(full),
            flow: function.flow.clone(),
            variable_descriptions: variables.collect(),
            state: function.state().to_string(),
            classes: resolved.classes.iter().filter(offers).map(|it| it.key.clone()).collect(),
            status: Vec::new(),
        };
        let words = [&entry.package, &entry.key, &entry.kind].into_iter().chain(&entry.name);
        let words = words.chain(&entry.description).chain(&entry.image).chain(&entry.classes);
        let text = search_text(words);
        (entry, text)
    });
    entries.collect()
}

fn search_text<'a>(words: impl Iterator<Item = &'a String>) -> String {
    words.map(String::as_str).collect::<Vec<_>>().join("\n").to_lowercase()
}
