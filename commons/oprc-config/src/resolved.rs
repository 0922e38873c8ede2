//! Resolved settings.

use std::fmt::Write as _;

use crate::{Error, FromValue, Setting, Source, Value};

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) setting: Setting,
    /// Parsed, and as written in its source.
    pub(crate) value: Option<(Value, String)>,
    pub(crate) source: Source,
}

impl Entry {
    fn text(&self) -> &str {
        self.value.as_ref().map_or("(unset)", |(_, text)| text)
    }
}

/// The values of all settings of a schema, each valid for its kind.
#[derive(Clone, Debug)]
pub struct Resolved {
    pub(crate) entries: Vec<Entry>,
    pub(crate) warnings: Vec<String>,
}

impl Resolved {
    /// The value of a setting. `T` is `&str`, `String` or `PathBuf` for texts, choices and paths;
    /// `bool`; an integer; `Duration`; `Vec<String>` for lists; or an `Option` of these, without
    /// which an unset setting is an error.
    pub fn get<'a, T: FromValue<'a>>(&'a self, path: &str) -> Result<T, Error> {
        let mismatch = |found: String| Error::Schema {
            path: path.to_owned(),
            requested: std::any::type_name::<T>(),
            found,
        };
        let Entry { setting, value, .. } =
            self.entry(path).ok_or_else(|| mismatch("no such setting".to_owned()))?;
        match value {
            Some((value, _)) => {
                T::from_value(value).ok_or_else(|| mismatch(setting.kind.to_string()))
            }
            None => T::unset()
                .ok_or_else(|| Error::Unset { path: setting.path, sources: sources(setting) }),
        }
    }

    /// The values of two settings that must be set together or not at all.
    pub fn both<'a, A, B>(&'a self, one: &str, other: &str) -> Result<Option<(A, B)>, Error>
    where
        Option<A>: FromValue<'a>,
        Option<B>: FromValue<'a>,
    {
        match (self.get(one)?, self.get(other)?) {
            (Some(a), Some(b)) => Ok(Some((a, b))),
            (None, None) => Ok(None),
            _ => Err(Error::Inconsistent(format!("set both {one} and {other}, or neither"))),
        }
    }

    /// `None` if the schema has no such setting.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.entry(path).map(|entry| &entry.source)
    }

    /// Problems that didn't prevent startup.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A table of all settings with their values and sources, in aligned columns.
    pub fn describe(&self) -> String {
        let width = |cell: fn(&Entry) -> &str| {
            self.entries.iter().map(|entry| cell(entry).chars().count()).max().unwrap_or_default()
        };
        let (paths, values) = (width(|entry| entry.setting.path), width(Entry::text));
        let mut table = String::new();
        for entry in &self.entries {
            let (path, value, source) = (entry.setting.path, entry.text(), &entry.source);
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{path:paths$}  {value:values$}  {source}");
        }
        table
    }

    fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.setting.path == path)
    }
}

fn sources(setting: &Setting) -> String {
    let flag = format!("--{}", setting.flag());
    let variables = setting.env.iter().map(|name| format!("the variable {name}"));
    let sources: Vec<String> = std::iter::once(flag).chain(variables).collect();
    format!("{} or {} in the config file", sources.join(", "), setting.path)
}
