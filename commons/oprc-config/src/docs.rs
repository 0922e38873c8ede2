//! The reference page of a schema.

use std::fmt::Write as _;

use crate::{Kind, Schema, Setting};

impl Schema {
    /// A Markdown table of all settings, for the reference page.
    pub fn markdown(&self) -> String {
        let mut rows = vec![
            ["Key", "Flag", "Variables", "Default", "Allowed", "Meaning"].map(str::to_owned),
            ["---"; 6].map(str::to_owned),
            [
                String::new(),
                "`--config`".into(),
                code(&[&self.config_variable()]),
                String::new(),
                Kind::Path.to_string(),
                "Path of the YAML config file".into(),
            ],
        ];
        for setting in self.settings {
            rows.push([
                code(&[setting.path]),
                format!("`--{}`", setting.flag()),
                code(setting.env),
                self.defaults(setting).map(|defaults| code(&[&defaults])).unwrap_or_default(),
                setting.kind.to_string(),
                setting.help.to_owned(),
            ]);
        }
        let mut table = String::new();
        for row in rows {
            let cells = row.map(|cell| cell.replace('|', "\\|")).join(" | ");
            // Writing to a string cannot fail.
            let _ = writeln!(table, "| {cells} |");
        }
        table
    }

    /// The default of a setting, or that of each profile if they differ.
    pub(crate) fn defaults(&self, setting: &Setting) -> Option<String> {
        let each: Vec<(&str, Option<String>)> =
            self.profiles().iter().map(|profile| (*profile, (setting.default)(profile))).collect();
        let (_, first) = each.first()?;
        if each.iter().all(|(_, default)| default == first) {
            return first.clone();
        }
        let each = each.iter().map(|(profile, default)| {
            format!("{profile}: {}", default.as_deref().unwrap_or("unset"))
        });
        Some(each.collect::<Vec<_>>().join(", "))
    }
}

fn code(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
