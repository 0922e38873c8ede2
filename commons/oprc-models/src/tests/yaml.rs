//! Reading YAML and JSON.

use std::fmt::Write as _;

use super::{PLAIN, assert_rejected, diagnostics, package, read, with};
use crate::{Body, EnvValue, FunctionType, MAX_FILE_SIZE, StateType, parse};

#[test]
fn reads_json() {
    let json = serde_json::to_string_pretty(&package(PLAIN)).unwrap();
    assert_eq!(package(&json), package(PLAIN));
    assert_eq!(package(&json.replace("  ", "\t")), package(PLAIN));
    assert_eq!(package(&serde_json::to_string(&package(PLAIN)).unwrap()), package(PLAIN));
}

#[test]
fn reads_snake_case_fields_and_enums_in_any_case() {
    let text = with("- key: Cart", "- _key: Cart\n    state_type: singleton\n    ref_spec: []");
    assert_eq!(package(&text).classes[0].state_type, Some(StateType::Singleton));
    let text = with("- key: buy", "- key: buy\n    type: Custom");
    assert_eq!(package(&text).functions[0].kind(), FunctionType::Custom);
}

#[test]
fn unknown_fields_are_rejected_with_a_suggestion() {
    assert_rejected(&with("classes:", "clases:"), "clases", 8, "did you mean classes?");
    assert_rejected(
        &with("image: shop:1", "image: shop:1\n        minscale: 2"),
        "functions[0].provision.deployment.minscale",
        8,
        "did you mean minScale?",
    );
    assert_rejected(
        &with("function: buy", "function: buy\n        fallback: 1"),
        "classes[0].functions[0].fallback",
        13,
        "known fields: name, function, access",
    );
}

#[test]
fn unsupported_fields_are_rejected_with_the_reason() {
    assert_rejected(
        &with("function: buy", "function: buy\n        no_main: true"),
        "classes[0].functions[0].no_main",
        13,
        "always called on an object",
    );
    assert_rejected(
        &with("- key: buy", "- key: buy\n    status: {condition: RUNNING}"),
        "functions[0].status",
        5,
        "it is set by PM",
    );
}

#[test]
fn duplicate_keys_are_rejected() {
    assert_rejected(&with("version: 1.0.0", "version: 1.0.0\nname: other"), "name", 3, "twice");
    assert_rejected(
        &with("- key: Cart", "- key: Cart\n    stateType: NORMAL\n    state_type: NORMAL"),
        "classes[0].stateType",
        11,
        "twice, as stateType and state_type",
    );
    let env = "image: shop:1\n        env: {A.b: 1, A.b: 2}";
    assert_rejected(
        &with("image: shop:1", env),
        "functions[0].provision.deployment.env[\"A.b\"]",
        8,
        "twice",
    );
}

#[test]
fn type_mismatches_name_both_types() {
    for (old, new, path, line, message) in [
        ("name: shop", "name: 5", "name", 1, "expected a string, found a number (\"5\")"),
        ("name: shop", "name: [a]", "name", 1, "expected a string, found a list"),
        ("version: 1.0.0", "version: 1.0", "version", 2, "is not a version such as"),
        ("version: 1.0.0", "version: true", "version", 2, "expected a version, found"),
        (
            "- key: Cart",
            "- key: Cart\n    disabled: yes",
            "classes[0].disabled",
            10,
            "use true or false without quotes",
        ),
        ("- key: Cart", "- key: Cart\n    parents: A", "classes[0].parents", 10, "expected a list"),
        (
            "image: shop:1",
            "image: shop:1\n        port: 80.5",
            "functions[0].provision.deployment.port",
            8,
            "expected an integer",
        ),
        (
            "image: shop:1",
            "image: shop:1\n        port: 99999999999",
            "functions[0].provision.deployment.port",
            8,
            "does not fit into i32",
        ),
        (
            "function: buy",
            "function: buy\n        access: PUBLC",
            "classes[0].functions[0].access",
            13,
            "did you mean PUBLIC?",
        ),
        ("  - key: Cart", "  - name: Cart", "classes[0].key", 9, "is required"),
    ] {
        assert_rejected(&with(old, new), path, line, message);
    }
}

#[test]
fn reports_all_problems_in_source_order() {
    let text = PLAIN.replace("name: shop", "name: 1").replace("key: Cart", "kye: Cart");
    let text = text.replace("image:", "imgae:") + "        access: SECRET\n";
    let diagnostics = diagnostics(&text);
    let messages: Vec<_> = diagnostics
        .all
        .iter()
        .map(|it| (it.path.as_str(), it.location.as_ref().unwrap().line))
        .collect();
    assert_eq!(
        messages,
        [
            ("name", 1),
            ("functions[0].provision.deployment.imgae", 7),
            ("classes[0].kye", 9),
            ("classes[0].key", 9),
            ("classes[0].functions[0].access", 13),
        ]
    );
    assert!(diagnostics.to_string().starts_with("test.yaml:1:7: name: "), "{diagnostics}");
}

#[test]
fn reads_several_documents() {
    let both = format!("# first\n{PLAIN}---\nkey: prod\npackage: shop\nclass: Cart\n---\n...\n");
    let documents = parse(&both, "f").unwrap();
    assert!(matches!(documents[0].body, Body::Package(_)));
    assert!(matches!(documents[1].body, Body::Deployment(_)));
    assert_eq!(documents.len(), 2);
    // A syntax error does not hide the problems of later documents.
    let bad = format!("a: [\n---\n{}", with("name: shop", "name: 1"));
    let lines: Vec<_> =
        diagnostics(&bad).all.iter().map(|it| it.location.as_ref().unwrap().line).collect();
    assert_eq!(lines, [1, 3]);
    assert!(diagnostics(&"---\na: b\n".repeat(70)).to_string().contains("more than 64 documents"));
}

#[test]
fn the_kind_of_a_document_must_be_clear() {
    assert_rejected("# nothing\n", ".", 1, "the file is empty");
    assert_rejected("", ".", 1, "the file is empty");
    assert_rejected("- a\n", ".", 1, "expected a package or a deployment, found a list");
    assert_rejected("version: 1.0.0\n", ".", 1, "kind: OPackage or kind");
    assert_rejected(
        "kind: Pod\nname: x\n",
        "kind",
        1,
        "allowed values: OPackage, OClassDeployment",
    );
    let named = format!("kind: opackage\n{PLAIN}");
    assert_eq!(package(&named), package(PLAIN));
}

#[test]
fn aliases_are_expanded_up_to_the_size_limit() {
    let text = with("image: shop:1", "image: &image shop:1\n        env: {A: *image}");
    let package = package(&text);
    let container = package.functions[0].container().unwrap();
    assert_eq!(container.env["A"], EnvValue::Plain("shop:1".to_owned()));
    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(bomb, "b{level}: &a{level} [{below}]").unwrap();
    }
    assert_rejected(&bomb, "b5[0]", 6, "too large after expanding aliases");
    assert_rejected("name: &a [*a]\n", "name[0]", 1, "refers to a value that contains it");
    let long = format!("name: &a {}\nfunctions: [{}]\n", "x".repeat(100_000), "*a, ".repeat(200));
    assert!(diagnostics(&long).to_string().contains("too large after expanding aliases"));
}

#[test]
fn rejects_files_that_are_too_large_or_too_deep() {
    let large = "#".repeat(MAX_FILE_SIZE + 1);
    assert_rejected(&large, ".", 1, "split the file");
    let deep = format!("name: {}", "[".repeat(1000));
    assert!(diagnostics(&deep).to_string().contains("more than 32 levels deep"));
    let deep = format!("name: {}{}", "[".repeat(33), "]".repeat(33));
    assert!(diagnostics(&deep).to_string().contains("more than 32 levels deep"));
    let wide = format!("name: [{}]", "a,".repeat(300_000));
    assert!(diagnostics(&wide).to_string().contains("too large after expanding aliases"));
    let diagnostics = diagnostics(&format!(
        "name: x\nversion: 1.0.0\n{}",
        (0..500).fold(String::new(), |text, at| text + &format!("x{at}: 1\n"))
    ));
    assert_eq!((diagnostics.all.len(), diagnostics.omitted), (100, 400));
}

#[test]
fn handles_unusual_yaml() {
    assert_rejected(
        "name: *gone\nversion: 1.0.0\n",
        "name",
        1,
        "the anchor \"gone\" does not exist",
    );
    assert_rejected(&with("name: shop", "name: !secret shop"), "name", 1, "the tag");
    assert_rejected(
        &with("name: shop", "name: shop\n? [a, b]\n: c"),
        ".",
        2,
        "keys must be strings",
    );
    assert_rejected(
        &with("- key: Cart", "- key: Cart\n    <<: {a: b}"),
        "classes[0][\"<<\"]",
        10,
        "merge keys are not supported",
    );
    assert_eq!(package(&with("name: shop", "name: !!str shop")).name, "shop");
    assert_eq!(package(&format!("\u{feff}{PLAIN}")).name, "shop");
    assert_eq!(package(&PLAIN.replace('\n', "\r\n")).name, "shop");
    assert_eq!(
        package(&with("- key: Cart", "- key: Cart\n    stateSpec: ~\n    parents:")).name,
        "shop"
    );
}

#[test]
fn string_fields_take_unquoted_numbers_as_written() {
    let text = with(
        "image: shop:1",
        "image: shop:1\n        cpu: 2\n        env: {A: 1.10, B: true, C: ''}\n        args: [1, --x]",
    );
    let package = package(&text);
    let container = package.functions[0].container().unwrap();
    assert_eq!(container.cpu.as_ref().unwrap().0, "2");
    assert_eq!(container.env["A"], EnvValue::Plain("1.10".to_owned()));
    assert_eq!(container.env["C"], EnvValue::Plain(String::new()));
    assert_eq!(container.args[0].0, "1");
    let text =
        with("image: shop:1", "image: shop:1\n        env: {A: {secret: {name: s, key: k}}}");
    assert!(read(&text).check().is_ok());
}
