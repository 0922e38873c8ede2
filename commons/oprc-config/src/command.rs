//! The command line of a schema.

use clap::{Arg, ArgAction, Command};

use crate::{Kind, Schema, Setting};

pub(crate) const CONFIG: &str = "config";

impl Schema {
    /// A command with a flag for each setting and for the config file, and with the subcommands
    /// `config` and `settings`, which the program handles. The flags also work after subcommands.
    ///
    /// It does not check values: [`Schema::resolve`] does, for all sources alike.
    pub fn command(&self) -> Command {
        let config = Arg::new(CONFIG)
            .long(CONFIG)
            .value_name("PATH")
            .global(true)
            .help(format!("Path of the YAML config file [env: {}]", self.config_variable()));
        Command::new(self.program)
            .about(self.about)
            .arg(config)
            .args(self.settings.iter().map(|setting| self.arg(setting)))
            .subcommand(
                Command::new("config").about("Print all settings, their values and sources"),
            )
            .subcommand(
                Command::new("settings").about("Print the reference of all settings as Markdown"),
            )
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
            .value_name(setting.kind.value_name())
            .action(ArgAction::Set)
            .global(true)
            .help(format!("{}{notes}", setting.help));
        match setting.kind {
            Kind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            Kind::Integer { .. } => arg.allow_negative_numbers(true),
            _ => arg,
        }
    }
}
