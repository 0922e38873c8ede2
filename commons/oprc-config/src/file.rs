//! The config file: assigns its keys to settings.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value as Raw};

use crate::{Error, Problem, Schema, names};

#[derive(Debug)]
pub(crate) struct FileValue {
    /// The key's full path as written in the file.
    pub(crate) key: String,
    /// Not validated yet.
    pub(crate) raw: Raw,
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// By the path of the setting.
    pub(crate) values: BTreeMap<&'static str, FileValue>,
    pub(crate) problems: Vec<Problem>,
}

pub(crate) fn parse(schema: &Schema, file: &Path, text: &str) -> Result<Contents, Error> {
    let syntax = |reason: String| Error::Syntax { path: file.to_owned(), reason };
    let sections = match serde_saphyr::from_str(text).map_err(|error| syntax(error.to_string()))? {
        // A file that has only comments.
        Raw::Null => Map::new(),
        Raw::Object(sections) => sections,
        other => return Err(syntax(format!("it contains only {other}"))),
    };
    let mut reader = Reader { schema, file, contents: Contents::default() };
    for (key, value) in sections {
        match value {
            Raw::Object(section) if schema.root == Some(names::snake(&key).as_str()) => {
                let prefix = format!("{key}.");
                for (key, value) in section {
                    reader.read(&prefix, &key, value);
                }
            }
            value => reader.read("", &key, value),
        }
    }
    Ok(reader.contents)
}

struct Reader<'a> {
    schema: &'a Schema,
    file: &'a Path,
    contents: Contents,
}

impl Reader<'_> {
    /// Reads the value of `key`; `prefix` is the root section, which setting paths lack.
    fn read(&mut self, prefix: &str, key: &str, value: Raw) {
        let path = names::snake(key);
        let rejected = self.schema.rejected.iter().find(|(key, _)| names::snake(key) == path);
        if let Some((_, reason)) = rejected {
            let key = format!("{prefix}{key}");
            let file = self.file.to_owned();
            return self.contents.problems.push(Problem::RejectedKey { key, file, reason });
        }
        let section = self.is_section(&path)
            || (prefix.is_empty() && self.schema.root == Some(path.as_str()));
        let setting = self
            .schema
            .settings
            .iter()
            .find(|setting| setting.file_paths().any(|known| known == path));
        match (setting, value) {
            (_, Raw::Object(section_keys)) if section => {
                for (name, value) in section_keys {
                    self.read(prefix, &format!("{key}.{name}"), value);
                }
            }
            (Some(_), Raw::Null) => {}
            (None, Raw::Null) if section => {}
            (Some(setting), raw) => {
                let key = format!("{prefix}{key}");
                if let Some(first) = self.contents.values.get(setting.path) {
                    self.contents.problems.push(Problem::SetTwice {
                        setting: setting.path,
                        file: self.file.to_owned(),
                        first: first.key.clone(),
                        second: key,
                    });
                } else {
                    self.contents.values.insert(setting.path, FileValue { key, raw });
                }
            }
            (None, value) if section => {
                self.contents.problems.push(Problem::NotASection {
                    key: format!("{prefix}{key}"),
                    file: self.file.to_owned(),
                    value: value.to_string(),
                });
            }
            (None, _) => {
                let suggestion = self.suggest(prefix, &path);
                let key = format!("{prefix}{key}");
                self.contents.problems.push(Problem::unknown(key, self.file, suggestion));
            }
        }
    }

    /// Whether a known path is below this one.
    fn is_section(&self, path: &str) -> bool {
        let below =
            |known: String| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.schema.settings.iter().any(|setting| setting.file_paths().any(below))
            || self.schema.rejected.iter().any(|(key, _)| below(names::snake(key)))
    }

    /// The key or section that an unknown path is probably a misspelling of.
    fn suggest(&self, prefix: &str, path: &str) -> Option<String> {
        let known = self.schema.settings.iter().flat_map(|setting| {
            let sections =
                setting.path.match_indices('.').filter_map(|(at, _)| setting.path.get(..at));
            std::iter::once(setting.path).chain(sections)
        });
        // The root section doesn't contain itself.
        let root = self.schema.root.filter(|_| prefix.is_empty());
        names::nearest(path, known.chain(root)).map(|name| format!("{prefix}{name}"))
    }
}
