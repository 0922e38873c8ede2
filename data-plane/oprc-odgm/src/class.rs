//! What the grid knows about its class: the document that CRM publishes.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value};

use crate::Error;

/// The state of an object by key.
pub type State = Map<String, Value>;

/// An object's state has at most this many bytes as JSON. With arguments, result and events it fits
/// into a transaction of the store.
pub const MAX_STATE_BYTES: usize = 256 << 10;

const DEFAULT_TRIGGER_DEPTH: u32 = 10;

/// The class whose objects a grid stores.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Class {
    pub name: String,
    pub state_type: StateType,
    /// The first is that of calls without a collection.
    pub collections: Vec<String>,
    /// If there is none, objects may have any keys.
    pub key_specs: Vec<KeySpec>,
    /// By name.
    pub methods: BTreeMap<String, Method>,
    /// Methods that are called when an object has changed.
    pub triggers: Vec<Trigger>,
    /// How long a chain of triggered calls may be.
    #[serde(deserialize_with = "at_least_one")]
    pub max_trigger_depth: u32,
}

/// A method that is called when an object has changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    pub method: String,
    /// Patterns of collections; `*` matches any characters. All, if there is none.
    #[serde(default)]
    pub collections: Vec<String>,
}

impl Trigger {
    fn concerns(&self, collection: &str) -> bool {
        let matches = |pattern: &String| matches(pattern, collection);
        self.collections.is_empty() || self.collections.iter().any(matches)
    }
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let mut starts = (0..=rest.len()).filter(|at| rest.is_char_boundary(*at));
            starts.any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))
        }),
    }
}

impl Default for Class {
    fn default() -> Self {
        Self {
            name: String::new(),
            state_type: StateType::default(),
            collections: Vec::new(),
            key_specs: Vec::new(),
            methods: BTreeMap::new(),
            triggers: Vec::new(),
            max_trigger_depth: DEFAULT_TRIGGER_DEPTH,
        }
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(D::Error::custom("maxTriggerDepth must be at least 1")),
        depth => Ok(depth),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StateType {
    #[default]
    Normal,
    Collection,
    Singleton,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct KeySpec {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: KeyType,
    #[serde(default)]
    pub optional: bool,
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

/// A method of the class.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Method {
    /// Address of its function.
    pub url: String,
    #[serde(default)]
    pub access: Access,
    /// Calls change nothing, and run side by side.
    #[serde(default)]
    pub read_only: bool,
    #[serde(default = "default_timeout")]
    timeout_ms: u64,
}

impl Method {
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

fn default_timeout() -> u64 {
    30_000
}

/// Who may call a method, and who calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Access {
    /// Anyone.
    Public,
    /// Workloads of the cluster.
    #[default]
    Internal,
    /// The class itself.
    Private,
}

impl Access {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "PUBLIC",
            Self::Internal => "INTERNAL",
            Self::Private => "PRIVATE",
        }
    }
}

/// What made a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// None if a client wrote the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// How many triggers led to it.
    pub depth: u32,
}

impl Class {
    /// A method that a caller may call.
    pub fn method(&self, name: &str, caller: Access) -> Result<&Method, Error> {
        let method = self.methods.get(name);
        let method = method.ok_or_else(|| Error::UnknownMethod(name.to_owned()))?;
        if caller < method.access {
            let access = method.access.as_str();
            return Err(Error::Forbidden { method: name.to_owned(), access });
        }
        Ok(method)
    }

    /// The collection of a call.
    pub fn collection<'a>(&'a self, name: Option<&'a str>) -> Result<&'a str, Error> {
        let found = match name {
            Some(name) => self.collections.iter().find(|it| *it == name),
            None => self.collections.first(),
        };
        found.map(String::as_str).ok_or_else(|| Error::UnknownCollection(name.unwrap_or("").into()))
    }

    /// The triggers of a change. A method isn't triggered by its own changes.
    pub fn triggers(&self, collection: &str, by: &Cause) -> impl Iterator<Item = &Trigger> {
        let is_too_deep = by.depth >= self.max_trigger_depth;
        self.triggers
            .iter()
            .filter(move |_| !is_too_deep)
            .filter(move |it| it.concerns(collection))
            .filter(|it| by.method.as_ref() != Some(&it.method))
    }

    /// Checks all keys, and reports all problems.
    pub fn check(&self, state: &State) -> Result<(), Error> {
        let bytes = serde_json::to_vec(state).map_or(0, |it| it.len());
        if bytes > MAX_STATE_BYTES {
            return Err(Error::TooLarge { what: "the state", bytes, limit: MAX_STATE_BYTES });
        }
        if self.key_specs.is_empty() {
            return Ok(());
        }
        let mut problems = Vec::new();
        for spec in &self.key_specs {
            match state.get(&spec.name) {
                None | Some(Value::Null) if spec.optional => {}
                None => problems.push(format!("{} is missing", spec.name)),
                Some(value) if spec.kind.admits(value) => {}
                Some(_) => {
                    problems.push(format!("{} must be {}", spec.name, spec.kind.expected()));
                }
            }
        }
        let is_known = |key: &String| self.key_specs.iter().any(|it| it.name == *key);
        problems.extend(
            state.keys().filter(|key| !is_known(key)).map(|key| format!("{key} is not a key")),
        );
        if problems.is_empty() { Ok(()) } else { Err(Error::InvalidState { problems }) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            class.triggers(collection, &cause).map(|it| it.method.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("Cart_data", None, 0), ["audit", "close"]);
        assert_eq!(of("Cart", None, 0), ["close"]);
        assert_eq!(of("x", Some("audit"), 1), ["close"]);
        assert_eq!(of("x", None, 2), [""; 0]);
        for (pattern, text) in
            [("*", ""), ("a*c", "abbc"), ("*b*", "abc"), ("a*", "a"), ("é*", "éa")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a*c", "abb"), ("", "a"), ("a", "ab"), ("*b", "abc")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn collections_are_found() {
        let class = class();
        assert_eq!(class.collection(None).unwrap(), "Cart_data");
        assert_eq!(class.collection(Some("Cart_old")).unwrap(), "Cart_old");
        assert!(class.collection(Some("other")).is_err());
    }
}
