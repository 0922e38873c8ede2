//! The checker itself, with short histories that are legal and illegal.

use oprc_tests::grid::history::{Verdict, check};
use serde_json::{Value, json};

/// An operation with its times; the outcome is unknown if there is no result.
fn operation(client: usize, times: (u64, u64), kind: &str, args: Value, result: Value) -> String {
    let mut operation = json!({
        "client": client, "object": "a", "operation": kind, "call": times.0, "return": times.1,
    });
    operation["args"] = args;
    if !result.is_null() {
        operation["result"] = result;
    }
    operation.to_string()
}

fn create(times: (u64, u64), version: u64) -> String {
    let args = json!({"state": {"count": 0}});
    operation(0, times, "create", args, json!({"outcome": "ok", "version": version}))
}

fn increment(client: usize, times: (u64, u64), count: u64, version: u64) -> String {
    let result = json!({"outcome": "ok", "count": count, "version": version});
    operation(client, times, "increment", json!({"by": 1}), result)
}

fn lost_increment(client: usize, times: (u64, u64)) -> String {
    operation(client, times, "increment", json!({"by": 1}), Value::Null)
}

fn get(times: (u64, u64), count: u64, version: u64) -> String {
    let result = json!({"outcome": "ok", "state": {"count": count}, "version": version});
    operation(9, times, "get", json!({}), result)
}

fn outcome(times: (u64, u64), kind: &str, args: Value, outcome: &str) -> String {
    operation(1, times, kind, args, json!({"outcome": outcome}))
}

#[track_caller]
fn assert_legal(name: &str, history: &[String]) {
    let verdict = check(history);
    assert!(matches!(verdict, Verdict::Linearizable(_)), "{name}: {verdict:?}");
}

#[track_caller]
fn assert_illegal(name: &str, history: &[String]) -> String {
    match check(history) {
        Verdict::Illegal(excerpt) => {
            assert!(excerpt.starts_with("not linearizable: object a\n"), "{excerpt}");
            excerpt
        }
        Verdict::Linearizable(summary) => panic!("{name}: {summary}"),
    }
}

#[test]
fn concurrent_operations_may_happen_in_any_order() {
    let history = [
        create((0, 1), 5),
        increment(1, (2, 9), 2, 9),
        increment(2, (3, 8), 1, 7),
        get((4, 5), 0, 5),
        get((6, 7), 1, 7),
        get((10, 11), 2, 9),
    ];
    assert_legal("concurrent", &history);
}

#[test]
fn unknown_operations_may_happen_late_or_never() {
    let lost = lost_increment(1, (2, 3));
    assert_legal("never", &[create((0, 1), 1), lost.clone(), get((4, 5), 0, 1)]);
    let late = [create((0, 1), 1), lost.clone(), get((4, 5), 0, 1), get((6, 7), 1, 2)];
    assert_legal("late", &late);
    let twice = [create((0, 1), 1), lost, get((4, 5), 1, 2), get((6, 7), 2, 3)];
    assert_illegal("unknown-twice", &twice);
    let early = [create((0, 1), 1), get((2, 3), 1, 2), lost_increment(1, (4, 5))];
    assert_illegal("before-its-call", &early);
}

#[test]
fn conditions_hold_at_one_point_in_time() {
    let put = |times, expected: u64, result: Value| {
        let args = json!({"state": {"count": 7}, "version": expected});
        operation(3, times, "put", args, result)
    };
    let ok = |version: u64| json!({"outcome": "ok", "version": version});
    let changed = || json!({"outcome": "changed"});
    let first = create((0, 1), 1);
    assert_legal("expected", &[first.clone(), put((2, 3), 1, ok(2)), put((4, 5), 1, changed())]);
    let both = [first.clone(), put((2, 5), 1, ok(2)), put((3, 4), 1, ok(3))];
    assert_illegal("both-of-two", &both);
    let neither = [first.clone(), put((2, 3), 1, changed())];
    assert_illegal("refused-without-reason", &neither);
    let patch = operation(1, (2, 3), "patch", json!({"state": {"b": 1, "count": null}}), ok(2));
    let state = json!({"outcome": "ok", "state": {"b": 1}, "version": 2});
    let read = operation(9, (4, 5), "get", json!({}), state);
    assert_legal("patched", &[first.clone(), patch, read]);
    let again = outcome((2, 3), "create", json!({"state": {}}), "changed");
    assert_legal("exists", &[first.clone(), again.clone()]);
    assert_illegal("does-not-exist", &[again]);
    assert_illegal("older-version", &[first.clone(), put((2, 3), 1, ok(1))]);
    // The version after an unknown write is the next that is told.
    let unknown = put((2, 3), 1, Value::Null);
    let history = [first, unknown, get((4, 5), 7, 4), put((6, 7), 4, ok(5)), get((8, 9), 7, 5)];
    assert_legal("told-later", &history);
}

#[test]
fn a_lost_update_is_found() {
    let history = [
        create((0, 1), 1),
        get((2, 3), 0, 1),
        increment(1, (4, 7), 1, 2),
        increment(2, (5, 8), 1, 3),
        get((9, 10), 1, 3),
    ];
    let excerpt = assert_illegal("lost-update", &history);
    // The reads aren't needed to show it.
    assert!(!excerpt.contains("get"), "{excerpt}");
    assert_eq!(excerpt.matches("client").count(), 3, "{excerpt}");
}

#[test]
fn a_stale_read_is_found() {
    let history = [create((0, 1), 1), increment(1, (2, 3), 1, 2), get((4, 5), 0, 1)];
    assert_illegal("stale-read", &history);
    let during = [create((0, 1), 1), increment(1, (2, 9), 1, 2), get((3, 4), 0, 1)];
    assert_legal("read-before", &during);
    let back =
        [create((0, 1), 1), increment(1, (2, 9), 1, 2), get((3, 4), 1, 2), get((5, 6), 0, 1)];
    assert_illegal("read-goes-back", &back);
}

#[test]
fn a_double_increment_is_found() {
    let replayed = json!({"outcome": "ok", "count": 1});
    let retried = operation(1, (2, 5), "increment", json!({"by": 1}), replayed);
    let once = [create((0, 1), 1), retried.clone(), get((6, 7), 1, 2)];
    assert_legal("retried-once", &once);
    assert_illegal("double-increment", &[create((0, 1), 1), retried, get((6, 7), 2, 3)]);
}

#[test]
fn a_deleted_object_that_comes_back_is_found() {
    let delete = outcome((2, 3), "delete", json!({}), "ok");
    let gone = outcome((4, 5), "get", json!({}), "absent");
    let history = [create((0, 1), 1), delete.clone(), gone.clone(), get((6, 7), 0, 1)];
    assert_illegal("resurrected", &history);
    let created = [create((0, 1), 1), delete.clone(), gone, create((6, 7), 4), get((8, 9), 0, 4)];
    assert_legal("created-again", &created);
    let refused = outcome((4, 5), "increment", json!({"by": 1}), "absent");
    assert_legal("no-object", &[create((0, 1), 1), delete.clone(), refused.clone()]);
    assert_illegal("lost-object", &[create((0, 1), 1), refused]);
    assert_illegal("deleted-twice", &[create((0, 1), 1), delete.clone(), delete]);
}

#[test]
#[should_panic(expected = "line 2: operation is \"add\"; expected: one of")]
fn invalid_histories_are_refused() {
    check(&[create((0, 1), 1), outcome((2, 3), "add", json!({}), "ok")]);
}
