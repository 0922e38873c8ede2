//! Values, once checked.

use std::{path::PathBuf, time::Duration};

use serde_json::Value as Raw;

/// A value that its setting's kind has allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a text, a choice or a path.
    Text(String),
    /// Of a bool.
    Bool(bool),
    /// Of an integer.
    Integer(i64),
    /// Of a float.
    Float(f64),
    /// Of a duration.
    Duration(Duration),
    /// Of a list.
    List(Vec<String>),
}

/// The text of what is neither a list, a section nor null.
pub(crate) fn scalar(raw: &Raw) -> Option<String> {
    match raw {
        Raw::String(text) => Some(text.clone()),
        Raw::Bool(_) | Raw::Number(_) => Some(raw.to_string()),
        Raw::Null | Raw::Array(_) | Raw::Object(_) => None,
    }
}

/// A type that a setting can be read as.
pub trait FromValue<'a>: Sized {
    /// The value as this type, or `None` if its kind is another or it does not fit.
    fn from_value(value: &'a Value) -> Option<Self>;

    /// What stands for a setting without a value; `None` if there must be one.
    fn unset() -> Option<Self> {
        None
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: &'a Value) -> Option<Self> {
        T::from_value(value).map(Some)
    }

    fn unset() -> Option<Self> {
        Some(None)
    }
}

macro_rules! from_value {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {$(
        impl<'a> FromValue<'a> for $type {
            fn from_value(value: &'a Value) -> Option<Self> {
                match value {
                    $pattern => $value,
                    _ => None,
                }
            }
        }
    )*};
}

from_value! {
    &'a str: Value::Text(text) => Some(text);
    String: Value::Text(text) => Some(text.clone());
    PathBuf: Value::Text(text) => Some(text.into());
    bool: Value::Bool(truth) => Some(*truth);
    i64: Value::Integer(number) => Some(*number);
    i32: Value::Integer(number) => (*number).try_into().ok();
    u64: Value::Integer(number) => (*number).try_into().ok();
    u32: Value::Integer(number) => (*number).try_into().ok();
    u16: Value::Integer(number) => (*number).try_into().ok();
    usize: Value::Integer(number) => (*number).try_into().ok();
    f64: Value::Float(number) => Some(*number);
    Duration: Value::Duration(duration) => Some(*duration);
    &'a [String]: Value::List(items) => Some(items);
    Vec<String>: Value::List(items) => Some(items.clone());
}
