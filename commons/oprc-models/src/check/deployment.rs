//! Deployments, on their own and within a package.

use std::collections::BTreeSet;

use super::{duplicate, grid, placement};
use crate::{
    diagnostics::{Diagnostics, FieldCursor},
    limits,
    model::{OClassDeployment, OPackage, Options},
    names::{NameKind, closest_match, quote},
};

/// Validates a deployment without its package.
pub fn check_deployment(deployment: &OClassDeployment) -> Result<(), Diagnostics> {
    Diagnostics::collect(|root| {
        check_fields(root, deployment);
        if deployment.package.is_none() {
            root.field("package").add("is required");
        }
    })
}

/// Validates a deployment that is published with its package.
pub(super) fn check_in_package(
    at: &FieldCursor<'_>,
    deployment: &OClassDeployment,
    package: &OPackage,
) {
    check_fields(at, deployment);
    if deployment.package.as_ref().is_some_and(|of| *of != package.name) {
        let message = format!("must be {} or absent, as the package contains it", package.name);
        at.field("package").add(message);
    }
    if let Some(range) = deployment.version.as_ref().filter(|it| !it.matches(&package.version)) {
        let message = format!("{range} does not match the package version {}", package.version);
        at.field("version").add(message);
    }
    let known = || package.classes.iter().map(|class| class.key.as_str());
    for (at, class) in class_fields(at, deployment) {
        match package.classes.iter().find(|it| it.key == class) {
            None => add_unknown_class(&at, class, known()),
            Some(found) if found.disabled => add_disabled_class(&at, class),
            Some(_) => {}
        }
    }
}

pub(crate) fn add_unknown_class<'a>(
    at: &FieldCursor<'_>,
    class: &str,
    known: impl Iterator<Item = &'a str>,
) {
    let message = format!("the class {} does not exist in the package", quote(class));
    at.add_with_suggestion(message, closest_match(class, known));
}

pub(crate) fn add_disabled_class(at: &FieldCursor<'_>, class: &str) {
    at.add(format!("the class {} is disabled", quote(class)));
}

/// The classes of a deployment, from `class` and `classes`.
pub(crate) fn class_fields<'a>(
    at: &FieldCursor<'a>,
    deployment: &'a OClassDeployment,
) -> Vec<(FieldCursor<'a>, &'a str)> {
    let one = deployment.class.iter().map(|class| (at.field("class"), class));
    let many = at.field("classes");
    one.chain(many.items(&deployment.classes)).map(|(at, class)| (at, class.as_str())).collect()
}

fn check_fields(at: &FieldCursor<'_>, deployment: &OClassDeployment) {
    at.field("key").name(NameKind::Deployment, &deployment.key);
    at.field("package").name(NameKind::Package, deployment.package.as_ref());
    check_classes(at, deployment);
    for (field, kind, names) in [
        ("targetEnvs", NameKind::Environment, &deployment.target_envs),
        ("targetClusters", NameKind::Cluster, &deployment.target_clusters),
    ] {
        for (at, name) in at.field(field).unique(256, names, "", |it| it) {
            at.name(kind, name);
        }
    }
    at.field("namespace").name(NameKind::Environment, deployment.namespace.as_ref());
    at.field("partitionCount").range(deployment.partition_count, limits::PARTITIONS);
    at.field("replicaCount").range(deployment.replica_count, limits::REPLICAS);
    placement::check_members(&at.field("members"), deployment);
    placement::check_assignments(&at.field("assignments"), deployment, &deployment.assignments);
    at.field("template").length(deployment.template.as_ref(), limits::LABEL);
    if let Some(enforcement) = &deployment.enforcement {
        let at = at.field("enforcement").field("dimensions");
        at.distinct(usize::MAX, &enforcement.dimensions, "", |it| it.as_str());
    }
    if let Some(options) = &deployment.options {
        check_options(&at.field("options"), options);
    }
    if let Some(grid) = &deployment.odgm {
        grid::check(&at.field("odgm"), grid, deployment);
    }
}

fn check_classes(at: &FieldCursor<'_>, deployment: &OClassDeployment) {
    if deployment.classes().next().is_none() {
        at.field("classes").add("set class or classes");
    }
    at.field("classes").count(deployment.classes.len(), 256);
    let mut seen = BTreeSet::new();
    for (at, class) in class_fields(at, deployment) {
        if let Some(message) = NameKind::Identifier.violation(class) {
            at.add(message);
        }
        if !seen.insert(class) {
            at.add(duplicate(class));
        }
    }
}

fn check_options(at: &FieldCursor<'_>, options: &Options) {
    let deadline = options.progress_deadline_seconds;
    at.field("progressDeadlineSeconds").range(deadline, limits::PROGRESS_DEADLINE_SECONDS);
    at.field("drainSeconds").range(options.drain_seconds, limits::DRAIN_SECONDS);
    if let Some(path) = &options.metrics_path
        && (!path.starts_with('/') || path.len() > limits::METRICS_PATH)
    {
        let (path, max) = (quote(path), limits::METRICS_PATH);
        let message = format!("{path} must start with / and have at most {max} characters");
        at.field("metricsPath").add(message);
    }
    if let Some(endpoint) = &options.otlp_endpoint {
        at.field("otlpEndpoint").url(endpoint, &["http://", "https://"], limits::OTLP_ENDPOINT);
    }
}
