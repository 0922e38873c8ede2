//! Typed values, read out of a tree; everything that is wrong is noted, not only the first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    scalar::Scalar,
    tree::{Kind, Node, Spot},
};
use crate::{
    fault::{Faults, Path},
    names::{camel, nearest, shown},
};

/// Something that can be read out of a tree.
pub(crate) trait Read: Sized {
    /// Reads it; what is wrong is noted, and then there is none.
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self>;

    /// What it is where it is left out; none where it mustn't be.
    fn missing() -> Option<Self> {
        None
    }

    /// Whether it is the same as being left out.
    fn left_out(&self) -> bool {
        false
    }
}

/// One field of a type: its name, and what else it is read by.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) wire: Option<&'static str>,
    pub(crate) aliases: &'static [&'static str],
}

impl Field {
    /// The name as it is written.
    pub(crate) fn written(&self) -> String {
        self.wire.map_or_else(|| camel(self.name), str::to_owned)
    }

    fn is(&self, key: &str, camel: &str) -> bool {
        self.name == key
            || self.aliases.iter().any(|&alias| alias == key || alias == camel)
            || self.written() == camel
    }
}

/// Notes what is wrong while values are read.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a str,
    pub(crate) faults: Faults,
}

/// The fields that were found.
pub(crate) struct Found<'n> {
    nodes: Vec<Option<&'n Node>>,
    at: Spot,
}

impl Reader<'_> {
    pub(crate) fn note(&mut self, path: &Path, at: Spot, message: impl Into<String>) {
        self.faults.push(path, Some(at.place(self.source)), message.into(), None);
    }

    pub(crate) fn hint(
        &mut self,
        path: &Path,
        at: Spot,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.faults.push(path, Some(at.place(self.source)), message.into(), Some(hint.into()));
    }

    /// Notes that something else was expected.
    pub(crate) fn expected(&mut self, what: &str, node: &Node, path: &Path) {
        if matches!(node.kind, Kind::Refused) {
            return;
        }
        let message = format!("{} where {what} is expected", told(node));
        match &node.kind {
            Kind::Scalar { text, plain: true } if what == "text" && !text.is_empty() => {
                self.hint(path, node.at, message, format!("put it in quotes: {}", shown(text)));
            }
            Kind::Scalar { text, .. }
                if what == "true or false"
                    && ["yes", "no", "on", "off", "y", "n", "true", "false"]
                        .contains(&text.to_ascii_lowercase().as_str()) =>
            {
                self.hint(path, node.at, message, "write true or false, without quotes");
            }
            _ => self.note(path, node.at, message),
        }
    }

    /// Sorts the keys of a map to the fields of a type, and refuses those that have none.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: &Path,
        fields: &[Field],
        refused: &[(&str, &str)],
    ) -> Option<Found<'n>> {
        let Kind::Map(entries) = &node.kind else {
            self.expected("an object with fields", node, path);
            return None;
        };
        let mut found = Found { nodes: vec![None; fields.len()], at: node.at };
        let mut given: Vec<Option<&str>> = vec![None; fields.len()];
        for (key, value) in entries.iter() {
            let spelled = camel(&key.text);
            let at = fields.iter().position(|field| field.is(&key.text, &spelled));
            if let Some((at, field)) = at.and_then(|at| Some((at, fields.get(at)?))) {
                match given.get_mut(at) {
                    Some(Some(before)) => {
                        let again = if *before == &*key.text {
                            "is given twice".to_owned()
                        } else {
                            format!("is given twice, as {} and {}", before, &*key.text)
                        };
                        self.note(&path.field(&field.written()), key.at, again);
                    }
                    Some(before) => *before = Some(&key.text),
                    None => {}
                }
                if let Some(place) = found.nodes.get_mut(at) {
                    *place = Some(value);
                }
                continue;
            }
            self.unknown(&key.text, key.at, path, fields, refused);
        }
        Some(found)
    }

    fn unknown(
        &mut self,
        key: &str,
        at: Spot,
        path: &Path,
        fields: &[Field],
        refused: &[(&str, &str)],
    ) {
        // Of what nobody is told nothing is looked up.
        if self.faults.all.len() >= Faults::MOST {
            return self.note(path, at, String::new());
        }
        let camel = camel(key);
        let place = path.key(key);
        if let Some((_, why)) = refused.iter().find(|(name, _)| *name == camel || *name == key) {
            return self.note(&place, at, format!("is refused: {why}"));
        }
        if key == "<<" {
            return self.hint(
                &place,
                at,
                "merging isn't supported",
                "use aliases for whole values",
            );
        }
        let names: Vec<String> = fields.iter().map(Field::written).collect();
        match nearest(&camel, names.iter().map(String::as_str)) {
            Some(meant) => {
                self.hint(&place, at, "is unknown", format!("did you mean {meant}?"));
            }
            None => {
                self.hint(&place, at, "is unknown", format!("there are: {}", names.join(", ")));
            }
        }
    }

    /// Reads one of the fields that were found.
    pub(crate) fn take<T: Read>(
        &mut self,
        found: &Found<'_>,
        fields: &[Field],
        index: usize,
        path: &Path,
    ) -> Option<T> {
        let name = fields.get(index).map(Field::written).unwrap_or_default();
        let path = path.field(&name);
        match found.nodes.get(index).copied().flatten() {
            Some(node) if !node.is_null() => T::read(node, &path, self),
            _ => {
                let missing = T::missing();
                if missing.is_none() {
                    self.note(&path, found.at, "is missing");
                }
                missing
            }
        }
    }
}

/// What a node is, as messages tell it.
pub(crate) fn told(node: &Node) -> String {
    match &node.kind {
        Kind::Refused => "what was refused stands".to_owned(),
        Kind::List(_) => "a list stands".to_owned(),
        Kind::Map(_) => "an object stands".to_owned(),
        Kind::Scalar { text, plain: false } => format!("the text {} stands", shown(text)),
        Kind::Scalar { text, plain: true } => match Scalar::of(text) {
            Scalar::Null => "nothing stands".to_owned(),
            Scalar::Text => format!("the text {} stands", shown(text)),
            other => format!("{} ({}) stands", other.word(), shown(text)),
        },
    }
}

/// The text of a scalar and what it is.
pub(crate) fn scalar(node: &Node) -> Option<(&str, Scalar)> {
    match &node.kind {
        Kind::Scalar { text, plain } => {
            Some((text, if *plain { Scalar::of(text) } else { Scalar::Text }))
        }
        Kind::List(_) | Kind::Map(_) | Kind::Refused => None,
    }
}

impl Read for String {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match scalar(node) {
            Some((text, Scalar::Text)) => Some(text.to_owned()),
            _ => {
                reader.expected("text", node, path);
                None
            }
        }
    }
}

impl Read for bool {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        if let Some((_, Scalar::Bool(value))) = scalar(node) {
            return Some(value);
        }
        reader.expected("true or false", node, path);
        None
    }

    fn missing() -> Option<Self> {
        Some(false)
    }

    fn left_out(&self) -> bool {
        !*self
    }
}

macro_rules! whole {
    ($type:ty) => {
        impl Read for $type {
            fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
                let Some((text, Scalar::Integer(value))) = scalar(node) else {
                    reader.expected("a whole number", node, path);
                    return None;
                };
                let value = value.and_then(|value| Self::try_from(value).ok());
                if value.is_none() {
                    reader.note(path, node.at, format!("{} is out of range", shown(text)));
                }
                value
            }
        }
    };
}
whole!(i32);
whole!(i64);

impl Read for f64 {
    #[allow(clippy::cast_precision_loss)] // Nobody asks for 2^53 of anything.
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        match scalar(node) {
            Some((_, Scalar::Float(Some(value)))) => Some(value),
            Some((_, Scalar::Integer(Some(value)))) => Some(value as Self),
            _ => {
                reader.expected("a finite number", node, path);
                None
            }
        }
    }
}

impl<T: Read> Read for Option<T> {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        T::read(node, path, reader).map(Some)
    }

    fn missing() -> Option<Self> {
        Some(None)
    }

    fn left_out(&self) -> bool {
        self.is_none()
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        let Kind::List(items) = &node.kind else {
            reader.expected("a list", node, path);
            return None;
        };
        // All are read before one that can't be ends it.
        let read: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(at, item)| T::read(item, &path.index(at), reader))
            .collect();
        read.into_iter().collect()
    }

    fn missing() -> Option<Self> {
        Some(Self::new())
    }

    fn left_out(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Read> Read for BTreeMap<String, T> {
    fn read(node: &Node, path: &Path, reader: &mut Reader<'_>) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            reader.expected("an object with keys", node, path);
            return None;
        };
        let (mut seen, mut all, mut whole) = (BTreeSet::new(), Self::new(), true);
        for (key, value) in entries.iter() {
            let path = path.key(&key.text);
            if !seen.insert(&*key.text) {
                reader.note(&path, key.at, "is given twice");
                whole = false;
            }
            match T::read(value, &path, reader) {
                Some(value) => drop(all.insert(key.text.to_string(), value)),
                None => whole = false,
            }
        }
        whole.then_some(all)
    }

    fn missing() -> Option<Self> {
        Some(Self::new())
    }

    fn left_out(&self) -> bool {
        self.is_empty()
    }
}
