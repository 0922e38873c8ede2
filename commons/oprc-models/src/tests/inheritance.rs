//! Inheritance.

use std::{collections::BTreeMap, fmt::Write as _};

use super::package;
use crate::{OPackage, ResolvedClass, ResolvedPackage, resolve};

/// A package of classes, each with parents and bindings `name=function`.
fn classes(name: &str, classes: &[(&str, &[&str], &[&str])]) -> OPackage {
    let mut text = format!("name: {name}\nversion: 1.0.0\nfunctions:\n");
    for key in ["f", "g", "h"] {
        writeln!(text, "  - {{key: {key}, provision: {{docker: {{image: {key}}}}}}}").unwrap();
    }
    text += "classes:\n";
    for (key, parents, bindings) in classes {
        writeln!(text, "  - key: {key}\n    parents: [{}]\n    functions:", parents.join(", "))
            .unwrap();
        for binding in *bindings {
            let (name, rest) = binding.split_once('=').unwrap();
            let (function, more) = rest.split_once(' ').unwrap_or((rest, ""));
            writeln!(text, "      - {{name: {name}, function: {function}{more}}}").unwrap();
        }
    }
    package(&text)
}

fn one(package: &OPackage) -> ResolvedPackage {
    resolve(package, &()).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn messages(package: &OPackage) -> String {
    resolve(package, &()).unwrap_err().to_string()
}

fn lineage(class: &ResolvedClass) -> Vec<&str> {
    class.lineage.iter().map(|it| it.key.as_str()).collect()
}

fn bindings(class: &ResolvedClass) -> Vec<(&str, &str)> {
    class.bindings.iter().map(|it| (it.name.as_str(), it.function.as_str())).collect()
}

#[test]
fn diamond_inherits_from_the_first_parent() {
    let of = classes(
        "d",
        &[
            ("Top", &[], &["a=f", "b=f"]),
            ("Left", &["Top"], &["a=g"]),
            ("Right", &["Top"], &["a=h", "b=h"]),
            ("Bottom", &["Left", "Right"], &[]),
        ],
    );
    let resolved = one(&of);
    let bottom = resolved.class("Bottom").unwrap();
    assert_eq!(lineage(bottom), ["Bottom", "Left", "Right", "Top"]);
    assert_eq!(bindings(bottom), [("a", "g"), ("b", "h")]);
    assert_eq!(resolved, one(&of));
}

#[test]
fn rejects_parents_without_a_consistent_order() {
    let of = classes(
        "d",
        &[
            ("A", &[], &[]),
            ("B", &[], &[]),
            ("X", &["A", "B"], &[]),
            ("Y", &["B", "A"], &[]),
            ("Z", &["X", "Y"], &[]),
        ],
    );
    assert!(messages(&of).starts_with("classes[4].parents: the parents have no consistent order"));
}

#[test]
fn reports_cycles_with_their_path() {
    let of = classes("d", &[("A", &["B"], &[]), ("B", &["d.A"], &[])]);
    assert!(messages(&of).contains("d.A → d.B → d.A"));
}

#[test]
fn immutable_bindings_cannot_be_overridden() {
    let of = classes("d", &[("A", &[], &["a=f , immutable: true"]), ("B", &["A"], &["a=g"])]);
    assert_eq!(
        messages(&of),
        "classes[1].functions[0]: the binding \"a\" of d.A is immutable and cannot be overridden in d.B"
    );
    let same = classes(
        "d",
        &[("A", &[], &["a=f , immutable: true"]), ("B", &["A"], &["a=f , immutable: true"])],
    );
    one(&same);
}

#[test]
fn the_nearest_default_route_wins() {
    let of = classes(
        "d",
        &[("A", &[], &["a=f , defaultRoute: true"]), ("B", &["A"], &["b=g , defaultRoute: true"])],
    );
    let resolved = one(&of);
    let class = resolved.class("B").unwrap();
    let routes: Vec<_> = class.bindings.iter().map(|it| it.default_route).collect();
    assert_eq!(routes, [false, true]);
}

#[test]
fn inherits_from_classes_of_dependencies() {
    let base = classes("base", &[("Root", &[], &["a=f"]), ("Mid", &["Root"], &["b=g"])]);
    let mut of = classes("top", &[("Leaf", &["base.Mid"], &["a=f"])]);
    of.dependencies =
        package("name: x\nversion: 1.0.0\ndependencies: [{name: base, version: ^1}]").dependencies;
    let others = BTreeMap::from([("base".to_owned(), base.clone())]);
    let resolved = resolve(&of, &others).unwrap();
    let leaf = resolved.class("Leaf").unwrap();
    assert_eq!(
        leaf.lineage.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["top.Leaf", "base.Mid", "base.Root"]
    );
    // Equal keys in two packages are different functions.
    assert_eq!(bindings(leaf), [("a", "f"), ("b", "base.g")]);
    assert_eq!(messages(&of).lines().count(), 2);
    let newer = OPackage { version: "2.0.0".parse().unwrap(), ..base };
    let others = BTreeMap::from([("base".to_owned(), newer)]);
    assert_eq!(
        resolve(&of, &others).unwrap_err().to_string(),
        "dependencies[0].version: 2.0.0 does not match ^1"
    );
}

#[test]
fn state_is_merged_without_type_changes() {
    let text = "
name: s
version: 1.0.0
classes:
  - key: A
    stateType: COLLECTION
    stateSpec: {keySpecs: [{name: x, type: INTEGER}, {name: y, type: STRING}], persistence: EPHEMERAL, access: PRIVATE}
  - key: B
    parents: [A]
    stateSpec: {keySpecs: [{name: z, type: JSON}, {name: x, type: INTEGER, optional: true}], consistency: STRONG}
";
    let resolved = one(&package(text));
    let class = resolved.class("B").unwrap();
    let state = class.state_spec.as_ref().unwrap();
    let keys: Vec<_> = state.key_specs.iter().map(|it| (&*it.name, it.optional)).collect();
    assert_eq!(keys, [("x", true), ("y", false), ("z", false)]);
    assert_eq!(state.persistence, Some(crate::Persistence::Ephemeral));
    assert_eq!(state.access, Some(crate::Access::Private));
    assert_eq!(class.state_type, crate::StateType::Collection);
    let bad = text.replace("{name: x, type: INTEGER, optional: true}", "{name: x, type: DOUBLE}");
    assert!(messages(&package(&bad)).contains("INTEGER in s.A but DOUBLE in s.B"));
}

#[test]
fn triggers_need_state_and_a_container() {
    let of = classes("d", &[("A", &[], &["a=f , triggerOnStateChange: true"])]);
    assert!(messages(&of).contains("the class has no state"));
    let mut logical = of.clone();
    logical.functions[0].provision = None;
    logical.functions[0].kind = Some(crate::FunctionType::Logical);
    assert!(messages(&logical).contains("run in a container"));
}

#[test]
fn triggers_of_a_function_name_its_bindings() {
    let of = |method: &str| {
        let text = format!(
            "
name: t
version: 1.0.0
functions:
  - {{key: f, provision: {{docker: {{image: f}}}}, odgm: {{eventTriggers: [{{method: {method}, type: CREATE}}]}}}}
  - {{key: g, provision: {{docker: {{image: g}}}}}}
classes:
  - key: A
    stateSpec: {{}}
    functions: [{{name: a, function: f}}, {{name: b, function: g}}]
"
        );
        package(&text)
    };
    assert!(resolve(&of("a"), &()).is_ok());
    let found = messages(&of("b"));
    assert!(found.contains("a trigger of \"b\", which isn't its binding"), "{found}");
}

#[test]
fn conditions_need_state() {
    let of = classes("d", &[("A", &[], &["a=f , condition: 'args.n > 0'"])]);
    assert!(messages(&of).contains("condition has no effect: the class has no state"));
}

#[test]
fn macros_can_use_only_accessible_members() {
    let text = |target: &str, access: &str| {
        format!(
            "
name: m
version: 1.0.0
functions:
  - {{key: f, provision: {{docker: {{image: f}}}}}}
  - {{key: go, type: MACRO, macro: {{steps: [{{function: f, target: {target}}}]}}}}
classes:
  - key: A
    refSpec: [{{name: other, class: A, access: {access}}}]
  - key: B
    parents: [A]
    functions: [{{name: go, function: go}}]
"
        )
    };
    let resolved = one(&package(&text("$.other", "INTERNAL")));
    assert_eq!(resolved.class("B").unwrap().functions.len(), 2);
    assert!(messages(&package(&text("$.gone", "PUBLIC"))).contains("no reference \"gone\""));
    let private = messages(&package(&text("$.other", "PRIVATE")));
    assert!(
        private.starts_with("classes[1].functions[0]: the macro \"go\" may not use"),
        "{private}"
    );
}

#[test]
fn limits_the_number_of_ancestors() {
    let mut text = "name: l\nversion: 1.0.0\nclasses:\n  - key: C0\n".to_owned();
    for at in 1..200 {
        writeln!(text, "  - {{key: C{at}, parents: [C{}]}}", at - 1).unwrap();
    }
    assert!(messages(&package(&text)).contains("more than 32 ancestors"));
}

#[test]
fn limits_the_number_of_inherited_members() {
    let bindings = |class: usize| {
        let of = |at| format!("{{name: b{class}-{at}, function: f}}");
        (0..200).map(of).collect::<Vec<_>>().join(", ")
    };
    let mut text =
        "name: l\nversion: 1.0.0\nfunctions: [{key: f, type: LOGICAL}]\nclasses:\n".to_owned();
    for at in 0..4 {
        let parents = if at == 0 { String::new() } else { format!("C{}", at - 1) };
        let functions = bindings(at);
        writeln!(text, "  - {{key: C{at}, parents: [{parents}], functions: [{functions}]}}")
            .unwrap();
    }
    let messages = messages(&package(&text));
    assert!(
        messages.contains("classes[2].functions: has 600 entries with inherited ones"),
        "{messages}"
    );
}
