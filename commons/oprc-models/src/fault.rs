//! What is wrong with a package or deployment, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::shown;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What it is about, such as `classes[0].functions[1].access`; `.` is the document itself.
    pub path: String,
    /// Where that stands, where it was read from a text.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The text's name, such as that of its file.
    pub source: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { source, line, column }) = &self.place {
            write!(f, "{source}:{line}:{column}: ")?;
        }
        write!(f, "{}: {}", self.path, self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

/// Everything that is wrong, in the order of the text as far as there is one. There is at least
/// one fault in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Faults {
    /// What is wrong; no more than a person would read.
    pub all: Vec<Fault>,
    /// How many more there are.
    pub left_out: usize,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.all.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        if self.left_out > 0 {
            write!(f, "\nand {} more", self.left_out)?;
        }
        Ok(())
    }
}

impl Faults {
    /// How many faults are told.
    pub const MOST: usize = 100;

    /// Notes what is wrong at a path.
    pub(crate) fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.push(path, None, message.into(), None);
    }

    /// The same, with what to do about it.
    pub(crate) fn hint(
        &mut self,
        path: &Path,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(path, None, message.into(), Some(hint.into()));
    }

    pub(crate) fn push(
        &mut self,
        path: &Path,
        place: Option<Place>,
        message: String,
        hint: Option<String>,
    ) {
        if self.all.len() < Self::MOST {
            self.all.push(Fault { path: path.told(), place, message, hint });
        } else {
            self.left_out += 1;
        }
    }

    /// Whether nothing was found, which no caller outside ever sees.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// `value`, where nothing is wrong.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// Where in a document something stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.0.is_empty() { "" } else { "." };
        Self(format!("{}{dot}{name}", self.0))
    }

    pub(crate) fn index(&self, at: usize) -> Self {
        Self(format!("{}[{at}]", self.0))
    }

    /// A key that people have chosen, and that may hold anything.
    pub(crate) fn key(&self, key: &str) -> Self {
        match segment(key) {
            (plain, true) => self.field(&plain),
            (quoted, false) => Self(format!("{}{quoted}", self.0)),
        }
    }

    /// The path as faults tell it.
    pub(crate) fn told(&self) -> String {
        if self.0.is_empty() { ".".to_owned() } else { self.0.clone() }
    }
}

/// A key as a path has it, and whether it is put behind a dot.
pub(crate) fn segment(key: &str) -> (String, bool) {
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || b"_-$".contains(&letter);
    if !key.is_empty() && key.len() <= 64 && key.bytes().all(plain) {
        (key.to_owned(), true)
    } else {
        (format!("[{}]", shown(key)), false)
    }
}
