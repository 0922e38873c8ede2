use std::time::Duration;

use serde_json::json;

use super::{trigger::matches, *};

fn class() -> Class {
    serde_json::from_value(json!({
        "name": "shop.Cart",
        "collections": ["Cart_data", "Cart_old"],
        "keySpecs": [
            {"name": "count", "type": "INTEGER"},
            {"name": "price", "type": "DOUBLE", "optional": true},
            {"name": "open", "type": "BOOLEAN", "optional": true},
            {"name": "owner", "type": "STRING", "optional": true},
            {"name": "items", "type": "JSON", "optional": true},
        ],
        "methods": {
            "add": {"url": "http://f", "access": "PUBLIC", "timeoutMs": 100},
            "audit": {"url": "http://f", "access": "PRIVATE", "readOnly": true},
            "close": {"url": "http://f"},
        },
    }))
    .unwrap()
}

fn state(value: Value) -> State {
    serde_json::from_value(value).unwrap()
}

#[test]
fn states_are_checked_against_the_key_specs() {
    let class = class();
    for good in [
        json!({"count": 1}),
        json!({"count": -1, "price": 1, "open": false, "owner": "a", "items": [1, {}]}),
        json!({"count": 0, "price": null}),
    ] {
        class.check(&state(good)).unwrap();
    }
    let bad = json!({"price": "1", "open": 1, "owner": 1, "other": 1});
    let Err(Error::InvalidState { problems }) = class.check(&state(bad)) else { panic!() };
    let expected = [
        "count is missing",
        "price must be a number",
        "open must be true or false",
        "owner must be a string",
        "other is not a key",
    ];
    assert_eq!(problems, expected);
    assert!(class.check(&state(json!({"count": 1.5}))).is_err());
    assert!(class.check(&state(json!({"count": null}))).is_err());
    let large = state(json!({"count": 1, "owner": "x".repeat(MAX_STATE_BYTES)}));
    assert!(matches!(class.check(&large), Err(Error::TooLarge { .. })));
    Class::default().check(&state(json!({"any": [1]}))).unwrap();
}

#[test]
fn callers_are_checked() {
    let class = class();
    assert!(class.method("add", Access::Public).is_ok());
    assert!(class.method("close", Access::Internal).is_ok());
    assert!(class.method("audit", Access::Private).is_ok());
    for (method, caller) in [("close", Access::Public), ("audit", Access::Internal)] {
        assert!(matches!(class.method(method, caller), Err(Error::Forbidden { .. })));
    }
    assert!(matches!(class.method("none", Access::Private), Err(Error::UnknownMethod(_))));
    assert_eq!(class.methods["add"].timeout(), Duration::from_millis(100));
}

#[test]
fn triggers_are_selected() {
    let mut class = class();
    class.max_trigger_depth = 2;
    class.triggers = serde_json::from_value(json!([
        {"method": "audit", "collections": ["Cart_*", "x"]}, {"method": "close"},
    ]))
    .unwrap();
    let of = |collection, method: Option<&str>, depth| {
        let cause = Cause { method: method.map(str::to_owned), depth };
        let triggers = class.triggers(collection, ChangeKind::Updated, &cause);
        triggers.map(|it| it.method.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("Cart_data", None, 0), ["audit", "close"]);
    assert_eq!(of("Cart", None, 0), ["close"]);
    assert_eq!(of("x", Some("audit"), 1), ["close"]);
    assert_eq!(of("x", None, 2), [""; 0]);
    for (pattern, text) in [("*", ""), ("a*c", "abbc"), ("*b*", "abc"), ("a*", "a"), ("é*", "éa")]
    {
        assert!(matches(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [("a*c", "abb"), ("", "a"), ("a", "ab"), ("*b", "abc")] {
        assert!(!matches(pattern, text), "{pattern} {text}");
    }
}

#[test]
fn triggers_follow_changes_of_their_type() {
    let mut class = class();
    class.max_trigger_depth = 1;
    class.triggers = serde_json::from_value(json!([
        {"method": "any"}, {"method": "all", "type": "STATE_CHANGE"}, {"method": "new", "type": "CREATE"},
        {"method": "set", "type": "UPDATE"}, {"method": "end", "type": "DELETE", "timeoutMs": 1},
        {"method": "end", "type": "CREATE", "timeoutMs": 2},
    ]))
    .unwrap();
    for (kind, expected) in [
        (ChangeKind::Created, &["any", "all", "new", "end"][..]),
        (ChangeKind::Updated, &["any", "all", "set"]),
        (ChangeKind::Deleted, &["any", "all", "end"]),
    ] {
        let cause = Cause::default();
        let found = class.triggers("Cart_data", kind, &cause).map(|it| it.method.as_str());
        assert_eq!(found.collect::<Vec<_>>(), expected, "{kind:?}");
    }
    let timeout = |kind| class.trigger("end", "Cart_data", kind).and_then(Trigger::timeout);
    assert_eq!(timeout(ChangeKind::Deleted), Some(Duration::from_millis(1)));
    assert_eq!(timeout(ChangeKind::Created), Some(Duration::from_millis(2)));
    assert_eq!(timeout(ChangeKind::Updated), None);
    assert!(serde_json::from_value::<Trigger>(json!({"method": "x", "type": "READ"})).is_err());
}

#[test]
fn collections_are_found() {
    let class = class();
    assert_eq!(class.collection(None).unwrap(), "Cart_data");
    assert_eq!(class.collection(Some("Cart_old")).unwrap(), "Cart_old");
    assert!(class.collection(Some("other")).is_err());
}

#[test]
fn immutable_keys_keep_their_values() {
    let mut class = class();
    class.key_specs[3].immutable = true;
    let change = |before, after| {
        class.check_change(&state(before), &state(after), |left, right| left == right)
    };
    change(json!({"count": 1}), json!({"count": 2, "owner": "a"})).unwrap();
    change(json!({"owner": "a"}), json!({"owner": "a", "count": 1})).unwrap();
    change(json!({"owner": null}), json!({"owner": "a"})).unwrap();
    for after in [json!({"owner": "b"}), json!({}), json!({"owner": null})] {
        let error = change(json!({"owner": "a"}), after).unwrap_err();
        assert_eq!(error, Error::InvalidState { problems: vec!["owner is immutable".to_owned()] });
    }
}

#[test]
fn values_out_of_range_are_rejected_with_the_field() {
    let method = |more: Value| {
        let mut method = json!({"url": "http://f"});
        method.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<Method>(method).map_err(|error| error.to_string())
    };
    let good =
        json!({"timeoutMs": 1, "maxConcurrency": 1, "retries": 10, "condition": "args.a > 1"});
    assert_eq!(method(good).unwrap().retries, 10);
    for (bad, expected) in [
        (json!({"timeoutMs": 0}), "timeoutMs is 0; expected: 1 to 600000"),
        (json!({"maxConcurrency": 0}), "maxConcurrency is 0; expected: at least 1"),
        (json!({"retries": 11}), "retries is 11; expected: 0 to 10"),
        (json!({"condition": "args.a >"}), "the condition is invalid"),
        (json!({"condition": "other > 1"}), "the condition is invalid"),
    ] {
        let error = method(bad).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let batch: Batch = serde_json::from_value(json!({"size": 1000, "timeoutMs": 5})).unwrap();
    assert_eq!((batch.size, batch.timeout()), (90, Duration::from_millis(5)));
    assert!(serde_json::from_value::<Batch>(json!({"size": 0})).is_err());
}

#[test]
fn macros_are_validated() {
    let validated = |steps: Value, output: Value| {
        let mut class = class();
        let spec = json!({"steps": steps, "output": output});
        class.macros.insert("buy".to_owned(), serde_json::from_value(spec).unwrap());
        class.validate()
    };
    let steps = json!([
        {"name": "a", "method": "add", "argRefs": {"x": "$args.x"}},
        {"method": "add", "target": "a.id", "inputs": ["$", "$.count", "a"]},
    ]);
    validated(steps.clone(), Value::Null).unwrap();
    validated(steps, json!("a")).unwrap();
    let step = || json!({"method": "add"});
    for (steps, output, expected) in [
        (json!([]), Value::Null, "has 0 steps; expected: 1 to 64"),
        (json!(vec![step(); 65]), Value::Null, "has 65 steps"),
        (json!([step()]), json!("a"), "output is \"a\""),
        (json!([{"method": ""}]), Value::Null, "steps[0] has no method"),
        (json!([{"method": "add", "target": "a"}]), Value::Null, "no earlier step"),
        (json!([{"method": "add", "name": "a", "inputs": ["a"]}]), Value::Null, "no earlier step"),
        (json!([{"method": "add", "argRefs": {"x": "$x"}}]), Value::Null, "expected: $, $.key"),
        (json!([{"method": "add", "name": "$"}]), Value::Null, "expected: a new name"),
    ] {
        let error = validated(steps, output).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let mut class = class();
    let spec = json!({"steps": [{"method": "add"}]});
    class.macros.insert("add".to_owned(), serde_json::from_value(spec).unwrap());
    assert!(class.validate().unwrap_err().contains("a method and of a macro"));
}

#[test]
fn references_of_steps_have_values() {
    let (state, args) = (state(json!({"count": 1})), json!({"x": 2}));
    let results = BTreeMap::from([("a".to_owned(), json!({"b": 3}))]);
    let values = Values { state: &state, args: &args, results: &results };
    for (text, expected) in [
        ("$", json!({"count": 1})),
        ("$.count", json!(1)),
        ("$.other", Value::Null),
        ("$args.x", json!(2)),
        ("a", json!({"b": 3})),
        ("a.b", json!(3)),
    ] {
        assert_eq!(values.get(text).unwrap(), expected, "{text}");
    }
    for text in ["$args.y", "b", "a.c", "$x", "", "a.b.c"] {
        assert!(values.get(text).is_err(), "{text}");
    }
}
