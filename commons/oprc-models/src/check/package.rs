//! Packages as a whole.

use std::collections::BTreeSet;

use super::{class, deployment, flow, function, length, many, name, unique};
use crate::{
    fault::{Faults, Path},
    model::{Metadata, OPackage},
    names::Name,
};

/// How many classes a package may have.
pub(crate) const MAX_CLASSES: usize = 256;

/// What a package has that its parts refer to.
pub(super) struct Known<'a> {
    pub(super) classes: BTreeSet<&'a str>,
    pub(super) functions: BTreeSet<&'a str>,
    pub(super) dependencies: BTreeSet<&'a str>,
}

/// Everything that is wrong with what a package says, as far as it can be seen without its
/// dependencies.
pub fn check(package: &OPackage) -> Result<(), Faults> {
    let mut faults = Faults::default();
    let root = Path::default();
    name(&mut faults, &root.field("name"), Name::Package, &package.name);
    if let Some(about) = &package.metadata {
        metadata(&mut faults, &root.field("metadata"), about);
    }
    let known = Known {
        classes: package.classes.iter().map(|it| it.key.as_str()).collect(),
        functions: package.functions.iter().map(|it| it.key.as_str()).collect(),
        dependencies: package.dependencies.iter().map(|it| it.name.as_str()).collect(),
    };
    dependencies(&mut faults, &root.field("dependencies"), package);
    let functions = package.functions.iter().map(|it| (it.key.as_str(), it)).collect();
    let path = root.field("functions");
    many(&mut faults, &path, &package.functions, 1024);
    unique(&mut faults, &path, "key", package.functions.iter().map(|it| it.key.as_str()));
    for (at, function) in package.functions.iter().enumerate() {
        function::check(&mut faults, &path.index(at), function, &functions, &known);
    }
    flow::cycles(&mut faults, &path, &package.functions);
    let path = root.field("classes");
    many(&mut faults, &path, &package.classes, MAX_CLASSES);
    unique(&mut faults, &path, "key", package.classes.iter().map(|it| it.key.as_str()));
    for (at, class) in package.classes.iter().enumerate() {
        class::check(&mut faults, &path.index(at), class, package, &known);
    }
    class::cycles(&mut faults, &path, package);
    let path = root.field("deployments");
    many(&mut faults, &path, &package.deployments, 256);
    unique(&mut faults, &path, "key", package.deployments.iter().map(|it| it.key.as_str()));
    for (at, of) in package.deployments.iter().enumerate() {
        deployment::within(&mut faults, &path.index(at), of, package);
    }
    if package.classes.is_empty() && package.functions.is_empty() {
        faults.add(&root, "has neither classes nor functions");
    }
    faults.or(())
}

fn dependencies(faults: &mut Faults, path: &Path, package: &OPackage) {
    many(faults, path, &package.dependencies, 256);
    unique(faults, path, "name", package.dependencies.iter().map(|it| it.name.as_str()));
    for (at, dependency) in package.dependencies.iter().enumerate() {
        let path = path.index(at).field("name");
        name(faults, &path, Name::Package, &dependency.name);
        if dependency.name == package.name {
            faults.add(&path, "a package can't depend on itself");
        }
    }
}

fn metadata(faults: &mut Faults, path: &Path, metadata: &Metadata) {
    for (field, text, most) in [
        ("description", &metadata.description, 16_384),
        ("author", &metadata.author, 256),
        ("createdBy", &metadata.created_by, 256),
    ] {
        if let Some(text) = text {
            length(faults, &path.field(field), text, most);
        }
    }
    let tags = path.field("tags");
    many(faults, &tags, &metadata.tags, 64);
    unique(faults, &tags, "", metadata.tags.iter().map(String::as_str));
    for (at, tag) in metadata.tags.iter().enumerate() {
        length(faults, &tags.index(at), tag, 64);
    }
    for (field, map, most) in
        [("labels", &metadata.labels, 256), ("annotations", &metadata.annotations, 16_384)]
    {
        let path = path.field(field);
        if map.len() > 64 {
            faults.add(&path, format!("there are {}, and 64 are allowed", map.len()));
        }
        for (key, value) in map {
            length(faults, &path.key(key), key, 256);
            if value.len() > most {
                faults.add(&path.key(key), format!("must have {most} characters at most"));
            }
        }
    }
}
