//! Converts a YAML tree to typed values and reports every problem, not only the first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    scalar::Scalar,
    tree::{Key, Kind, Node, Position},
};
use crate::{
    diagnostics::{Diagnostics, Path, did_you_mean},
    names::{closest_match, quote, to_camel_case},
};

pub(crate) trait FromNode: Sized {
    /// Returns none after reporting a diagnostic.
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self>;

    /// The value of an absent field; none where the field is required.
    fn if_absent() -> Option<Self> {
        None
    }

    /// Whether the value equals that of an absent field, so that it need not be written.
    fn is_default(&self) -> bool {
        false
    }
}

pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) wire: Option<&'static str>,
    pub(crate) aliases: &'static [&'static str],
}

impl Field {
    pub(crate) fn serialized_name(&self) -> String {
        self.wire.map_or_else(|| to_camel_case(self.name), str::to_owned)
    }

    fn matches(&self, key: &str, camel: &str) -> bool {
        self.name == key
            || self.aliases.iter().any(|&alias| alias == key || alias == camel)
            || self.serialized_name() == camel
    }
}

/// Collects diagnostics while values are read.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a str,
    pub(crate) diagnostics: Diagnostics,
}

/// The value of each field of a type, in the order of its declaration.
pub(crate) struct FieldNodes<'n> {
    nodes: Vec<Option<&'n Node>>,
    position: Position,
}

impl Reader<'_> {
    pub(crate) fn add(&mut self, path: &Path, at: Position, message: impl Into<String>) {
        self.add_at(path, at, message.into(), None);
    }

    pub(crate) fn add_with_hint(
        &mut self,
        path: &Path,
        at: Position,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add_at(path, at, message.into(), Some(hint.into()));
    }

    pub(crate) fn add_at(
        &mut self,
        path: &Path,
        at: Position,
        message: String,
        hint: Option<String>,
    ) {
        self.diagnostics.add_at(path, Some(at.location(self.source)), message, hint);
    }

    /// Reports a value of another type than expected, and returns none.
    pub(crate) fn type_mismatch<T>(
        &mut self,
        expected: &str,
        node: &Node,
        path: &Path,
    ) -> Option<T> {
        const BOOLEANS: [&str; 8] = ["yes", "no", "on", "off", "y", "n", "true", "false"];
        let hint = match &node.kind {
            Kind::Invalid => return None,
            Kind::Scalar { text, plain: true } if expected == "a string" && !text.is_empty() => {
                Some(format!("put it in quotes: {}", quote(text)))
            }
            Kind::Scalar { text, .. }
                if expected == "true or false"
                    && BOOLEANS.contains(&text.to_ascii_lowercase().as_str()) =>
            {
                Some("use true or false without quotes".to_owned())
            }
            _ => None,
        };
        let message = format!("expected {expected}, found {}", describe(node));
        self.add_at(path, node.position, message, hint);
        None
    }

    /// Assigns the keys of a map to the fields of a type; other keys are reported.
    pub(crate) fn match_fields<'n>(
        &mut self,
        node: &'n Node,
        path: &Path,
        fields: &[Field],
        rejected: &[(&str, &str)],
    ) -> Option<FieldNodes<'n>> {
        let Kind::Map(entries) = &node.kind else {
            return self.type_mismatch("an object", node, path);
        };
        let mut found: Vec<Option<(&Key, &Node)>> = vec![None; fields.len()];
        for (key, value) in entries.iter() {
            let camel = to_camel_case(&key.text);
            let mut slots = fields.iter().zip(&mut found);
            let Some((field, slot)) = slots.find(|(it, _)| it.matches(&key.text, &camel)) else {
                self.unknown_field(&key.text, key.position, path, fields, rejected);
                continue;
            };
            if let Some((first, _)) = slot.replace((key, value)) {
                let message = if first.text == key.text {
                    "is set twice".to_owned()
                } else {
                    format!("is set twice, as {} and {}", first.text, key.text)
                };
                self.add(&path.field(&field.serialized_name()), key.position, message);
            }
        }
        let nodes = found.into_iter().map(|it| it.map(|(_, node)| node)).collect();
        Some(FieldNodes { nodes, position: node.position })
    }

    fn unknown_field(
        &mut self,
        key: &str,
        at: Position,
        path: &Path,
        fields: &[Field],
        rejected: &[(&str, &str)],
    ) {
        // Past the limit diagnostics are only counted, so skip the search for a suggestion.
        if self.diagnostics.all.len() >= Diagnostics::MAX {
            return self.add(path, at, String::new());
        }
        let camel = to_camel_case(key);
        let path = path.key(key);
        if let Some((_, why)) = rejected.iter().find(|(name, _)| *name == camel || *name == key) {
            return self.add(&path, at, format!("is not allowed: {why}"));
        }
        if key == "<<" {
            let hint = "use aliases for whole values";
            return self.add_with_hint(&path, at, "merge keys are not supported", hint);
        }
        let names: Vec<String> = fields.iter().map(Field::serialized_name).collect();
        let hint = closest_match(&camel, names.iter().map(String::as_str))
            .map_or_else(|| format!("known fields: {}", names.join(", ")), did_you_mean);
        self.add_with_hint(&path, at, "is not a known field", hint);
    }

    pub(crate) fn read_field<T: FromNode>(
        &mut self,
        found: &FieldNodes<'_>,
        fields: &[Field],
        index: usize,
        path: &Path,
    ) -> Option<T> {
        let name = fields.get(index).map(Field::serialized_name).unwrap_or_default();
        let path = path.field(&name);
        match found.nodes.get(index).copied().flatten() {
            Some(node) if !node.is_null() => T::from_node(node, &path, self),
            _ => T::if_absent().or_else(|| {
                self.add(&path, found.position, "is required");
                None
            }),
        }
    }
}

/// Describes a value in a message.
fn describe(node: &Node) -> String {
    match &node.kind {
        Kind::Invalid => "an invalid value".to_owned(),
        Kind::List(_) => "a list".to_owned(),
        Kind::Map(_) => "an object".to_owned(),
        Kind::Scalar { text, plain: false } => format!("the string {}", quote(text)),
        Kind::Scalar { text, plain: true } => match Scalar::of(text) {
            Scalar::Null => "nothing".to_owned(),
            Scalar::Text => format!("the string {}", quote(text)),
            other => format!("{} ({})", other.type_name(), quote(text)),
        },
    }
}

/// The text of a scalar and its type.
pub(crate) fn scalar(node: &Node) -> Option<(&str, Scalar)> {
    match &node.kind {
        Kind::Scalar { text, plain } => {
            Some((text, if *plain { Scalar::of(text) } else { Scalar::Text }))
        }
        Kind::List(_) | Kind::Map(_) | Kind::Invalid => None,
    }
}

impl FromNode for String {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match scalar(node) {
            Some((text, Scalar::Text)) => Some(text.to_owned()),
            _ => reader.type_mismatch("a string", node, path),
        }
    }
}

impl FromNode for bool {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match scalar(node) {
            Some((_, Scalar::Bool(value))) => Some(value),
            _ => reader.type_mismatch("true or false", node, path),
        }
    }

    fn if_absent() -> Option<Self> {
        Some(false)
    }

    fn is_default(&self) -> bool {
        !*self
    }
}

macro_rules! integer {
    ($type:ty) => {
        impl FromNode for $type {
            fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
                let Some((text, Scalar::Integer(value))) = scalar(node) else {
                    return reader.type_mismatch("an integer", node, path);
                };
                let value = value.and_then(|value| Self::try_from(value).ok());
                if value.is_none() {
                    let message =
                        format!("{} does not fit into {}", quote(text), stringify!($type));
                    reader.add(path, node.position, message);
                }
                value
            }
        }
    };
}
integer!(i32);
integer!(i64);

impl FromNode for f64 {
    #[allow(clippy::cast_precision_loss)] // No field needs integers above 2^53.
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match scalar(node) {
            Some((_, Scalar::Float(Some(value)))) => Some(value),
            Some((_, Scalar::Integer(Some(value)))) => Some(value as Self),
            _ => reader.type_mismatch("a finite number", node, path),
        }
    }
}

impl<T: FromNode> FromNode for Option<T> {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        T::from_node(node, path, reader).map(Some)
    }

    fn if_absent() -> Option<Self> {
        Some(None)
    }

    fn is_default(&self) -> bool {
        self.is_none()
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        let Kind::List(items) = &node.kind else {
            return reader.type_mismatch("a list", node, path);
        };
        // Reads every item before failing, so that all problems are reported.
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(at, item)| T::from_node(item, &path.index(at), reader))
            .collect();
        read.into_iter().collect()
    }

    fn if_absent() -> Option<Self> {
        Some(Self::new())
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl<T: FromNode> FromNode for BTreeMap<String, T> {
    fn from_node(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            return reader.type_mismatch("an object", node, path);
        };
        let (mut seen, mut all, mut valid) = (BTreeSet::new(), Self::new(), true);
        for (key, value) in entries.iter() {
            let path = path.key(&key.text);
            if !seen.insert(&*key.text) {
                reader.add(&path, key.position, "is set twice");
                valid = false;
            }
            match T::from_node(value, &path, reader) {
                Some(value) => drop(all.insert(key.text.to_string(), value)),
                None => valid = false,
            }
        }
        valid.then_some(all)
    }

    fn if_absent() -> Option<Self> {
        Some(Self::new())
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}
