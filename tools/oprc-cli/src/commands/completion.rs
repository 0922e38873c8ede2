//! `oprc completion`: shell completion scripts.

use anyhow::Result;
use clap_complete::Shell;

use crate::{completion, output::print_bytes};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Names of deployments, packages, classes, functions, clusters and contexts are completed as well, by\nqueries to the package manager with a timeout of one second.\n\nExamples:\n  source <(oprc completion bash)      # in ~/.bashrc\n  source <(oprc completion zsh)       # in ~/.zshrc, after compinit\n  oprc completion fish | source       # in ~/.config/fish/config.fish\n  oprc status cou<TAB>                # completes to counter if it is deployed"
)]
pub(crate) struct Command {
    /// Shell to print the script for.
    shell: Shell,
}

pub(crate) fn run(command: &Command) -> Result<()> {
    print_bytes(&completion::script(command.shell)?)
}
