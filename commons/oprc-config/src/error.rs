use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the config file {}: {reason}", path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("the config file {} is not a YAML mapping: {reason}", path.display())]
    Syntax { path: PathBuf, reason: String },
    /// All invalid values and keys at once, each described on one line.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
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

pub(crate) fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}
