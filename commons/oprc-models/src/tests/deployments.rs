//! What deployments may say.

use super::{PLAIN, read, refused, with};
use crate::{Body, check_against, resolve};

const DEPLOYMENT: &str = "\
key: prod
package: shop
version: ^1.0
class: Cart
targetEnvs: [dev, prod]
partitionCount: 4
replicaCount: 2
members:
  - {id: 1, env: dev, cluster: a, maxShards: 3}
  - {id: 2, env: prod, cluster: a, forceTemplate: knative}
assignments:
  - {primary: 1, owners: [1, 2], shardIds: [0, 1]}
";

fn but(old: &str, new: &str) -> String {
    assert!(DEPLOYMENT.contains(old));
    DEPLOYMENT.replacen(old, new, 1)
}

#[test]
fn one_that_is_in_order() {
    read(DEPLOYMENT).check().unwrap();
}

#[test]
fn what_is_refused() {
    for (old, new, path, line, message) in [
        ("key: prod", "key: Prod", "key", 1, "is no name"),
        ("package: shop\n", "kind: OClassDeployment\n", "package", 1, "is missing"),
        ("version: ^1.0", "version: newest", "version", 3, "no range"),
        ("class: Cart", "classes: []", "classes", 4, "say which"),
        ("class: Cart", "class: Cart\nclasses: [Cart]", "classes[0]", 5, "twice"),
        ("id: 2", "id: -2", "members[1].id", 10, "less than 0"),
        ("env: prod", "env: test", "members[1].env", 10, "among targetEnvs"),
        ("env: prod, ", "env: dev, ", "members[1]", 10, "same environment and cluster"),
        ("env: prod, ", "", "members[1].env", 10, "say which"),
        ("maxShards: 3", "maxShards: 1", "assignments", 12, "has maxShards 1"),
        ("[1, 2]", "[2]", "assignments[0].owners", 12, "primary, 1,"),
        ("[1, 2]", "[]", "assignments[0].owners", 12, "say which members"),
        ("[1, 2]", "[1, 3]", "assignments[0].owners[1]", 12, "no member 3"),
        ("[0, 1]", "[0, 4]", "assignments[0].shardIds[1]", 12, "between 0 and 3"),
        ("[0, 1]", "[0, 0]", "assignments[0].shardIds[1]", 12, "assigned twice"),
        ("replicaCount: 2", "replicaCount: 1", "assignments[0].owners", 12, "replicaCount, 1"),
        ("class: Cart", "class: Cart\noptions: {replicas: 3}", "options.replicas", 5, "unknown"),
        ("class: Cart", "class: Cart\nstatus: {}", "status", 5, "nobody sets it"),
        ("class: Cart", "class: Cart\npolicy: all", "policy", 5, "BEST_EFFORT, ALL_OR_NOTHING"),
        ("class: Cart", "class: Cart\nodgm: {env: {ODGM_X: 1}}", "odgm.env.ODGM_X", 5, "platform"),
        (
            "class: Cart",
            "class: Cart\nodgm: {events: {enabled: false, triggers: [{function: buy}]}}",
            "odgm.events",
            5,
            "nothing would heed it",
        ),
        (
            "class: Cart",
            "class: Cart\nodgm: {collections: [a, {name: a}]}",
            "odgm.collections[1].name",
            5,
            "twice",
        ),
    ] {
        let text = but(old, new);
        // Assignments name the members as they were.
        let text = if new == "id: -2" { text.replace("[1, 2]", "[1]") } else { text };
        refused(&text, path, line, message);
    }
}

#[test]
fn within_a_package() {
    let inside = |text: &str| format!("{PLAIN}deployments:\n  - {text}\n");
    read(&inside("{key: d, class: Cart}")).check().unwrap();
    for (text, path, message) in [
        ("{key: d, class: Kart}", "deployments[0].class", "did you mean Cart?"),
        ("{key: d, class: Cart, package: x}", "deployments[0].package", "within shop"),
        ("{key: d, class: Cart, version: ^2}", "deployments[0].version", "own, 1.0.0"),
    ] {
        refused(&inside(text), path, 14, message);
    }
    let disabled =
        inside("{key: d, class: Cart}").replace("key: Cart\n", "key: Cart\n    disabled: true\n");
    refused(&disabled, "deployments[0].class", 15, "is disabled");
}

#[test]
fn against_its_package() {
    let resolved = |text: &str| {
        let Body::Package(package) = read(text).body else { unreachable!() };
        resolve(&package, &()).unwrap()
    };
    let Body::Deployment(deployment) = read(DEPLOYMENT).body else { unreachable!() };
    let told = check_against(&deployment, &resolved(PLAIN)).unwrap_err().to_string();
    assert!(told.contains("partitionCount: nothing would heed it"), "{told}");
    assert!(told.contains("members[0].maxShards: nothing would heed it"), "{told}");
    let stateful = with("- key: Cart", "- key: Cart\n    stateSpec: {}");
    check_against(&deployment, &resolved(&stateful)).unwrap();
    let single = with("- key: Cart", "- key: Cart\n    stateType: SINGLETON\n    stateSpec: {}");
    let told = check_against(&deployment, &resolved(&single)).unwrap_err().to_string();
    assert!(told.contains("one object"), "{told}");
    let Body::Deployment(deployment) =
        read(&but("forceTemplate: knative", "standbyFn: [byu]")).body
    else {
        unreachable!()
    };
    let told = check_against(&deployment, &resolved(&stateful)).unwrap_err().to_string();
    assert_eq!(
        told,
        "members[1].standbyFn[0]: \"byu\" is no function of the classes; did you mean buy?"
    );
}

#[test]
fn a_trigger_calls_a_function_of_what_has_state() {
    let text = PLAIN
        .replace("classes:", "  - key: see\n    provision: {docker: {image: see:1}}\nclasses:")
        .replace("- key: Cart", "- key: Cart\n    stateSpec: {}")
        + "  - key: View\n    functions: [{name: see, function: see}]\n";
    let Body::Package(package) = read(&text).body else { unreachable!() };
    let package = resolve(&package, &()).unwrap();
    let told = |function: &str| {
        let text = format!(
            "key: d\npackage: shop\nclasses: [Cart, View]\n\
             odgm: {{events: {{triggers: [{{function: {function}}}]}}}}\n"
        );
        let Body::Deployment(deployment) = read(&text).body else { unreachable!() };
        check_against(&deployment, &package)
    };
    told("buy").unwrap();
    let told = told("see").unwrap_err().to_string();
    assert!(told.starts_with("odgm.events.triggers[0].function: nothing would heed"), "{told}");
}
