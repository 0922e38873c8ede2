//! Resolves the value of each setting from all sources.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use serde_json::Value as Raw;

use crate::{
    Error, Resolved, Schema, Setting, Source, Value,
    command::CONFIG,
    error::did_you_mean,
    file::{self, Contents},
    names,
    resolved::Entry,
    value::scalar,
};

/// The environment variables of this process. Invalid UTF-8 is replaced, so that such values are
/// rejected instead of ignored.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .collect()
}

impl Schema {
    /// Resolves all settings from flags, environment variables and the config file that these
    /// name.
    ///
    /// Overridden values are not validated, so that a flag can override an invalid one.
    pub fn resolve(
        &self,
        matches: &ArgMatches,
        env: &BTreeMap<String, String>,
    ) -> Result<Resolved, Error> {
        self.resolve_with(matches, env, |path| fs::read_to_string(path))
    }

    /// As [`Schema::resolve`], with the config file read by `read_file`.
    pub fn resolve_with(
        &self,
        matches: &ArgMatches,
        env: &BTreeMap<String, String>,
        read_file: impl FnOnce(&Path) -> io::Result<String>,
    ) -> Result<Resolved, Error> {
        let config_file = flag(matches, CONFIG)
            .or_else(|| variable(env, &self.config_variable()))
            .map(PathBuf::from);
        let Contents { values, mut problems } = match config_file {
            Some(path) => match read_file(&path) {
                Ok(text) => file::parse(self, &path, &text)?,
                Err(reason) => return Err(Error::Read { path, reason }),
            },
            None => Contents::default(),
        };
        let layers = Layers { matches, env, file: values };

        // The loop below resolves it again and reports its problems.
        let profile = self.setting(self.profile).map(|setting| layers.resolve(setting, ""));
        let profile = match profile {
            Some(Ok(Entry { value: Some((Value::Text(profile), _)), .. })) => profile,
            _ => String::new(),
        };

        let mut entries = Vec::with_capacity(self.settings.len());
        for setting in self.settings {
            match layers.resolve(setting, &profile) {
                Ok(entry) => entries.push(entry),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Error::Invalid(problems));
        }
        Ok(Resolved { entries, warnings: self.unknown_variables(env) })
    }

    /// Only warnings, because Kubernetes injects variables such as `OPRC_CRM_SERVICE_HOST` for
    /// each Service.
    fn unknown_variables(&self, env: &BTreeMap<String, String>) -> Vec<String> {
        let config = self.config_variable();
        let known = || {
            let variables = self.settings.iter().flat_map(|setting| setting.env).copied();
            variables.chain([config.as_str()])
        };
        env.keys()
            .filter(|name| name.starts_with(self.env_prefix))
            .filter(|name| known().all(|known| known != name.as_str()))
            .map(|name| {
                let suggestion = did_you_mean(names::nearest(name, known()));
                format!("ignored unknown variable {name}{suggestion}")
            })
            .collect()
    }
}

struct Layers<'a> {
    matches: &'a ArgMatches,
    env: &'a BTreeMap<String, String>,
    file: BTreeMap<&'static str, (Source, Raw)>,
}

impl Layers<'_> {
    fn resolve(&self, setting: &Setting, profile: &str) -> Result<Entry, String> {
        let (source, raw) = match self.highest(setting) {
            Some((source, raw)) => (source, Some(raw)),
            None => {
                let default = (setting.default)(profile).map(Raw::from);
                (Source::Default(profile.to_owned()), default)
            }
        };
        let mut value = None;
        if let Some(raw) = raw {
            let text = scalar(&raw).unwrap_or_else(|| raw.to_string());
            let parsed = setting.kind.parse(&raw);
            let parsed = parsed.ok_or_else(|| setting.invalid_value(&source, &text))?;
            value = Some((parsed, text));
        }
        Ok(Entry { setting: *setting, value, source })
    }

    /// The value with the highest precedence, not validated.
    fn highest(&self, setting: &Setting) -> Option<(Source, Raw)> {
        if let Some(text) = flag(self.matches, setting.path) {
            return Some((Source::Flag(format!("--{}", setting.flag())), text.into()));
        }
        for name in setting.env {
            if let Some(text) = variable(self.env, name) {
                return Some((Source::Env((*name).to_owned()), text.into()));
            }
        }
        self.file.get(setting.path).cloned()
    }
}

/// A command that lacks the flag is treated like one where it isn't set.
fn flag<'a>(matches: &'a ArgMatches, id: &str) -> Option<&'a str> {
    matches.try_get_one::<String>(id).ok().flatten().map(String::as_str)
}

fn variable<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name).map(String::as_str).filter(|value| !value.is_empty())
}
