//! What packages may say.

use super::{PLAIN, faults, read, refused, with};

#[test]
fn plain_is_in_order() {
    read(PLAIN).check().unwrap();
}

#[test]
fn names_versions_and_uniqueness() {
    refused(&with("name: shop", "name: Shop"), "name", 1, "small letters");
    let text = PLAIN.replace("key: buy", "key: b_uy").replace("function: buy", "function: b_uy");
    assert!(
        faults(&text)
            .to_string()
            .starts_with("test.yaml:4:10: functions[0].key: \"b_uy\" is no name")
    );
    refused(
        &with("  - key: Cart", "  - key: Cart\n  - key: Cart"),
        "classes[1].key",
        10,
        "given twice",
    );
    let twice = with("function: buy", "function: buy\n      - {name: buy, function: buy}");
    refused(&twice, "classes[0].functions[1].name", 13, "given twice");
    let depends = "version: 1.0.0\ndependencies: [{name: shop}]";
    refused(&with("version: 1.0.0", depends), "dependencies[0].name", 3, "depend on itself");
}

#[test]
fn availability_is_a_fraction() {
    let required =
        |text: &str| with("- key: buy", &format!("- key: buy\n    requirements: {text}"));
    refused(
        &required("{availability: 99.9}"),
        "functions[0].requirements.availability",
        5,
        "for percent there is availabilityPct: 99.9",
    );
    refused(
        &required("{availability: 0.9, availabilityPct: 90}"),
        "functions[0].requirements.availabilityPct",
        5,
        "give one",
    );
    refused(&required("{latency: 0}"), "functions[0].requirements.latency", 5, "between 1");
    read(&required("{minThroughputRps: 5, max_latency_ms: 10, availability_pct: 99.9}"))
        .check()
        .unwrap();
}

#[test]
fn containers() {
    let deployment = |text: &str| with("image: shop:1", &format!("image: shop:1\n        {text}"));
    for (text, field, message) in [
        ("{}", "", ""),
        ("minScale: 3\n        maxScale: 2", "minScale", "more than maxScale"),
        ("maxScale: 0", "maxScale", "between 1"),
        ("cpu: lots", "cpu", "no amount"),
        ("cpu: 1\n        requestsCpu: 1500m", "requestsCpu", "more than the limit"),
        ("env: {1A: x}", "env.1A", "no name of a variable"),
        ("env: {PORT: 1}", "env.PORT", "set by the platform"),
        ("env: {A: {secret: {name: S, key: k}}}", "env.A.secret.name", "no name of an object"),
        ("env: {A: {}}", "env.A", "either secret or configMap"),
        ("volumes: [{mountPath: /a}]", "volumes[0]", "exactly one"),
        ("volumes: [{mountPath: a, claim: c}]", "volumes[0].mountPath", "begin with /"),
        ("volumes: [{mountPath: /a, subPath: ../b, claim: c}]", "volumes[0].subPath", "within"),
        ("healthCheck: {path: x}", "healthCheck.path", "begin with /"),
        ("port: 0", "port", "between 1"),
        ("security: {runAsUser: -1}", "security.runAsUser", "between 0"),
        ("pullSecrets: [a, a]", "pullSecrets[1]", "twice"),
    ] {
        if !field.is_empty() {
            let line = if text.contains('\n') && !field.starts_with("min") { 9 } else { 8 };
            let path = format!("functions[0].provision.deployment.{field}");
            refused(&deployment(text), &path, line, message);
        }
    }
}

#[test]
fn what_must_run_needs_an_image_and_what_does_not_has_none() {
    refused(
        &with("image: shop:1", "port: 80"),
        "functions[0].provision.deployment.image",
        7,
        "a TASK runs in a container",
    );
    let logical = with("- key: buy", "- key: buy\n    type: LOGICAL");
    read(&logical).check().unwrap();
    refused(
        &logical.replace("image: shop:1", "port: 80"),
        "functions[0].provision",
        7,
        "nothing would heed it",
    );
    refused(
        &with("- key: buy", "- key: buy\n    macro: {steps: []}"),
        "functions[0].macro",
        5,
        "say type: MACRO",
    );
    let docker = "provision:\n      docker: {image: other:1}";
    refused(&with("provision:", docker), "functions[0].provision.docker", 6, "one is enough");
}

#[test]
fn references_must_lead_somewhere() {
    refused(
        &with("function: buy", "function: byu"),
        "classes[0].functions[0].function",
        12,
        "did you mean buy?",
    );
    refused(
        &with("function: buy", "function: other.buy"),
        "classes[0].functions[0].function",
        12,
        "isn't among the dependencies",
    );
    refused(
        &with("- key: Cart", "- key: Cart\n    refSpec: [{name: a, class: Kart}]"),
        "classes[0].refSpec[0].class",
        10,
        "did you mean Cart?",
    );
    refused(
        &with("- key: Cart", "- key: Cart\n    parents: [Base]"),
        "classes[0].parents[0]",
        10,
        "no class \"Base\"",
    );
    refused(
        &with("- key: buy", "- key: buy\n    outputCls: Gone"),
        "functions[0].outputCls",
        5,
        "no class",
    );
}

#[test]
fn bindings_that_nothing_would_heed() {
    refused(
        &with("function: buy", "function: buy\n        asyncExecution: true"),
        "classes[0].functions[0].asyncExecution",
        13,
        "only calls that a change",
    );
    let two = "function: buy\n        defaultRoute: true\n      - {name: b, function: buy, defaultRoute: true}";
    refused(&with("function: buy", two), "classes[0].functions[1].defaultRoute", 14, "another");
    let none = "- key: Cart\n    stateSpec: {defaultProvider: none, persistence: EPHEMERAL}";
    refused(&with("- key: Cart", none), "classes[0].stateSpec.persistence", 10, "is NONE");
    let foreign = "- key: Cart\n    stateSpec: {defaultProvider: s3}";
    refused(
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
fn macros() {
    let path = "functions[1].macro";
    for (steps, at, message) in [
        ("{steps: []}", ".steps", "needs steps"),
        ("{steps: [{function: gone}]}", ".steps[0].function", "no function"),
        (
            "{steps: [{function: a, target: later}, {function: a, as: later}]}",
            ".steps[0].target",
            "before",
        ),
        ("{steps: [{function: a, argRefs: {x: none}}]}", ".steps[0].argRefs.x", "no step"),
        ("{steps: [{function: a, inputs: ['$$']}]}", ".steps[0].inputs[0]", "allowed are $"),
        (
            "{steps: [{function: a, as: x}, {function: a, target: x}]}",
            ".steps[1].target",
            "no object",
        ),
        ("{steps: [{function: a, target: $args.x}]}", ".steps[0].target", "is no object"),
        ("{steps: [{function: a, as: x}, {function: a, as: x}]}", ".steps[1].as", "twice"),
        ("{steps: [{function: a}], output: x}", ".output", "no step"),
        ("{steps: [{function: m}]}", "", "calls itself: m → m"),
        (
            "{steps: [{function: a, args: {x: '1'}, argRefs: {x: $}}]}",
            ".steps[0].argRefs.x",
            "args too",
        ),
    ] {
        refused(&flow(steps), &format!("{path}{at}"), 21, message);
    }
    let circle = flow("{steps: [{function: n}]}")
        + "  - key: n\n    type: MACRO\n    macro: {steps: [{function: a}, {function: m}]}\n";
    refused(&circle, path, 21, "m → n → m");
}

#[test]
fn classes_that_inherit_from_themselves() {
    let text = with(
        "- key: Cart",
        "- key: Cart\n    parents: [B]\n  - key: B\n    parents: [C]\n  - key: C\n    parents: [shop.Cart]",
    );
    refused(&text, "classes[0].parents", 10, "Cart → B → C → Cart");
    refused(
        &with("- key: Cart", "- key: Cart\n    parents: [Cart]"),
        "classes[0].parents",
        10,
        "Cart → Cart",
    );
}

#[test]
fn many_faults_of_one_package_are_told_together() {
    let text = with("image: shop:1", "image: shop:1\n        port: 0\n        cpu: x")
        .replace("function: buy", "function: sell");
    assert_eq!(faults(&text).all.len(), 3);
}
