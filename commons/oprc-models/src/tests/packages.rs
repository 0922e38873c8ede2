//! Validation of packages.

use super::{PLAIN, assert_rejected, diagnostics, read, with};

#[test]
fn accepts_a_valid_package() {
    read(PLAIN).check().unwrap();
}

#[test]
fn names_must_be_valid_and_unique() {
    assert_rejected(&with("name: shop", "name: Shop"), "name", 1, "lower-case letters");
    let text = PLAIN.replace("key: buy", "key: b_uy").replace("function: buy", "function: b_uy");
    assert!(
        diagnostics(&text)
            .to_string()
            .starts_with("test.yaml:4:10: functions[0].key: \"b_uy\" is not a valid name")
    );
    assert_rejected(
        &with("  - key: Cart", "  - key: Cart\n  - key: Cart"),
        "classes[1].key",
        10,
        "listed twice",
    );
    let twice = with("function: buy", "function: buy\n      - {name: buy, function: buy}");
    assert_rejected(&twice, "classes[0].functions[1].name", 13, "listed twice");
    let depends = "version: 1.0.0\ndependencies: [{name: shop}]";
    assert_rejected(
        &with("version: 1.0.0", depends),
        "dependencies[0].name",
        3,
        "depend on itself",
    );
}

#[test]
fn function_keys_must_not_differ_only_in_case() {
    assert_rejected(
        &with("  - key: buy", "  - {key: Buy, type: LOGICAL}\n  - key: buy"),
        "functions[1].key",
        5,
        "\"buy\" differs from the function \"Buy\" only in case; rename one of them",
    );
}

#[test]
fn class_keys_must_not_differ_only_in_case() {
    assert_rejected(
        &with("  - key: Cart", "  - key: Cart\n  - key: cart\n  - key: Card"),
        "classes[1].key",
        10,
        "\"cart\" differs from the class \"Cart\" only in case; rename one of them",
    );
}

#[test]
fn requirements_must_be_in_range() {
    let required =
        |text: &str| with("- key: buy", &format!("- key: buy\n    requirements: {text}"));
    assert_rejected(
        &required("{availability: 99.9}"),
        "functions[0].requirements.availability",
        5,
        "for a percentage, use availabilityPct: 99.9",
    );
    assert_rejected(
        &required("{availability: 0.9, availabilityPct: 90}"),
        "functions[0].requirements.availabilityPct",
        5,
        "not both",
    );
    assert_rejected(&required("{latency: 0}"), "functions[0].requirements.latency", 5, "between 1");
    read(&required("{minThroughputRps: 5, max_latency_ms: 10, availability_pct: 99.9}"))
        .check()
        .unwrap();
}

#[test]
fn container_settings_must_be_valid() {
    let deployment = |text: &str| with("image: shop:1", &format!("image: shop:1\n        {text}"));
    for (text, field, message) in [
        ("{}", "", ""),
        ("minScale: 3\n        maxScale: 2", "minScale", "must not exceed maxScale (2)"),
        ("maxScale: 0", "maxScale", "between 1"),
        ("cpu: lots", "cpu", "is not a quantity"),
        ("cpu: 1\n        requestsCpu: 1500m", "requestsCpu", "must not exceed the limit in cpu"),
        ("env: {1A: x}", "env.1A", "not a valid environment variable name"),
        ("env: {PORT: 1}", "env.PORT", "the platform sets this variable"),
        (
            "env: {A: {secret: {name: S, key: k}}}",
            "env.A.secret.name",
            "not a valid Kubernetes object name",
        ),
        ("env: {A: {}}", "env.A", "either secret or configMap"),
        ("volumes: [{mountPath: /a}]", "volumes[0]", "exactly one"),
        ("volumes: [{mountPath: a, claim: c}]", "volumes[0].mountPath", "start with /"),
        ("volumes: [{mountPath: /a, subPath: ../b, claim: c}]", "volumes[0].subPath", "within"),
        ("healthCheck: {path: x}", "healthCheck.path", "start with /"),
        ("port: 0", "port", "between 1"),
        ("security: {runAsUser: -1}", "security.runAsUser", "between 0"),
        ("pullSecrets: [a, a]", "pullSecrets[1]", "twice"),
    ] {
        if !field.is_empty() {
            let line = if text.contains('\n') && !field.starts_with("min") { 9 } else { 8 };
            let path = format!("functions[0].provision.deployment.{field}");
            assert_rejected(&deployment(text), &path, line, message);
        }
    }
}

#[test]
fn only_functions_that_run_need_an_image() {
    assert_rejected(
        &with("image: shop:1", "port: 80"),
        "functions[0].provision.deployment.image",
        7,
        "a function of type TASK runs in a container",
    );
    let logical = with("- key: buy", "- key: buy\n    type: LOGICAL");
    read(&logical).check().unwrap();
    assert_rejected(
        &logical.replace("image: shop:1", "port: 80"),
        "functions[0].provision",
        7,
        "has no effect",
    );
    assert_rejected(
        &with("- key: buy", "- key: buy\n    config: {retries: 11}"),
        "functions[0].config.retries",
        5,
        "11 must be between 0 and 10",
    );
    let condition = format!("function: buy\n        condition: {:?}", "x".repeat(1025));
    assert_rejected(
        &with("function: buy", &condition),
        "classes[0].functions[0].condition",
        13,
        "at most 1024 are allowed",
    );
    assert_rejected(
        &with("- key: buy", "- key: buy\n    macro: {steps: []}"),
        "functions[0].macro",
        5,
        "set type: MACRO",
    );
    let docker = "provision:\n      docker: {image: other:1}";
    assert_rejected(
        &with("provision:", docker),
        "functions[0].provision.docker",
        6,
        "use only one of them",
    );
}

#[test]
fn references_must_exist() {
    assert_rejected(
        &with("function: buy", "function: byu"),
        "classes[0].functions[0].function",
        12,
        "did you mean buy?",
    );
    assert_rejected(
        &with("function: buy", "function: other.buy"),
        "classes[0].functions[0].function",
        12,
        "is not a dependency",
    );
    assert_rejected(
        &with("- key: Cart", "- key: Cart\n    refSpec: [{name: a, class: Kart}]"),
        "classes[0].refSpec[0].class",
        10,
        "did you mean Cart?",
    );
    assert_rejected(
        &with("- key: Cart", "- key: Cart\n    parents: [Base]"),
        "classes[0].parents[0]",
        10,
        "the class \"Base\" does not exist",
    );
    assert_rejected(
        &with("- key: buy", "- key: buy\n    outputCls: Gone"),
        "functions[0].outputCls",
        5,
        "the class \"Gone\" does not exist",
    );
}

#[test]
fn rejects_binding_and_state_settings_without_effect() {
    assert_rejected(
        &with("function: buy", "function: buy\n        asyncExecution: true"),
        "classes[0].functions[0].asyncExecution",
        13,
        "triggered by a state change",
    );
    let two = "function: buy\n        defaultRoute: true\n      - {name: b, function: buy, defaultRoute: true}";
    assert_rejected(
        &with("function: buy", two),
        "classes[0].functions[1].defaultRoute",
        14,
        "another",
    );
    let none = "- key: Cart\n    stateSpec: {defaultProvider: none, persistence: EPHEMERAL}";
    assert_rejected(&with("- key: Cart", none), "classes[0].stateSpec.persistence", 10, "is NONE");
    let foreign = "- key: Cart\n    stateSpec: {defaultProvider: s3}";
    assert_rejected(
        &with("- key: Cart", foreign),
        "classes[0].stateSpec.defaultProvider",
        10,
        "ODGM, NONE",
    );
}

fn flow(steps: &str) -> String {
    format!(
        "{PLAIN}---\nname: flows\nversion: 1.0.0\nfunctions:\n  - key: a\n    provision: {{docker: {{image: a}}}}\n  - key: m\n    type: MACRO\n    macro: {steps}\n"
    )
}

#[test]
fn macro_steps_must_be_valid() {
    let path = "functions[1].macro";
    for (steps, at, message) in [
        ("{steps: []}", ".steps", "at least one step"),
        (
            "{steps: [{function: gone}]}",
            ".steps[0].function",
            "the function \"gone\" does not exist",
        ),
        (
            "{steps: [{function: a, target: later}, {function: a, as: later}]}",
            ".steps[0].target",
            "before",
        ),
        ("{steps: [{function: a, argRefs: {x: none}}]}", ".steps[0].argRefs.x", "does not exist"),
        ("{steps: [{function: a, inputs: ['$$']}]}", ".steps[0].inputs[0]", "use $, $.key"),
        (
            "{steps: [{function: a, as: x}, {function: a, target: x}]}",
            ".steps[1].target",
            "does not return an object",
        ),
        ("{steps: [{function: a, target: $args.x}]}", ".steps[0].target", "is not an object"),
        ("{steps: [{function: a, as: x}, {function: a, as: x}]}", ".steps[1].as", "twice"),
        ("{steps: [{function: a}], output: x}", ".output", "does not exist"),
        ("{steps: [{function: m}]}", "", "calls itself: m → m"),
        (
            "{steps: [{function: a, args: {x: '1'}, argRefs: {x: $}}]}",
            ".steps[0].argRefs.x",
            "also set in args",
        ),
    ] {
        assert_rejected(&flow(steps), &format!("{path}{at}"), 21, message);
    }
    let circle = flow("{steps: [{function: n}]}")
        + "  - key: n\n    type: MACRO\n    macro: {steps: [{function: a}, {function: m}]}\n";
    assert_rejected(&circle, path, 21, "m → n → m");
}

#[test]
fn classes_cannot_inherit_from_themselves() {
    let text = with(
        "- key: Cart",
        "- key: Cart\n    parents: [B]\n  - key: B\n    parents: [C]\n  - key: C\n    parents: [shop.Cart]",
    );
    assert_rejected(&text, "classes[0].parents", 10, "Cart → B → C → Cart");
    assert_rejected(
        &with("- key: Cart", "- key: Cart\n    parents: [Cart]"),
        "classes[0].parents",
        10,
        "Cart → Cart",
    );
}

#[test]
fn reports_all_problems_of_a_package_together() {
    let text = with("image: shop:1", "image: shop:1\n        port: 0\n        cpu: x")
        .replace("function: buy", "function: sell");
    assert_eq!(diagnostics(&text).all.len(), 3);
}
