//! The reference page of a schema.

use std::fmt::Write as _;

use crate::{Kind, Schema, Setting};

impl Schema {
    /// A Markdown table of all settings, for the reference page.
    pub fn markdown(&self) -> String {
        let mut table = format!(
            "| Key | Flag | Variables | Default | Allowed | Meaning |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             |  | `--config` | `{}` |  | {} | Path of the YAML config file |\n",
            self.config_variable(),
            Kind::Path
        );
        for setting in self.settings {
            let cells = [
                code(&[setting.path]),
                format!("`--{}`", setting.flag()),
                code(setting.env),
                self.defaults(setting).map(|defaults| code(&[&defaults])).unwrap_or_default(),
                setting.kind.to_string(),
                setting.help.to_owned(),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|")).join(" | ");
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
