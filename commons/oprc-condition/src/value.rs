//! JSON as values of CEL.

use std::{collections::HashMap, sync::Arc};

use cel::{
    Value,
    objects::{Key, Map},
};
use serde_json::Value as Json;

use crate::Input;

pub(crate) fn object(input: &Input<'_>) -> Value {
    let entries = [
        ("id", Value::String(Arc::new(input.id.to_owned()))),
        ("version", integer(input.version)),
        ("state", map(input.state)),
    ];
    let entries = entries.into_iter().map(|(name, value)| (key(name), value));
    Value::Map(Map { map: Arc::new(entries.collect()) })
}

/// Integers are of the type `int` where they fit, so that they can be compared with literals.
pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::UInt(number),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(all) => Value::List(Arc::new(all.iter().map(from_json).collect())),
        Json::Object(entries) => map(entries),
    }
}

fn integer(number: u64) -> Value {
    i64::try_from(number).map_or(Value::UInt(number), Value::Int)
}

fn map(entries: &serde_json::Map<String, Json>) -> Value {
    let entries = entries.iter().map(|(name, value)| (key(name), from_json(value)));
    Value::Map(Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}
