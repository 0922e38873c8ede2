//! The config file: which of its keys belong to which setting.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value as Raw};

use crate::{Error, Problem, Schema, names};

/// What the file gives for a setting.
#[derive(Debug)]
pub(crate) struct Given {
    /// The key's full path, as the file has it.
    pub(crate) key: String,
    /// The value, unchecked.
    pub(crate) raw: Raw,
}

/// The values of a file, by the path of their setting, and what is wrong with its keys.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) given: BTreeMap<&'static str, Given>,
    pub(crate) problems: Vec<Problem>,
}

/// Reads the text of a config file.
pub(crate) fn parse(schema: &Schema, file: &Path, text: &str) -> Result<Contents, Error> {
    let syntax = |reason: String| Error::Syntax { path: file.to_owned(), reason };
    let sections = match serde_saphyr::from_str(text).map_err(|error| syntax(error.to_string()))? {
        // A file with nothing but comments.
        Raw::Null => Map::new(),
        Raw::Object(sections) => sections,
        other => return Err(syntax(format!("it has only {other}"))),
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
    /// Takes what is at `key`; `prefix` is what the file has before it and the table
    /// has not.
    fn read(&mut self, prefix: &str, key: &str, value: Raw) {
        let path = names::snake(key);
        let refused = self.schema.refused.iter().find(|(refused, _)| names::snake(refused) == path);
        if let Some((_, why)) = refused {
            let key = format!("{prefix}{key}");
            let file = self.file.to_owned();
            return self.contents.problems.push(Problem::RefusedKey { key, file, why });
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
                if let Some(first) = self.contents.given.get(setting.path) {
                    self.contents.problems.push(Problem::GivenTwice {
                        setting: setting.path,
                        file: self.file.to_owned(),
                        first: first.key.clone(),
                        second: key,
                    });
                } else {
                    self.contents.given.insert(setting.path, Given { key, raw });
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
                let meant = self.meant(prefix, &path);
                let key = format!("{prefix}{key}");
                self.contents.problems.push(Problem::unknown(key, self.file, meant));
            }
        }
    }

    /// Whether anything that is known lies below a path.
    fn is_section(&self, path: &str) -> bool {
        let below =
            |known: String| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.schema.settings.iter().any(|setting| setting.file_paths().any(below))
            || self.schema.refused.iter().any(|(refused, _)| below(names::snake(refused)))
    }

    /// The key or section that an unknown path probably stands for, as the file would
    /// have it.
    fn meant(&self, prefix: &str, path: &str) -> Option<String> {
        let known = self.schema.settings.iter().flat_map(|setting| {
            let sections =
                setting.path.match_indices('.').filter_map(|(at, _)| setting.path.get(..at));
            std::iter::once(setting.path).chain(sections)
        });
        // The root is no key of its own section.
        let root = self.schema.root.filter(|_| prefix.is_empty());
        names::nearest(path, known.chain(root)).map(|meant| format!("{prefix}{meant}"))
    }
}
