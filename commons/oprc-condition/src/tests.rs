use proptest::prelude::*;
use serde_json::json;

use super::*;

fn evaluate(text: &str, state: &Value, args: &Value) -> Result<bool, String> {
    let state = state.as_object().unwrap();
    let input = Input { id: "cart-1", version: 7, state, args, method: "add" };
    Condition::parse(text).unwrap().evaluate(&input).map_err(|error| error.to_string())
}

#[test]
fn conditions_read_object_arguments_and_method() {
    let state = json!({"count": 3, "price": 1.5, "open": true, "owner": "ann", "tags": ["a"],
        "large": u64::MAX});
    let args = json!({"by": 2, "user": {"name": "ann"}});
    for (text, expected) in [
        ("object.state.open", true),
        ("object.state.count + args.by <= 4", false),
        ("object.state.count * 2 == 6 && object.state.price > 1.0", true),
        ("object.id.startsWith('cart-') && object.version == 7", true),
        ("object.state.owner == args.user.name || method == 'read'", true),
        ("'b' in object.state.tags", false),
        ("has(object.state.missing) ? false : size(object.state.tags) == 1", true),
        ("has(args.by) && args.by > 0 && args.by < 10", true),
        ("object.state.large > 1", true),
        ("method == 'add'", true),
    ] {
        assert_eq!(evaluate(text, &state, &args), Ok(expected), "{text}");
    }
}

#[test]
fn errors_say_why_and_show_no_values() {
    let state = json!({"secret": "xyzzy", "list": ["xyzzy"], "zero": 0});
    for (text, expected) in [
        ("object.state.other == 1", "other"),
        ("object.state.secret", "true or false"),
        ("object.state.secret > 1", ""),
        ("object.state.secret + 1 == 2", ""),
        ("object.state.list[5] == ''", ""),
        ("1 / object.state.zero == 1", "zero"),
        ("int(object.state.secret) == 1", ""),
    ] {
        let error = evaluate(text, &state, &Value::Null).unwrap_err();
        assert!(error.contains(expected) && !error.contains("xyzzy"), "{text}: {error}");
    }
}

#[test]
fn what_could_be_expensive_is_rejected() {
    let deep = |open: &str, close: &str| format!("{}true{}", open.repeat(40), close.repeat(40));
    let long = format!("args.a == '{}'", "x".repeat(MAX_BYTES));
    let many = vec!["args.a"; 20].join(" + ");
    let chain = vec!["1"; 400].join("-");
    for (text, expected) in [
        ("", "the condition is invalid"),
        ("object.state.", "the condition is invalid"),
        ("object.state.count >", "the condition is invalid"),
        ("args.list.all(x, x > 0)", "exists_one"),
        ("args.list.map(x, x).size() == 0", "exists_one"),
        ("[[1]].exists(x, x.exists(y, y == 1))", "exists_one"),
        ("state.count > 0", "expected: object, args, method"),
        ("args.text.matches('(a*)*b')", "matches"),
        ("google.protobuf.Value{}", "messages"),
        (&deep("(", ")"), "nested"),
        (&deep("[", "]"), "nested"),
        (&deep("{1:", "}"), "nested"),
        (&chain, "nested"),
        (&format!("{chain} > 0"), "nested"),
        (&many, "operator +"),
        (&long, "at most 1024"),
    ] {
        let error = check_condition(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn repeated_operators_neither_overflow_the_stack_nor_panic() {
    for part in ["!", "-", "true?", "true?true:", "a.", "a[", "'", "1+", "{", "\u{0}", "é", "// "]
    {
        let text = part.repeat(MAX_BYTES / part.len());
        drop(check_condition(&text));
        drop(check_condition(&format!("{}1", part.repeat(300))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_text_is_parsed_or_rejected(
        text in r"([a-z]{1,3}|object\.state\.a|args|[0-9]{1,3}|[-+*/%!?:.,()\[\]{}<>=&|' ]|==|&&|has\(){0,24}"
    ) {
        if let Ok(condition) = Condition::parse(&text) {
            let state = serde_json::Map::from_iter([("a".to_owned(), json!([1, "x", {"a": 1}]))]);
            let input = Input { id: "a", version: 1, state: &state, args: &json!(1), method: "m" };
            drop(condition.evaluate(&input));
        }
    }
}
