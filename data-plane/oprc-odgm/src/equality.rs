//! Whether states are equal.

use serde_json::Value;

use crate::class::State;

/// Whether two states are equal. Functions may write the number 1.0 as 1.
pub(crate) fn same_state(left: &State, right: &State) -> bool {
    left.len() == right.len()
        && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| same(left, right)))
}

pub(crate) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || (left.is_f64() || right.is_f64()) && left.as_f64() == right.as_f64()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => same_state(left, right),
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_numbers_are_the_same_state() {
        let state = |value| -> State { serde_json::from_value(value).unwrap() };
        let same_states = |left, right| same_state(&state(left), &state(right));
        assert!(same_states(
            json!({"a": 1.0, "b": [{"c": 2}]}),
            json!({"b": [{"c": 2.0}], "a": 1})
        ));
        assert!(!same_states(json!({"a": 1}), json!({"a": 1.5})));
        assert!(!same_states(json!({"a": 1}), json!({"a": 1, "b": 1})));
        assert!(!same_states(json!({"a": "1"}), json!({"a": 1})));
        let large = u64::MAX;
        assert!(!same_states(json!({"a": large}), json!({"a": large - 1})));
    }
}
