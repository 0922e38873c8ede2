//! How files are written.

use std::fmt::Write as _;

use super::{PLAIN, faults, package, read, refused, with};
use crate::{Body, EnvValue, FunctionType, MAX_TEXT, StateType, parse};

#[test]
fn json_is_read_too() {
    let json = serde_json::to_string_pretty(&package(PLAIN)).unwrap();
    assert_eq!(package(&json), package(PLAIN));
    assert_eq!(package(&json.replace("  ", "\t")), package(PLAIN));
    assert_eq!(package(&serde_json::to_string(&package(PLAIN)).unwrap()), package(PLAIN));
}

#[test]
fn snake_case_is_read_too_and_words_in_any_case() {
    let text = with("- key: Cart", "- _key: Cart\n    state_type: singleton\n    ref_spec: []");
    assert_eq!(package(&text).classes[0].state_type, Some(StateType::Singleton));
    let text = with("- key: buy", "- key: buy\n    type: Custom");
    assert_eq!(package(&text).functions[0].kind(), FunctionType::Custom);
}

#[test]
fn unknown_fields_are_refused_with_what_was_meant() {
    refused(&with("classes:", "clases:"), "clases", 8, "did you mean classes?");
    refused(
        &with("image: shop:1", "image: shop:1\n        minscale: 2"),
        "functions[0].provision.deployment.minscale",
        8,
        "did you mean minScale?",
    );
    refused(
        &with("function: buy", "function: buy\n        fallback: 1"),
        "classes[0].functions[0].fallback",
        13,
        "there are: name, function, access",
    );
}

#[test]
fn what_nothing_would_heed_is_refused_with_the_reason() {
    refused(
        &with("function: buy", "function: buy\n        condition: x > 1"),
        "classes[0].functions[0].condition",
        13,
        "nothing evaluates conditions",
    );
    refused(
        &with("function: buy", "function: buy\n        no_main: true"),
        "classes[0].functions[0].no_main",
        13,
        "always come with an object",
    );
    refused(
        &with("- key: buy", "- key: buy\n    status: {condition: RUNNING}"),
        "functions[0].status",
        5,
        "nobody sets it",
    );
}

#[test]
fn keys_that_come_twice_are_refused() {
    refused(&with("version: 1.0.0", "version: 1.0.0\nname: other"), "name", 3, "twice");
    refused(
        &with("- key: Cart", "- key: Cart\n    stateType: NORMAL\n    state_type: NORMAL"),
        "classes[0].stateType",
        11,
        "twice, as stateType and state_type",
    );
    let env = "image: shop:1\n        env: {A.b: 1, A.b: 2}";
    refused(
        &with("image: shop:1", env),
        "functions[0].provision.deployment.env[\"A.b\"]",
        8,
        "twice",
    );
}

#[test]
fn wrong_types_are_named() {
    for (old, new, path, line, message) in [
        ("name: shop", "name: 5", "name", 1, "a number (\"5\") stands where text is expected"),
        ("name: shop", "name: [a]", "name", 1, "a list stands where text"),
        ("version: 1.0.0", "version: 1.0", "version", 2, "is no version such as"),
        ("version: 1.0.0", "version: true", "version", 2, "where a version is expected"),
        (
            "- key: Cart",
            "- key: Cart\n    disabled: yes",
            "classes[0].disabled",
            10,
            "write true or",
        ),
        ("- key: Cart", "- key: Cart\n    parents: A", "classes[0].parents", 10, "where a list"),
        (
            "image: shop:1",
            "image: shop:1\n        port: 80.5",
            "functions[0].provision.deployment.port",
            8,
            "a whole number",
        ),
        (
            "image: shop:1",
            "image: shop:1\n        port: 99999999999",
            "functions[0].provision.deployment.port",
            8,
            "out of range",
        ),
        (
            "function: buy",
            "function: buy\n        access: PUBLC",
            "classes[0].functions[0].access",
            13,
            "did you mean PUBLIC?",
        ),
        ("  - key: Cart", "  - name: Cart", "classes[0].key", 9, "is missing"),
    ] {
        refused(&with(old, new), path, line, message);
    }
}

#[test]
fn all_that_is_wrong_is_told_in_the_order_of_the_text() {
    let text = PLAIN.replace("name: shop", "name: 1").replace("key: Cart", "kye: Cart");
    let text = text.replace("image:", "imgae:") + "        access: SECRET\n";
    let faults = faults(&text);
    let told: Vec<_> =
        faults.all.iter().map(|it| (it.path.as_str(), it.place.as_ref().unwrap().line)).collect();
    assert_eq!(
        told,
        [
            ("name", 1),
            ("functions[0].provision.deployment.imgae", 7),
            ("classes[0].kye", 9),
            ("classes[0].key", 9),
            ("classes[0].functions[0].access", 13),
        ]
    );
    assert!(faults.to_string().starts_with("test.yaml:1:7: name: "), "{faults}");
}

#[test]
fn several_documents() {
    let both = format!("# first\n{PLAIN}---\nkey: prod\npackage: shop\nclass: Cart\n---\n...\n");
    let documents = parse(&both, "f").unwrap();
    assert!(matches!(documents[0].body, Body::Package(_)));
    assert!(matches!(documents[1].body, Body::Deployment(_)));
    assert_eq!(documents.len(), 2);
    // One that can't be read doesn't hide what is wrong with the next.
    let bad = format!("a: [\n---\n{}", with("name: shop", "name: 1"));
    let lines: Vec<_> = faults(&bad).all.iter().map(|it| it.place.as_ref().unwrap().line).collect();
    assert_eq!(lines, [1, 3]);
    assert!(faults(&"---\na: b\n".repeat(70)).to_string().contains("more than 64 documents"));
}

#[test]
fn what_a_document_is_must_be_clear() {
    refused("# nothing\n", ".", 1, "there is nothing in it");
    refused("", ".", 1, "there is nothing in it");
    refused("- a\n", ".", 1, "a list stands where a package");
    refused("version: 1.0.0\n", ".", 1, "kind: OPackage or kind");
    refused("kind: Pod\nname: x\n", "kind", 1, "none of OPackage, OClassDeployment");
    let named = format!("kind: opackage\n{PLAIN}");
    assert_eq!(package(&named), package(PLAIN));
}

#[test]
fn aliases_stand_for_what_they_name_but_not_for_too_much() {
    let text = with("image: shop:1", "image: &image shop:1\n        env: {A: *image}");
    let package = package(&text);
    let container = package.functions[0].container().unwrap();
    assert_eq!(container.env["A"], EnvValue::Plain("shop:1".to_owned()));
    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(bomb, "b{level}: &a{level} [{below}]").unwrap();
    }
    refused(&bomb, "b5[0]", 6, "says too much");
    refused("name: &a [*a]\n", "name[0]", 1, "itself a part");
    let long = format!("name: &a {}\nfunctions: [{}]\n", "x".repeat(100_000), "*a, ".repeat(200));
    assert!(faults(&long).to_string().contains("says too much"));
}

#[test]
fn what_is_too_large_or_too_deep_is_refused() {
    let large = "#".repeat(MAX_TEXT + 1);
    refused(&large, ".", 1, "split the file");
    let deep = format!("name: {}", "[".repeat(1000));
    assert!(faults(&deep).to_string().contains("more than 32 levels deep"));
    let deep = format!("name: {}{}", "[".repeat(33), "]".repeat(33));
    assert!(faults(&deep).to_string().contains("more than 32 levels deep"));
    let wide = format!("name: [{}]", "a,".repeat(300_000));
    assert!(faults(&wide).to_string().contains("says too much"));
    let faults = faults(&format!(
        "name: x\nversion: 1.0.0\n{}",
        (0..500).fold(String::new(), |text, at| text + &format!("x{at}: 1\n"))
    ));
    assert_eq!((faults.all.len(), faults.left_out), (100, 400));
}

#[test]
fn odd_yaml() {
    refused("name: *gone\nversion: 1.0.0\n", "name", 1, "there is no anchor");
    refused(&with("name: shop", "name: !secret shop"), "name", 1, "the tag");
    refused(&with("name: shop", "name: shop\n? [a, b]\n: c"), ".", 2, "a key must be text");
    refused(
        &with("- key: Cart", "- key: Cart\n    <<: {a: b}"),
        "classes[0][\"<<\"]",
        10,
        "merging",
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
fn values_that_look_like_numbers_are_taken_as_written_where_text_is_meant() {
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
