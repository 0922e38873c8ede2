//! The config file: assigns its keys to settings.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value as Raw};

use crate::{Error, Schema, Source, error::did_you_mean, names};

#[derive(Default)]
pub(crate) struct Contents {
    /// By the path of the setting; not validated yet.
    pub(crate) values: BTreeMap<&'static str, (Source, Raw)>,
    pub(crate) problems: Vec<String>,
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
        reader.read("", &key, value);
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
        let (path, full_key, file) =
            (names::snake(key), format!("{prefix}{key}"), self.file.display());
        let rejected = self.schema.rejected.iter().find(|(key, _)| names::snake(key) == path);
        let is_root = prefix.is_empty() && self.schema.root == Some(path.as_str());
        let is_section = is_root || self.is_section(&path);
        let problem = match (rejected, self.schema.setting_of_key(&path), value) {
            (Some((_, reason)), ..) => format!("{full_key}: not supported in {file}: {reason}"),
            (_, _, Raw::Object(section)) if is_section => {
                for (name, value) in section {
                    if is_root {
                        self.read(&format!("{key}."), &name, value);
                    } else {
                        self.read(prefix, &format!("{key}.{name}"), value);
                    }
                }
                return;
            }
            (_, setting, Raw::Null) if is_section || setting.is_some() => return,
            (_, Some(setting), raw) => match self.contents.values.get(setting.path) {
                Some((Source::File { key: first, .. }, _)) => {
                    let setting = setting.path;
                    format!("{setting}: set twice in {file}, by {first} and {full_key}: remove one")
                }
                _ => {
                    let source = Source::File { path: self.file.to_owned(), key: full_key };
                    self.contents.values.insert(setting.path, (source, raw));
                    return;
                }
            },
            (_, None, value) if is_section => {
                format!("{full_key}: invalid value {value} in {file}: expected a section with keys")
            }
            (_, None, _) => {
                let suggestion = did_you_mean(self.suggest(prefix, &path).as_deref());
                format!("{full_key}: unknown key in {file}{suggestion}")
            }
        };
        self.contents.problems.push(problem);
    }

    /// Whether a known path is below this one.
    fn is_section(&self, path: &str) -> bool {
        let below = |known: &str| known.strip_prefix(path).is_some_and(|it| it.starts_with('.'));
        self.schema.settings.iter().any(|setting| below(setting.path))
            || self.schema.aliases.iter().any(|(alias, _)| below(alias))
            || self.schema.rejected.iter().any(|(key, _)| below(&names::snake(key)))
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
