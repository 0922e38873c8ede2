//! What can go wrong.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Kind, Setting, Source};

/// Why there are no settings, or not this one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The config file cannot be read.
    #[error("cannot read the config file {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// The config file is not YAML, or not a mapping.
    #[error("the config file {} is not a YAML mapping: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Why not, and where.
        reason: String,
    },
    /// Some settings are wrong: all of them, one on each line.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// A setting that must have a value has none.
    #[error("the setting {path} has no value: give {ways}")]
    Unset {
        /// The setting.
        path: &'static str,
        /// The flag, variables and key that would give one.
        ways: String,
    },
    /// Settings are allowed one by one, and don't go together; or one means nothing here.
    #[error("{0}")]
    Together(String),
    /// The program reads a setting that its table lacks, or as a type that does not
    /// hold all that the table allows. No input leads here.
    #[error("the setting {path} cannot be read as {wanted}: the table has {found}")]
    Table {
        /// The setting.
        path: String,
        /// The type it was read as.
        wanted: &'static str,
        /// What the table says.
        found: String,
    },
}

/// One thing that is wrong with what was given.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// A value that its setting does not allow.
    #[error("{setting}: {value:?} from {from} is not allowed; allowed is {allowed}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// Where the value came from.
        from: Source,
        /// The value.
        value: String,
        /// What is allowed.
        allowed: Kind,
    },
    /// A key of the file that no setting has.
    #[error("{key}: unknown key in {}{}", file.display(), did_you_mean(meant.as_deref()))]
    UnknownKey {
        /// The key's full path, as the file has it.
        key: String,
        /// The file.
        file: PathBuf,
        /// The key that was probably meant.
        meant: Option<String>,
    },
    /// A key of the file that is known, but refused.
    #[error("{key}: refused in {}: {why}", file.display())]
    RefusedKey {
        /// The key's full path, as the file has it.
        key: String,
        /// The file.
        file: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// A key of the file that has further keys, but was given a value.
    #[error("{key}: {value} in {} is not allowed; allowed is a section with keys", file.display())]
    NotASection {
        /// The key's full path, as the file has it.
        key: String,
        /// The file.
        file: PathBuf,
        /// The value.
        value: String,
    },
    /// Two keys of the file that mean the same setting.
    #[error("{setting}: given twice in {}, by {first} and {second}; keep one", file.display())]
    GivenTwice {
        /// The setting.
        setting: &'static str,
        /// The file.
        file: PathBuf,
        /// One key.
        first: String,
        /// The other key.
        second: String,
    },
}

impl Problem {
    pub(crate) fn value(setting: &Setting, from: Source, value: String) -> Self {
        Self::Value { setting: setting.path, from, value, allowed: setting.kind }
    }

    pub(crate) fn unknown(key: String, file: &Path, meant: Option<String>) -> Self {
        Self::UnknownKey { key, file: file.to_owned(), meant }
    }
}

/// The end of a complaint about an unknown name.
pub(crate) fn did_you_mean(meant: Option<&str>) -> String {
    meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}
