//! `oprc completion`: scripts by which shells complete commands.

use std::process::ExitCode;

use anyhow::Result;
use clap_complete::Shell;

use crate::{complete, output::print_bytes};

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Names of deployments, packages, classes, functions, clusters and contexts are offered as well: the\npackage manager that the command is for is asked while you type, for a second at most.\n\nExamples:\n  source <(oprc completion bash)      # in ~/.bashrc; for zsh after compinit in ~/.zshrc, with zsh\n  oprc completion fish | source       # in ~/.config/fish/config.fish\n  oprc status cou<TAB>                # offers counter, where that is deployed"
)]
pub(crate) struct Command {
    /// The shell.
    shell: Shell,
}

/// Does it.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    print_bytes(&complete::script(command.shell)?)?;
    Ok(ExitCode::SUCCESS)
}
