//! Packages as a whole.

use std::collections::BTreeMap;

use super::{
    check_count, check_length, check_max_length, check_name, check_unique, class,
    declarations::Declarations, deployment, flow, function,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{Metadata, OPackage},
    names::{NameKind, quote},
};

/// Maximum number of classes in a package.
pub(crate) const MAX_CLASSES: usize = 256;

/// Validates a package without its dependencies.
pub fn check(package: &OPackage) -> Result<(), Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let root = Path::default();
    check_name(&mut diagnostics, &root.field("name"), NameKind::Package, &package.name);
    if let Some(metadata) = &package.metadata {
        check_metadata(&mut diagnostics, &root.field("metadata"), metadata);
    }
    let known = Declarations {
        classes: package.classes.iter().map(|it| it.key.as_str()).collect(),
        functions: package.functions.iter().map(|it| it.key.as_str()).collect(),
        dependencies: package.dependencies.iter().map(|it| it.name.as_str()).collect(),
    };
    check_dependencies(&mut diagnostics, &root.field("dependencies"), package);
    check_functions(&mut diagnostics, &root.field("functions"), package, &known);
    check_classes(&mut diagnostics, &root.field("classes"), package, &known);
    check_deployments(&mut diagnostics, &root.field("deployments"), package);
    if package.classes.is_empty() && package.functions.is_empty() {
        diagnostics.add(&root, "the package has neither classes nor functions");
    }
    diagnostics.or(())
}

fn check_functions(
    diagnostics: &mut Diagnostics,
    path: &Path,
    package: &OPackage,
    known: &Declarations<'_>,
) {
    let functions = package.functions.iter().map(|it| (it.key.as_str(), it)).collect();
    check_count(diagnostics, path, package.functions.len(), 1024);
    check_unique(diagnostics, path, "key", package.functions.iter().map(|it| it.key.as_str()));
    check_case(diagnostics, path, "function", package.functions.iter().map(|it| it.key.as_str()));
    for (index, function) in package.functions.iter().enumerate() {
        function::check(diagnostics, &path.index(index), function, &functions, known);
    }
    flow::check_cycles(diagnostics, path, &package.functions);
}

fn check_classes(
    diagnostics: &mut Diagnostics,
    path: &Path,
    package: &OPackage,
    known: &Declarations<'_>,
) {
    check_count(diagnostics, path, package.classes.len(), MAX_CLASSES);
    check_unique(diagnostics, path, "key", package.classes.iter().map(|it| it.key.as_str()));
    check_case(diagnostics, path, "class", package.classes.iter().map(|it| it.key.as_str()));
    for (index, class) in package.classes.iter().enumerate() {
        class::check(diagnostics, &path.index(index), class, package, known);
    }
    class::check_cycles(diagnostics, path, package);
}

/// The names of Kubernetes objects contain the keys of classes and functions in lower case.
fn check_case<'a>(
    diagnostics: &mut Diagnostics,
    path: &Path,
    kind: &str,
    keys: impl Iterator<Item = &'a str>,
) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (index, key) in keys.enumerate() {
        let first = *seen.entry(key.to_ascii_lowercase()).or_insert(key);
        if first != key {
            diagnostics.add_with_hint(
                &path.index(index).field("key"),
                format!("{} differs from the {kind} {} only in case", quote(key), quote(first)),
                format!(
                    "rename one of them: Kubernetes object names use {kind} keys in lower case"
                ),
            );
        }
    }
}

fn check_deployments(diagnostics: &mut Diagnostics, path: &Path, package: &OPackage) {
    let deployments = &package.deployments;
    check_count(diagnostics, path, deployments.len(), 256);
    check_unique(diagnostics, path, "key", deployments.iter().map(|it| it.key.as_str()));
    for (index, deployment) in deployments.iter().enumerate() {
        deployment::check_in_package(diagnostics, &path.index(index), deployment, package);
    }
}

fn check_dependencies(diagnostics: &mut Diagnostics, path: &Path, package: &OPackage) {
    let dependencies = &package.dependencies;
    check_count(diagnostics, path, dependencies.len(), 256);
    check_unique(diagnostics, path, "name", dependencies.iter().map(|it| it.name.as_str()));
    for (index, dependency) in dependencies.iter().enumerate() {
        let path = path.index(index).field("name");
        check_name(diagnostics, &path, NameKind::Package, &dependency.name);
        if dependency.name == package.name {
            diagnostics.add(&path, "a package cannot depend on itself");
        }
    }
}

fn check_metadata(diagnostics: &mut Diagnostics, path: &Path, metadata: &Metadata) {
    for (field, text, max) in [
        ("description", &metadata.description, 16_384),
        ("author", &metadata.author, 256),
        ("createdBy", &metadata.created_by, 256),
    ] {
        if let Some(text) = text {
            check_length(diagnostics, &path.field(field), text, max);
        }
    }
    let tags = path.field("tags");
    check_count(diagnostics, &tags, metadata.tags.len(), 64);
    check_unique(diagnostics, &tags, "", metadata.tags.iter().map(String::as_str));
    for (index, tag) in metadata.tags.iter().enumerate() {
        check_length(diagnostics, &tags.index(index), tag, 64);
    }
    for (field, map, max) in
        [("labels", &metadata.labels, 256), ("annotations", &metadata.annotations, 16_384)]
    {
        let path = path.field(field);
        check_count(diagnostics, &path, map.len(), 64);
        for (key, value) in map {
            check_length(diagnostics, &path.key(key), key, 256);
            check_max_length(diagnostics, &path.key(key), value, max);
        }
    }
}
