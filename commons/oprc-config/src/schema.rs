use std::collections::BTreeSet;

use crate::{Kind, Source, names};

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The dotted path in the file, in snake_case: `features.odgm`. The flag is derived from it:
    /// `--features-odgm`.
    pub path: &'static str,
    /// Environment variables in order of precedence.
    pub env: &'static [&'static str],
    pub kind: Kind,
    /// One line.
    pub help: &'static str,
    /// The default in a profile; `None` leaves the setting unset. The default of the setting that
    /// selects the profile must ignore the profile.
    pub default: fn(profile: &str) -> Option<String>,
}

impl Setting {
    /// For the remaining fields of a struct literal.
    pub const EMPTY: Self =
        Self { path: "", env: &[], kind: Kind::Text, help: "", default: |_| None };

    /// Without the leading dashes.
    pub(crate) fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// The problem with a value that the kind doesn't accept.
    pub(crate) fn invalid_value(&self, source: &Source, value: &str) -> String {
        format!("{}: invalid value {value:?} from {source}: expected {}", self.path, self.kind)
    }
}

/// All settings of a program.
///
/// The config file is set by `--config` or `<env_prefix>CONFIG`. Empty variables and null keys
/// count as unset.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    pub program: &'static str,
    /// One line.
    pub about: &'static str,
    /// The prefix of the program's variables: `OPRC_CRM_`. Unknown variables with this prefix
    /// cause a warning.
    pub env_prefix: &'static str,
    /// An optional section of the file around all settings: with `crm`, the keys
    /// `crm.features.odgm` and `features.odgm` are the same setting.
    pub root: Option<&'static str>,
    /// In the order of the reference page.
    pub settings: &'static [Setting],
    /// The path of the setting that selects the profile; its kind is a [`Kind::OneOf`] of the
    /// profiles.
    pub profile: &'static str,
    /// Other paths in the file, each with the path of the setting that it means.
    pub aliases: &'static [(&'static str, &'static str)],
    /// Paths in the file that are rejected with everything below them, each with the reason.
    pub rejected: &'static [(&'static str, &'static str)],
}

impl Schema {
    pub(crate) fn config_variable(&self) -> String {
        format!("{}CONFIG", self.env_prefix)
    }

    pub(crate) fn setting(&self, path: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.path == path)
    }

    /// The setting of a key in the file.
    pub(crate) fn setting_of_key(&self, path: &str) -> Option<&'static Setting> {
        let alias = self.aliases.iter().find(|(alias, _)| *alias == path);
        self.setting(alias.map_or(path, |(_, setting)| setting))
    }

    /// One without a name if the schema has no profiles.
    pub(crate) fn profiles(&self) -> &'static [&'static str] {
        match self.setting(self.profile) {
            Some(Setting { kind: Kind::OneOf(profiles), .. }) => profiles,
            _ => &[""],
        }
    }

    /// Errors in the schema itself: duplicate names, a missing profile, or invalid defaults. For a
    /// unit test next to the schema.
    pub fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut seen = BTreeSet::from([
            "file config".to_owned(),
            "flag config".to_owned(),
            format!("variable {}", self.config_variable()),
        ]);
        let mut claim = |name: String| {
            if let Some(name) = seen.replace(name) {
                errors.push(format!("{name} is declared twice"));
            }
        };
        for setting in self.settings {
            claim(format!("flag {}", setting.flag()));
            claim(format!("file {}", names::snake(setting.path)));
            setting.env.iter().for_each(|name| claim(format!("variable {name}")));
        }
        for (alias, _) in self.aliases {
            claim(format!("file {}", names::snake(alias)));
        }
        for (alias, path) in self.aliases {
            if *alias != names::snake(alias) {
                errors.push(format!("{alias} is not in snake_case"));
            }
            if self.setting(path).is_none() {
                errors.push(format!("{alias} is an alias of {path}, which is not declared"));
            }
        }
        for setting in self.settings {
            if setting.path != names::snake(setting.path) {
                errors.push(format!("{} is not in snake_case", setting.path));
            }
            for profile in self.profiles() {
                let Some(default) = (setting.default)(profile) else { continue };
                if setting.kind.parse(&default.clone().into()).is_none() {
                    let source = Source::Default((*profile).to_owned());
                    errors.push(setting.invalid_value(&source, &default));
                }
            }
        }
        if self.setting(self.profile).is_none() {
            errors.push(format!("the profile setting {} is not declared", self.profile));
        }
        errors
    }
}
