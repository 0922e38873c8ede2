//! Packages.

use std::collections::BTreeMap;

use super::{OClass, OClassDeployment, OFunction, Version, VersionRange};
use crate::macros::models;

models! {
    /// Classes and functions that are published together under one version.
    OPackage {
        /// Name of the package, shared by all versions. Sent to CRM as `deployment_unit.package`.
        name: String,
        /// Semantic version; a published version never changes. Sent to CRM as
        /// `deployment_unit.package_version`.
        version: Version,
        /// Description, tags and labels.
        metadata: Option<Metadata>,
        /// Packages whose classes and functions are used. PM selects a version of each.
        dependencies: Vec<Dependency>,
        /// Classes of the package.
        classes: Vec<OClass>,
        /// Functions of the package.
        functions: Vec<OFunction>,
        /// Deployments that are published with the package; `oprc deploy` applies them by default.
        deployments: Vec<OClassDeployment>,
    }
    => rejected {
        "status" => "it is set by PM",
        "_rev" => "PM counts revisions",
        "disabled" => "deprecate the package in PM, or disable its classes",
        "apiVersion" => "package files have no API version; use kind",
        "createdAt" => "PM records when a version is published",
        "updatedAt" => "PM records when a version is published",
    }

    /// Information about a package, shown and searched by the catalogue.
    Metadata {
        /// Purpose of the package.
        description: Option<String>,
        /// Contact for the package.
        author: Option<String>,
        /// Publisher; the default is the owner of the API token.
        created_by: Option<String>,
        /// Search terms.
        tags: Vec<String>,
        /// Keys and values for label selectors.
        labels: BTreeMap<String, String>,
        /// Keys and values that are not used for selection.
        annotations: BTreeMap<String, String>,
    }
    => rejected {
        "createdAt" => "PM records when a version is published",
        "updatedAt" => "PM records when a version is published",
        "name" => "set it on the package itself",
        "version" => "set it on the package itself",
    }

    /// A package that this package uses.
    Dependency {
        /// Name of the package.
        name: String,
        /// Allowed versions; by default any.
        version: VersionRange,
    }
}
