//! Packages.

use std::collections::BTreeMap;

use super::{OClass, OClassDeployment, OFunction, Version, VersionRange};
use crate::macros::model;

model! {
    /// A package: classes and functions that are published together under one version.
    OPackage {
        /// The name that all versions share. Goes into `deployment_unit.package`.
        name: String,
        /// The version; what is published under it never changes. Goes into
        /// `deployment_unit.package_version`.
        version: Version,
        /// What people want to know about it, and find it by.
        metadata: Option<Metadata>,
        /// Packages whose classes and functions are used here. PM finds a version of each.
        dependencies: Vec<Dependency>,
        /// The classes.
        classes: Vec<OClass>,
        /// The functions.
        functions: Vec<OFunction>,
        /// Deployments that are published with the package, and made by `oprc deploy` with no
        /// more said.
        deployments: Vec<OClassDeployment>,
    }
    refused {
        "status" => "PM tells it, nobody sets it",
        "_rev" => "PM counts revisions by itself",
        "disabled" => "packages are deprecated through PM; classes can be disabled",
        "apiVersion" => "package files have none; kind tells what they are",
        "createdAt" => "PM notes when a version is published",
        "updatedAt" => "PM notes when a version is published",
    }
}

model! {
    /// What people want to know about a package. PM's catalogue shows it and searches it.
    Metadata {
        /// What it is for.
        description: Option<String>,
        /// Whom to ask about it.
        author: Option<String>,
        /// Who published it, where that isn't the one whose token was used.
        created_by: Option<String>,
        /// Words to find it by.
        tags: Vec<String>,
        /// Keys and values to select it by.
        labels: BTreeMap<String, String>,
        /// Keys and values that nobody selects by.
        annotations: BTreeMap<String, String>,
    }
    refused {
        "createdAt" => "PM notes when a version is published",
        "updatedAt" => "PM notes when a version is published",
        "name" => "stands beside metadata, not in it",
        "version" => "stands beside metadata, not in it",
    }
}

model! {
    /// A package that is needed.
    Dependency {
        /// Its name.
        name: String,
        /// The versions that will do, any unless said otherwise.
        version: VersionRange,
    }
}
