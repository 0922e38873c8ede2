//! Typed values.

use std::{path::PathBuf, time::Duration};

use serde_json::Value as Raw;

/// A value that is valid for the kind of its setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Also of choices and paths.
    Text(String),
    Bool(bool),
    Integer(i64),
    Duration(Duration),
    List(Vec<String>),
}

/// `None` for lists, sections and null.
pub(crate) fn scalar(raw: &Raw) -> Option<String> {
    match raw {
        Raw::String(text) => Some(text.clone()),
        Raw::Bool(_) | Raw::Number(_) => Some(raw.to_string()),
        Raw::Null | Raw::Array(_) | Raw::Object(_) => None,
    }
}

/// A type that a setting can be read as.
pub trait FromValue<'a>: Sized {
    /// `None` if the value has another kind or does not fit.
    fn from_value(value: &'a Value) -> Option<Self>;

    /// The value of an unset setting; `None` if the setting must be set.
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
    i32: Value::Integer(number) => (*number).try_into().ok();
    u64: Value::Integer(number) => (*number).try_into().ok();
    u32: Value::Integer(number) => (*number).try_into().ok();
    u16: Value::Integer(number) => (*number).try_into().ok();
    usize: Value::Integer(number) => (*number).try_into().ok();
    Duration: Value::Duration(duration) => Some(*duration);
    Vec<String>: Value::List(items) => Some(items.clone());
}
