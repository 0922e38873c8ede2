//! `oprc completion`: scripts by which shells complete commands.

use std::process::ExitCode;

use anyhow::Result;
use clap_complete::Shell;

use crate::output::print;

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  source <(oprc completion bash)\n  oprc completion fish > ~/.config/fish/completions/oprc.fish"
)]
pub(crate) struct Command {
    /// The shell.
    shell: Shell,
}

/// Does it.
pub(crate) fn run(command: &Command, mut of: clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut of, "oprc", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
