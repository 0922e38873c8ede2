//! Validation of deployments.

use super::{PLAIN, assert_rejected, read, with};
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

fn replacing(old: &str, new: &str) -> String {
    assert!(DEPLOYMENT.contains(old));
    DEPLOYMENT.replacen(old, new, 1)
}

#[test]
fn accepts_a_valid_deployment() {
    read(DEPLOYMENT).check().unwrap();
}

#[test]
fn rejects_invalid_fields() {
    for (old, new, path, line, message) in [
        ("key: prod", "key: Prod", "key", 1, "is not a valid name"),
        ("package: shop\n", "kind: OClassDeployment\n", "package", 1, "is required"),
        ("version: ^1.0", "version: newest", "version", 3, "a range such as"),
        ("class: Cart", "classes: []", "classes", 4, "set class or classes"),
        ("class: Cart", "class: Cart\nclasses: [Cart]", "classes[0]", 5, "twice"),
        ("id: 2", "id: -2", "members[1].id", 10, "must not be negative"),
        ("env: prod", "env: test", "members[1].env", 10, "not in targetEnvs"),
        ("env: prod, ", "env: dev, ", "members[1]", 10, "same environment and cluster"),
        ("env: prod, ", "", "members[1].env", 10, "targetEnvs has several"),
        ("maxShards: 3", "maxShards: 1", "assignments", 12, "its maxShards is 1"),
        ("[1, 2]", "[2]", "assignments[0].owners", 12, "must include the primary, 1"),
        ("[1, 2]", "[]", "assignments[0].owners", 12, "at least one member"),
        ("[1, 2]", "[1, 3]", "assignments[0].owners[1]", 12, "the member 3 does not exist"),
        ("[0, 1]", "[0, 4]", "assignments[0].shardIds[1]", 12, "between 0 and 3"),
        ("[0, 1]", "[0, 0]", "assignments[0].shardIds[1]", 12, "assigned twice"),
        (
            "class: Cart",
            "class: Cart\noptions: {replicas: 3}",
            "options.replicas",
            5,
            "not a known field",
        ),
        ("class: Cart", "class: Cart\nstatus: {}", "status", 5, "it is set by PM"),
        ("class: Cart", "class: Cart\npolicy: all", "policy", 5, "BEST_EFFORT, ALL_OR_NOTHING"),
        (
            "class: Cart",
            "class: Cart\nodgm: {env: {ODGM_X: 1}}",
            "odgm.env.ODGM_X",
            5,
            "the platform sets",
        ),
        (
            "class: Cart",
            "class: Cart\nodgm: {events: {enabled: false, triggers: [{function: buy}]}}",
            "odgm.events",
            5,
            "have no effect with enabled: false",
        ),
        (
            "class: Cart",
            "class: Cart\nodgm: {collections: [a, {name: a}]}",
            "odgm.collections[1].name",
            5,
            "twice",
        ),
    ] {
        let text = replacing(old, new);
        // The assignment refers to the original id.
        let text = if new == "id: -2" { text.replace("[1, 2]", "[1]") } else { text };
        assert_rejected(&text, path, line, message);
    }
}

#[test]
fn a_deployment_within_a_package_must_match_it() {
    let inside = |text: &str| format!("{PLAIN}deployments:\n  - {text}\n");
    read(&inside("{key: d, class: Cart}")).check().unwrap();
    for (text, path, message) in [
        ("{key: d, class: Kart}", "deployments[0].class", "did you mean Cart?"),
        ("{key: d, class: Cart, package: x}", "deployments[0].package", "must be shop"),
        ("{key: d, class: Cart, version: ^2}", "deployments[0].version", "package version 1.0.0"),
    ] {
        assert_rejected(&inside(text), path, 14, message);
    }
    let disabled =
        inside("{key: d, class: Cart}").replace("key: Cart\n", "key: Cart\n    disabled: true\n");
    assert_rejected(&disabled, "deployments[0].class", 15, "is disabled");
}

#[test]
fn a_deployment_must_match_its_resolved_package() {
    let resolved = |text: &str| {
        let Body::Package(package) = read(text).body else { unreachable!() };
        resolve(&package, &()).unwrap()
    };
    let Body::Deployment(deployment) = read(DEPLOYMENT).body else { unreachable!() };
    let messages = check_against(&deployment, &resolved(PLAIN)).unwrap_err().to_string();
    assert!(messages.contains("partitionCount: has no effect"), "{messages}");
    assert!(messages.contains("members[0].maxShards: has no effect"), "{messages}");
    let stateful = with("- key: Cart", "- key: Cart\n    stateSpec: {}");
    check_against(&deployment, &resolved(&stateful)).unwrap();
    let single = with("- key: Cart", "- key: Cart\n    stateType: SINGLETON\n    stateSpec: {}");
    let messages = check_against(&deployment, &resolved(&single)).unwrap_err().to_string();
    assert!(messages.contains("one object"), "{messages}");
    let Body::Deployment(deployment) =
        read(&replacing("forceTemplate: knative", "standbyFn: [byu]")).body
    else {
        unreachable!()
    };
    let messages = check_against(&deployment, &resolved(&stateful)).unwrap_err().to_string();
    assert_eq!(
        messages,
        "members[1].standbyFn[0]: the deployed classes have no function \"byu\"; did you mean buy?"
    );
}

#[test]
fn triggers_need_a_class_with_state() {
    let text = PLAIN
        .replace("classes:", "  - key: see\n    provision: {docker: {image: see:1}}\nclasses:")
        .replace("- key: Cart", "- key: Cart\n    stateSpec: {}")
        + "  - key: View\n    functions: [{name: see, function: see}]\n";
    let Body::Package(package) = read(&text).body else { unreachable!() };
    let package = resolve(&package, &()).unwrap();
    let messages = |function: &str| {
        let text = format!(
            "key: d\npackage: shop\nclasses: [Cart, View]\n\
             odgm: {{events: {{triggers: [{{function: {function}}}]}}}}\n"
        );
        let Body::Deployment(deployment) = read(&text).body else { unreachable!() };
        check_against(&deployment, &package)
    };
    messages("buy").unwrap();
    let messages = messages("see").unwrap_err().to_string();
    assert!(messages.starts_with("odgm.events.triggers[0].function: has no effect"), "{messages}");
}
