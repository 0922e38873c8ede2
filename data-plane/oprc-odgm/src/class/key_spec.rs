//! Keys of the state of objects.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The state of an object by key.
pub type State = Map<String, Value>;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct KeySpec {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: KeyType,
    #[serde(default)]
    pub optional: bool,
    /// Whether the value stays once it is set, until the object is deleted.
    #[serde(default)]
    pub immutable: bool,
}

impl KeySpec {
    /// What is wrong with a state.
    pub(super) fn problem(&self, state: &State) -> Option<String> {
        match state.get(&self.name) {
            None | Some(Value::Null) if self.optional => None,
            None => Some(format!("{} is missing", self.name)),
            Some(value) if self.kind.admits(value) => None,
            Some(_) => Some(format!("{} must be {}", self.name, self.kind.expected())),
        }
    }

    /// What is wrong with a change.
    pub(super) fn change_problem(
        &self,
        before: &State,
        after: &State,
        is_same: impl Fn(&Value, &Value) -> bool,
    ) -> Option<String> {
        let former = before.get(&self.name).filter(|it| self.immutable && !it.is_null())?;
        let present = after.get(&self.name).unwrap_or(&Value::Null);
        (!is_same(former, present)).then(|| format!("{} is immutable", self.name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum KeyType {
    String,
    Integer,
    Double,
    Boolean,
    Json,
}

impl KeyType {
    fn admits(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Double => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Json => true,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Double => "a number",
            Self::Boolean => "true or false",
            Self::Json => "any value",
        }
    }
}
