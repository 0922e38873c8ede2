//! Deployments, on their own and within a package.

use std::collections::BTreeSet;

use super::{
    check_count, check_length, check_name, check_range, check_unique, check_url, duplicate, grid,
    placement,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{OClassDeployment, OPackage, Options},
    names::{NameKind, closest_match, quote},
};

/// Validates a deployment without its package.
pub fn check_deployment(deployment: &OClassDeployment) -> Result<(), Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let root = Path::default();
    check_fields(&mut diagnostics, &root, deployment);
    if deployment.package.is_none() {
        diagnostics.add(&root.field("package"), "is required");
    }
    diagnostics.or(())
}

/// Validates a deployment that is published with its package.
pub(super) fn check_in_package(
    diagnostics: &mut Diagnostics,
    path: &Path,
    deployment: &OClassDeployment,
    package: &OPackage,
) {
    check_fields(diagnostics, path, deployment);
    if deployment.package.as_ref().is_some_and(|of| *of != package.name) {
        let message = format!("must be {} or absent, as the package contains it", package.name);
        diagnostics.add(&path.field("package"), message);
    }
    if let Some(range) = deployment.version.as_ref().filter(|it| !it.matches(&package.version)) {
        let message = format!("{range} does not match the package version {}", package.version);
        diagnostics.add(&path.field("version"), message);
    }
    let known = || package.classes.iter().map(|class| class.key.as_str());
    for (path, class) in class_fields(path, deployment) {
        match package.classes.iter().find(|it| it.key == class) {
            None => add_unknown_class(diagnostics, &path, class, known()),
            Some(found) if found.disabled => add_disabled_class(diagnostics, &path, class),
            Some(_) => {}
        }
    }
}

pub(crate) fn add_unknown_class<'a>(
    diagnostics: &mut Diagnostics,
    path: &Path,
    class: &str,
    known: impl Iterator<Item = &'a str>,
) {
    let message = format!("the class {} does not exist in the package", quote(class));
    diagnostics.add_with_suggestion(path, message, closest_match(class, known));
}

pub(crate) fn add_disabled_class(diagnostics: &mut Diagnostics, path: &Path, class: &str) {
    diagnostics.add(path, format!("the class {} is disabled", quote(class)));
}

/// The classes of a deployment, from `class` and `classes`, with their paths.
pub(crate) fn class_fields<'a>(
    path: &Path,
    deployment: &'a OClassDeployment,
) -> impl Iterator<Item = (Path, &'a str)> {
    let one = deployment.class.iter().map({
        let path = path.field("class");
        move |class| (path.clone(), class.as_str())
    });
    let path = path.field("classes");
    let many = deployment.classes.iter().enumerate();
    one.chain(many.map(move |(index, class)| (path.index(index), class.as_str())))
}

fn check_fields(diagnostics: &mut Diagnostics, path: &Path, deployment: &OClassDeployment) {
    check_name(diagnostics, &path.field("key"), NameKind::Deployment, &deployment.key);
    if let Some(package) = &deployment.package {
        check_name(diagnostics, &path.field("package"), NameKind::Package, package);
    }
    check_classes(diagnostics, path, deployment);
    for (field, kind, names) in [
        ("targetEnvs", NameKind::Environment, &deployment.target_envs),
        ("targetClusters", NameKind::Cluster, &deployment.target_clusters),
    ] {
        let path = path.field(field);
        check_count(diagnostics, &path, names.len(), 256);
        check_unique(diagnostics, &path, "", names.iter().map(String::as_str));
        for (index, name) in names.iter().enumerate() {
            check_name(diagnostics, &path.index(index), kind, name);
        }
    }
    if let Some(namespace) = &deployment.namespace {
        check_name(diagnostics, &path.field("namespace"), NameKind::Environment, namespace);
    }
    check_range(diagnostics, &path.field("partitionCount"), deployment.partition_count, 1, 4096);
    check_range(diagnostics, &path.field("replicaCount"), deployment.replica_count, 1, 99);
    placement::check_members(diagnostics, &path.field("members"), deployment);
    let assignments = &deployment.assignments;
    placement::check_assignments(diagnostics, &path.field("assignments"), deployment, assignments);
    if let Some(template) = &deployment.template {
        check_length(diagnostics, &path.field("template"), template, 63);
    }
    if let Some(enforcement) = &deployment.enforcement {
        let path = path.field("enforcement").field("dimensions");
        check_unique(diagnostics, &path, "", enforcement.dimensions.iter().map(|it| it.as_str()));
    }
    if let Some(options) = &deployment.options {
        check_options(diagnostics, &path.field("options"), options);
    }
    if let Some(grid) = &deployment.odgm {
        grid::check(diagnostics, &path.field("odgm"), grid, deployment);
    }
}

fn check_classes(diagnostics: &mut Diagnostics, path: &Path, deployment: &OClassDeployment) {
    if deployment.classes().next().is_none() {
        diagnostics.add(&path.field("classes"), "set class or classes");
    }
    check_count(diagnostics, &path.field("classes"), deployment.classes.len(), 256);
    let mut seen = BTreeSet::new();
    for (path, class) in class_fields(path, deployment) {
        check_name(diagnostics, &path, NameKind::Identifier, class);
        if !seen.insert(class) {
            diagnostics.add(&path, duplicate(class));
        }
    }
}

fn check_options(diagnostics: &mut Diagnostics, path: &Path, options: &Options) {
    let deadline = options.progress_deadline_seconds;
    check_range(diagnostics, &path.field("progressDeadlineSeconds"), deadline, 1, 86_400);
    check_range(diagnostics, &path.field("drainSeconds"), options.drain_seconds, 0, 3600);
    if let Some(metrics_path) = &options.metrics_path
        && (!metrics_path.starts_with('/') || metrics_path.len() > 256)
    {
        let given = quote(metrics_path);
        let message = format!("{given} must start with / and have at most 256 characters");
        diagnostics.add(&path.field("metricsPath"), message);
    }
    if let Some(endpoint) = &options.otlp_endpoint {
        let schemes = ["http://", "https://"];
        check_url(diagnostics, &path.field("otlpEndpoint"), endpoint, &schemes, 1024);
    }
}
