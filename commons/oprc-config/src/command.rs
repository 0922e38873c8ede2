//! The command line of a table.

use clap::{Arg, ArgAction, Command};

use crate::{Kind, Schema, Setting};

/// The id and the name of the flag that names the config file.
pub(crate) const CONFIG: &str = "config";

impl Schema {
    /// A command with a flag for each setting and one for the config file, whose
    /// `--help` documents them all. The flags also work behind subcommands.
    ///
    /// It does not check values: [`Schema::resolve`] does, for all sources alike.
    pub fn command(&self) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("PATH")
            .global(true)
            .help(format!("The config file, in YAML [env: {}]", self.config_variable()));
        Command::new(self.program)
            .about(self.about)
            .arg(config)
            .args(self.settings.iter().map(|setting| self.arg(setting)))
    }

    fn arg(&self, setting: &Setting) -> Arg {
        let allowed = match setting.kind {
            Kind::OneOf(allowed) => Some(format!(" [one of: {}]", allowed.join(", "))),
            _ => None,
        };
        let env = (!setting.env.is_empty()).then(|| format!(" [env: {}]", setting.env.join(", ")));
        let default = self.defaults(setting).map(|defaults| format!(" [default: {defaults}]"));
        let notes: String = [allowed, env, default].into_iter().flatten().collect();
        let arg = Arg::new(setting.path)
            .long(setting.flag())
            .value_name(setting.kind.placeholder())
            .action(ArgAction::Set)
            .global(true)
            .help(format!("{}{notes}", setting.help));
        match setting.kind {
            Kind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Kind::Integer { .. } | Kind::Float { .. } => arg.allow_negative_numbers(true),
            _ => arg,
        }
    }
}
