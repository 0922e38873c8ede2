//! The plans of the examples.

use super::{cluster, clusters, example, planned};
use crate::planner::ClusterFacts;

fn golden(name: &str) {
    let (package, deployments) = example(name);
    let nodes = ClusterFacts { node_availability: Some(0.98), ..cluster() };
    let clusters = clusters([("local", nodes)]);
    for deployment in deployments {
        let plan = planned(&package, &deployment, &clusters).unwrap();
        insta::assert_yaml_snapshot!(format!("plan-{}", deployment.key), plan);
    }
}

#[test]
fn hello() {
    golden("hello");
}

#[test]
fn counter() {
    golden("counter");
}

#[test]
fn shapes() {
    golden("shapes");
}
