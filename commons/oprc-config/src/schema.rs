//! The table that a program declares.

use std::collections::BTreeSet;

use crate::{Kind, Problem, Source, names};

/// One setting of a program.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its dotted path in the file, in snake_case: `features.odgm`. The flag follows
    /// from it: `--features-odgm`.
    pub path: &'static str,
    /// The variables that set it, in order of precedence; the first is the main one.
    pub env: &'static [&'static str],
    /// Other dotted paths that the file may use for it.
    pub file_aliases: &'static [&'static str],
    /// What values it takes.
    pub kind: Kind,
    /// What it means, in one line.
    pub help: &'static str,
    /// Its value where nothing is given, for a profile; `None` leaves it unset.
    /// The default of the setting that chooses the profile must ignore the profile.
    pub default: fn(profile: &str) -> Option<String>,
    /// Whether a bad value only warns and gives way to the default, instead of
    /// stopping the start.
    pub lenient: bool,
}

impl Setting {
    /// A strict text without variables, aliases or default: for the fields that a
    /// table does not care to name (`..Setting::EMPTY`).
    pub const EMPTY: Self = Self {
        path: "",
        env: &[],
        file_aliases: &[],
        kind: Kind::Text,
        help: "",
        default: |_| None,
        lenient: false,
    };

    /// The flag's name, without dashes.
    pub(crate) fn flag(&self) -> String {
        self.path.replace(['.', '_'], "-")
    }

    /// All paths that the file may use for it, in snake_case.
    pub(crate) fn file_paths(&self) -> impl Iterator<Item = String> {
        std::iter::once(&self.path).chain(self.file_aliases).map(|path| names::snake(path))
    }
}

/// All settings of a program, and how they are given.
///
/// The file is named by `--config` or by `<env_prefix>CONFIG`. A variable that is
/// empty counts as not given, as does a key of the file that is null.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The program's name.
    pub program: &'static str,
    /// What the program is, in one line.
    pub about: &'static str,
    /// How the program's own variables begin: `OPRC_CRM_`. One that begins so but
    /// is in no setting brings a warning.
    pub env_prefix: &'static str,
    /// The section of the file whose keys need no such prefix in the table: with
    /// `crm`, the file's `crm.features.odgm` is `features.odgm`. Sections beside it
    /// go by their full path, so the section may also be left out.
    pub root: Option<&'static str>,
    /// The settings, in the order in which they are documented.
    pub settings: &'static [Setting],
    /// The path of the setting that chooses the profile; its kind should be
    /// [`Kind::OneOf`], as that lists the profiles.
    pub profile: &'static str,
    /// Paths in the file that are refused, each with the reason. Whatever lies
    /// below such a path is refused with it.
    pub refused: &'static [(&'static str, &'static str)],
}

impl Schema {
    /// The variable that names the config file.
    pub(crate) fn config_variable(&self) -> String {
        format!("{}CONFIG", self.env_prefix)
    }

    /// The profiles that can be chosen; one without a name if the table has none.
    pub(crate) fn profiles(&self) -> &'static [&'static str] {
        match self.settings.iter().find(|setting| setting.path == self.profile) {
            Some(Setting { kind: Kind::OneOf(profiles), .. }) => profiles,
            _ => &[""],
        }
    }

    /// What is wrong with the table itself: names that clash, a missing profile, or
    /// defaults that their own kind refuses. For a unit test beside the table.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut seen = BTreeSet::from([
            "file config".to_owned(),
            "flag config".to_owned(),
            format!("variable {}", self.config_variable()),
        ]);
        let mut claim = |name: String| {
            if seen.contains(&name) {
                faults.push(format!("{name} is given twice"));
            }
            seen.insert(name);
        };
        for setting in self.settings {
            claim(format!("flag {}", setting.flag()));
            setting.file_paths().for_each(|path| claim(format!("file {path}")));
            setting.env.iter().for_each(|name| claim(format!("variable {name}")));
        }
        for setting in self.settings {
            if setting.path != names::snake(setting.path) {
                faults.push(format!("{} is not in snake_case", setting.path));
            }
            for profile in self.profiles() {
                let Some(default) = (setting.default)(profile) else { continue };
                if setting.kind.check(&default.clone().into()).is_none() {
                    let from = Source::Default((*profile).to_owned());
                    faults.push(Problem::value(setting, from, default).to_string());
                }
            }
        }
        if !self.settings.iter().any(|setting| setting.path == self.profile) {
            faults.push(format!("the profile's setting {} is not in the table", self.profile));
        }
        faults
    }
}
