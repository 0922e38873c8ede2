//! Diagnostics: problems found in package and deployment files, with their positions.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::quote;

/// One problem in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The field, such as `classes[0].functions[1].access`; `.` is the document itself.
    pub path: String,
    /// Absent where the document was not read from a file.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub location: Option<SourceLocation>,
    pub message: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    /// The name of the source, such as a file name.
    pub source: String,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(SourceLocation { source, line, column }) = &self.location {
            write!(f, "{source}:{line}:{column}: ")?;
        }
        write!(f, "{}: {}", self.path, self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

/// The problems of a document, in source order where positions are known. As an error it holds at
/// least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Diagnostics {
    /// At most [`Diagnostics::MAX`].
    pub all: Vec<Diagnostic>,
    /// How many more were found.
    pub omitted: usize,
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.all.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        if self.omitted > 0 {
            write!(f, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl Diagnostics {
    /// How many diagnostics are kept; more are only counted.
    pub const MAX: usize = 100;

    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.all.len() < Self::MAX {
            self.all.push(diagnostic);
        } else {
            self.omitted += 1;
        }
    }

    pub fn append(&mut self, other: Self) {
        other.all.into_iter().for_each(|diagnostic| self.push(diagnostic));
        self.omitted += other.omitted;
    }

    pub(crate) fn add(&mut self, path: &Path, message: impl Into<String>) {
        self.add_at(path, None, message.into(), None);
    }

    pub(crate) fn add_with_hint(
        &mut self,
        path: &Path,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add_at(path, None, message.into(), Some(hint.into()));
    }

    /// Adds a message with a `did you mean` hint if there is a suggestion.
    pub(crate) fn add_with_suggestion(
        &mut self,
        path: &Path,
        message: String,
        suggestion: Option<&str>,
    ) {
        let hint = suggestion.map(|name| format!("did you mean {name}?"));
        self.add_at(path, None, message, hint);
    }

    pub(crate) fn add_at(
        &mut self,
        path: &Path,
        location: Option<SourceLocation>,
        message: String,
        hint: Option<String>,
    ) {
        self.push(Diagnostic { path: path.render(), location, message, hint });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// `value` where there is no diagnostic.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// The path of a field within a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.0.is_empty() { "" } else { "." };
        Self(format!("{}{dot}{name}", self.0))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Appends a user-chosen key, which may contain any character.
    pub(crate) fn key(&self, key: &str) -> Self {
        match segment(key) {
            (plain, true) => self.field(&plain),
            (quoted, false) => Self(format!("{}{quoted}", self.0)),
        }
    }

    fn render(&self) -> String {
        if self.0.is_empty() { ".".to_owned() } else { self.0.clone() }
    }
}

/// The path segment for a key, and whether a dot precedes it.
pub(crate) fn segment(key: &str) -> (String, bool) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-$".contains(&byte);
    if !key.is_empty() && key.len() <= 64 && key.bytes().all(plain) {
        (key.to_owned(), true)
    } else {
        (format!("[{}]", quote(key)), false)
    }
}
