//! Tests of the planner.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod accepted;
mod decisions;
mod golden;
mod members;
mod numbers;
mod proof;
mod properties;
mod warnings;

use std::collections::BTreeMap;

use oprc_models::{Body, Diagnostics, OClassDeployment, ResolvedPackage, parse, resolve};
use oprc_rest::{Plan, UnitPlan};
use oprc_unit::{Capacity, Platform, Profile, UnitSpec};

use super::{ClusterFacts, Defaults, Request, plan};

/// A platform with every feature.
fn platform(profile: Profile) -> Platform {
    let mut platform = Platform::of(profile);
    platform.features.odgm = true;
    platform.features.hpa = true;
    platform.knative = true;
    platform.autoscaling = true;
    platform
}

/// A cluster with every feature.
fn cluster() -> ClusterFacts {
    ClusterFacts {
        default: true,
        reachable: true,
        nodes_known: true,
        ready_nodes: 5,
        node_availability: None,
        platform: Some(platform(Profile::Dev)),
        measures_requirements: Some(true),
        enforces_requirements: Some(true),
        capacity: Some(Capacity { cpu_millis: 16_000, memory_bytes: 32 << 30 }),
        requested: Capacity::default(),
        environments: Vec::new(),
    }
}

fn clusters<const N: usize>(all: [(&str, ClusterFacts); N]) -> BTreeMap<String, ClusterFacts> {
    all.map(|(name, facts)| (name.to_owned(), facts)).into()
}

/// The package of a file, and its deployments.
fn read(text: &str) -> (ResolvedPackage, Vec<OClassDeployment>) {
    let documents = parse(text, "file.yaml").unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let mut package = None;
    let mut deployments = Vec::new();
    for document in &documents {
        document.check().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
        match &document.body {
            Body::Package(it) => {
                package =
                    Some(resolve(it, &()).unwrap_or_else(|diagnostics| panic!("{diagnostics}")));
                deployments.extend(it.deployments.iter().cloned());
            }
            Body::Deployment(it) => deployments.push((**it).clone()),
        }
    }
    (package.expect("a package"), deployments)
}

fn example(name: &str) -> (ResolvedPackage, Vec<OClassDeployment>) {
    let path = format!("{}/../../examples/packages/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    read(&std::fs::read_to_string(path).unwrap())
}

fn planned(
    package: &ResolvedPackage,
    deployment: &OClassDeployment,
    clusters: &BTreeMap<String, ClusterFacts>,
) -> Result<Plan, Diagnostics> {
    let defaults = Defaults::default();
    plan(&Request { deployment, package, clusters, defaults: &defaults, current: None })
}

fn spec(unit: &UnitPlan) -> UnitSpec {
    unit.spec.clone()
}

fn because<'a>(unit: &'a UnitPlan, field: &str) -> &'a str {
    let reason = unit.reasons.iter().find(|it| it.field == field);
    &reason.unwrap_or_else(|| panic!("no reason for {field}: {:?}", unit.reasons)).because
}

/// A package of one class: `class` is added to the class, and `more` to the only deployment.
fn shop(class: &str, more: &str) -> (ResolvedPackage, OClassDeployment) {
    let (package, mut deployments) = read(&format!(
        r"
name: shop
version: 1.0.0
functions:
  - key: buy
    provision: {{docker: {{image: shop/buy:1, minScale: 1, maxScale: 4, requestsCpu: 100m, requestsMemory: 64Mi}}}}
  - key: sell
    provision: {{docker: {{image: shop/sell:1, requestsCpu: 50m}}}}
    requirements: {{availability: 0.99}}
classes:
  - key: Cart
    functions: [{{name: buy, function: buy}}, {{name: sell, function: sell}}]
{class}
deployments:
  - key: shop
    class: Cart
{more}
"
    ));
    (package, deployments.remove(0))
}

/// A package of one class with one function, provisioned as `form`; `function` is added to the
/// function, and `deployment` to the only deployment.
fn single(form: &str, function: &str, deployment: &str) -> (ResolvedPackage, OClassDeployment) {
    let (package, mut deployments) = read(&format!(
        "name: s\nversion: 1.0.0\nfunctions:\n  - key: f\n    provision: {{{form}}}\n{function}\n\
         classes:\n  - key: C\n    functions: [{{name: f, function: f}}]\n\
         deployments:\n  - {{key: d, class: C{deployment}}}\n"
    ));
    (package, deployments.remove(0))
}
