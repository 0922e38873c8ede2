//! Diagnostics: problems found in package and deployment files, with their positions.

use std::{cell::RefCell, fmt};

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

    pub(crate) fn add_at(
        &mut self,
        path: &Path,
        location: Option<SourceLocation>,
        message: String,
        hint: Option<String>,
    ) {
        self.push(Diagnostic { path: path.to_string(), location, message, hint });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Runs checks that start at the root of a document, and returns their result if they report no
    /// diagnostic.
    pub(crate) fn collect<T>(check: impl FnOnce(&FieldCursor<'_>) -> T) -> Result<T, Self> {
        let diagnostics = RefCell::default();
        let value = check(&FieldCursor { path: Path::default(), diagnostics: &diagnostics });
        let diagnostics = diagnostics.into_inner();
        if diagnostics.is_empty() { Ok(value) } else { Err(diagnostics) }
    }
}

/// A field of a document that is checked, where diagnostics are added.
#[derive(Clone)]
pub(crate) struct FieldCursor<'a> {
    path: Path,
    diagnostics: &'a RefCell<Diagnostics>,
}

impl FieldCursor<'_> {
    fn with_path(&self, path: Path) -> Self {
        Self { path, diagnostics: self.diagnostics }
    }

    pub(crate) fn field(&self, name: &str) -> Self {
        self.with_path(self.path.field(name))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with_path(self.path.index(index))
    }

    /// Moves to a user-chosen key, which may contain any character.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with_path(self.path.key(key))
    }

    /// The items of a list, each with its own cursor.
    pub(crate) fn items<'i, T>(&self, items: &'i [T]) -> impl Iterator<Item = (Self, &'i T)> {
        items.iter().enumerate().map(|(index, item)| (self.index(index), item))
    }

    pub(crate) fn add(&self, message: impl Into<String>) {
        self.diagnostics.borrow_mut().add_at(&self.path, None, message.into(), None);
    }

    pub(crate) fn add_with_hint(&self, message: impl Into<String>, hint: impl Into<String>) {
        let (message, hint) = (message.into(), Some(hint.into()));
        self.diagnostics.borrow_mut().add_at(&self.path, None, message, hint);
    }

    /// Adds a message with a `did you mean` hint if there is a suggestion.
    pub(crate) fn add_with_suggestion(&self, message: String, suggestion: Option<&str>) {
        let hint = suggestion.map(did_you_mean);
        self.diagnostics.borrow_mut().add_at(&self.path, None, message, hint);
    }

    /// Whether no check has reported a diagnostic, here or elsewhere.
    pub(crate) fn is_document_valid(&self) -> bool {
        self.diagnostics.borrow().is_empty()
    }
}

pub(crate) fn did_you_mean(name: &str) -> String {
    format!("did you mean {name}?")
}

/// The path of a field within a document.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    pub fn field(&self, name: &str) -> Self {
        let dot = if self.0.is_empty() { "" } else { "." };
        Self(format!("{}{dot}{name}", self.0))
    }

    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Appends a user-chosen key, which may contain any character.
    pub fn key(&self, key: &str) -> Self {
        match segment(key) {
            (plain, true) => self.field(&plain),
            (quoted, false) => Self(format!("{}{quoted}", self.0)),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
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
