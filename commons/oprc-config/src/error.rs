use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Kind, Source};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the config file {}: {reason}", path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("the config file {} is not a YAML mapping: {reason}", path.display())]
    Syntax { path: PathBuf, reason: String },
    /// All problems at once, one on each line.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    #[error("the setting {path} has no value: set {sources}")]
    Unset {
        path: &'static str,
        /// The flag, variables and key that can set it.
        sources: String,
    },
    /// Each value is valid, but not in combination with others or with the platform.
    #[error("{0}")]
    Inconsistent(String),
    /// A bug: the program reads a setting that its schema lacks, or as a type that cannot hold all
    /// values that the schema allows.
    #[error("the setting {path} cannot be read as {requested}: the schema has {found}")]
    Schema { path: String, requested: &'static str, found: String },
}

/// An invalid value or key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    #[error("{setting}: invalid value {value:?} from {origin}: expected {expected}")]
    Value { setting: &'static str, origin: Source, value: String, expected: Kind },
    #[error("{key}: unknown key in {}{}", file.display(), did_you_mean(suggestion.as_deref()))]
    UnknownKey { key: String, file: PathBuf, suggestion: Option<String> },
    #[error("{key}: not supported in {}: {reason}", file.display())]
    RejectedKey { key: String, file: PathBuf, reason: &'static str },
    /// A key that has further keys was set to a value.
    #[error("{key}: invalid value {value} in {}: expected a section with keys", file.display())]
    NotASection { key: String, file: PathBuf, value: String },
    /// Two keys are names of the same setting.
    #[error("{setting}: set twice in {}, by {first} and {second}: remove one", file.display())]
    SetTwice { setting: &'static str, file: PathBuf, first: String, second: String },
}

impl Problem {
    pub(crate) fn unknown(key: String, file: &Path, suggestion: Option<String>) -> Self {
        Self::UnknownKey { key, file: file.to_owned(), suggestion }
    }
}

pub(crate) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}
