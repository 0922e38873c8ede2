//! Packages as a whole.

use std::collections::BTreeMap;

use super::{Declarations, class, deployment, flow, function};
use crate::{
    diagnostics::{Diagnostics, FieldCursor},
    model::{Metadata, OPackage},
    names::{NameKind, quote},
};

/// Maximum number of classes in a package.
pub(crate) const MAX_CLASSES: usize = 256;

/// Validates a package without its dependencies.
pub fn check(package: &OPackage) -> Result<(), Diagnostics> {
    Diagnostics::collect(|root| {
        root.field("name").name(NameKind::Package, &package.name);
        if let Some(metadata) = &package.metadata {
            check_metadata(&root.field("metadata"), metadata);
        }
        let known = Declarations {
            classes: package.classes.iter().map(|it| it.key.as_str()).collect(),
            functions: package.functions.iter().map(|it| it.key.as_str()).collect(),
            dependencies: package.dependencies.iter().map(|it| it.name.as_str()).collect(),
        };
        check_dependencies(&root.field("dependencies"), package);
        check_functions(&root.field("functions"), package, &known);
        check_classes(&root.field("classes"), package, &known);
        let deployments = &package.deployments;
        for (at, it) in root.field("deployments").unique(256, deployments, "key", |it| &it.key) {
            deployment::check_in_package(&at, it, package);
        }
        if package.classes.is_empty() && package.functions.is_empty() {
            root.add("the package has neither classes nor functions");
        }
    })
}

fn check_functions(at: &FieldCursor<'_>, package: &OPackage, known: &Declarations<'_>) {
    let by_key = package.functions.iter().map(|it| (it.key.as_str(), it)).collect();
    let functions = at.unique(1024, &package.functions, "key", |it| &it.key);
    check_case(at, "function", package.functions.iter().map(|it| it.key.as_str()));
    for (at, function) in functions {
        function::check(&at, function, &by_key, known);
    }
    flow::check_cycles(at, &package.functions);
}

fn check_classes(at: &FieldCursor<'_>, package: &OPackage, known: &Declarations<'_>) {
    let classes = at.unique(MAX_CLASSES, &package.classes, "key", |it| &it.key);
    check_case(at, "class", package.classes.iter().map(|it| it.key.as_str()));
    for (at, class) in classes {
        class::check(&at, class, package, known);
    }
    class::check_cycles(at, package);
}

/// The names of Kubernetes objects contain the keys of classes and functions in lower case.
fn check_case<'a>(at: &FieldCursor<'_>, kind: &str, keys: impl Iterator<Item = &'a str>) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (index, key) in keys.enumerate() {
        let first = *seen.entry(key.to_ascii_lowercase()).or_insert(key);
        if first != key {
            at.index(index).field("key").add_with_hint(
                format!("{} differs from the {kind} {} only in case", quote(key), quote(first)),
                format!(
                    "rename one of them: Kubernetes object names use {kind} keys in lower case"
                ),
            );
        }
    }
}

fn check_dependencies(at: &FieldCursor<'_>, package: &OPackage) {
    for (at, dependency) in at.unique(256, &package.dependencies, "name", |it| &it.name) {
        let at = at.field("name");
        at.name(NameKind::Package, &dependency.name);
        if dependency.name == package.name {
            at.add("a package cannot depend on itself");
        }
    }
}

fn check_metadata(at: &FieldCursor<'_>, metadata: &Metadata) {
    at.field("description").length(metadata.description.as_ref(), 16_384);
    at.field("author").length(metadata.author.as_ref(), 256);
    at.field("createdBy").length(metadata.created_by.as_ref(), 256);
    for (at, tag) in at.field("tags").unique(64, &metadata.tags, "", |it| it) {
        at.length(tag, 64);
    }
    for (field, map, max) in
        [("labels", &metadata.labels, 256), ("annotations", &metadata.annotations, 16_384)]
    {
        let at = at.field(field);
        at.count(map.len(), 64);
        for (key, value) in map {
            at.key(key).length(key, 256);
            at.key(key).max_length(value, max);
        }
    }
}
