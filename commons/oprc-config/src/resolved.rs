//! The settings that count.

use std::{
    fmt::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::{Error, FromValue, Setting, Value};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag, with its dashes.
    Flag(String),
    /// The variable of this name.
    Env(String),
    /// The config file.
    File {
        /// The file.
        path: PathBuf,
        /// The key's full path, as the file has it.
        key: String,
    },
    /// The default of this profile.
    Default(String),
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(out, "flag {name}"),
            Self::Env(name) => write!(out, "variable {name}"),
            Self::File { path, key } => write!(out, "file {} ({key})", path.display()),
            Self::Default(profile) if profile.is_empty() => out.write_str("default"),
            Self::Default(profile) => write!(out, "default of {profile}"),
        }
    }
}

/// What counts for one setting.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) setting: Setting,
    pub(crate) value: Option<Value>,
    /// The value as it was given.
    pub(crate) shown: Option<String>,
    pub(crate) source: Source,
}

/// The settings that count: all of the table, each allowed by its kind.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub(crate) entries: Vec<Entry>,
    pub(crate) profile: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) config_file: Option<PathBuf>,
}

impl Resolved {
    /// The value of a setting, as the type that is asked for: `&str`, `String` or
    /// `PathBuf` of a text, choice or path; `bool`; any integer; `f64`; `Duration`;
    /// `&[String]` or `Vec<String>` of a list; and `Option` of these, without which
    /// a setting that is not given is an error.
    pub fn get<'a, T: FromValue<'a>>(&'a self, path: &str) -> Result<T, Error> {
        let table = |found: String| Error::Table {
            path: path.to_owned(),
            wanted: std::any::type_name::<T>(),
            found,
        };
        let Entry { setting, value, .. } =
            self.entry(path).ok_or_else(|| table("no such setting".to_owned()))?;
        match value {
            Some(value) => T::from_value(value).ok_or_else(|| table(setting.kind.to_string())),
            None => {
                T::unset().ok_or_else(|| Error::Unset { path: setting.path, ways: ways(setting) })
            }
        }
    }

    /// The values of two settings that are of use only together, where they are given.
    pub fn both<'a, A, B>(&'a self, one: &str, other: &str) -> Result<Option<(A, B)>, Error>
    where
        Option<A>: FromValue<'a>,
        Option<B>: FromValue<'a>,
    {
        match (self.get(one)?, self.get(other)?) {
            (Some(a), Some(b)) => Ok(Some((a, b))),
            (None, None) => Ok(None),
            _ => Err(Error::Together(format!("{one} and {other} are needed together"))),
        }
    }

    /// Where the value of a setting came from; `None` if the table has no such setting.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.entry(path).map(|entry| &entry.source)
    }

    /// The profile that was chosen.
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// The config file that was read, if any.
    pub fn config_file(&self) -> Option<&Path> {
        self.config_file.as_deref()
    }

    /// What should be looked into, though it did not stop the start.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// All settings with their values and where these came from, in aligned columns.
    pub fn describe(&self) -> String {
        let rows: Vec<[String; 3]> = self
            .entries
            .iter()
            .map(|entry| {
                let value = entry.shown.clone().unwrap_or_else(|| "(unset)".to_owned());
                [entry.setting.path.to_owned(), value, entry.source.to_string()]
            })
            .collect();
        let width = |cell: fn(&[String; 3]) -> &String| {
            rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or_default()
        };
        let (paths, values) = (width(|[path, ..]| path), width(|[_, value, _]| value));
        let mut table = String::new();
        for [path, value, source] in &rows {
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{path:paths$}  {value:values$}  {source}");
        }
        table
    }

    fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.setting.path == path)
    }
}

fn ways(setting: &Setting) -> String {
    let flag = format!("--{}", setting.flag());
    let variables = setting.env.iter().map(|name| format!("the variable {name}"));
    let ways: Vec<String> = std::iter::once(flag).chain(variables).collect();
    format!("{} or {} in the config file", ways.join(", "), setting.path)
}
