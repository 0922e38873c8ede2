//! `oprc`, the command line of OaaS. Installed as `kubectl-oaas` it runs as `kubectl oaas`.

mod client;
mod commands;
mod completion;
mod connection;
mod contexts;
mod deployed_unit;
mod error;
mod files;
mod grid;
mod kube;
mod measurement;
mod output;
mod rollout;
mod sandbox;
mod service_proxy;
mod target;
mod tunnel;
mod up;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::output::Color;

/// Manage packages and deployments of OaaS on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "oprc", version, propagate_version = true, after_help = error::EXIT_CODES)]
struct Arguments {
    /// When to use colors; `NO_COLOR` and `TERM=dumb` are respected.
    #[arg(long, alias = "colour", value_enum, value_name = "WHEN", default_value_t, global = true)]
    color: Color,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish and inspect packages.
    #[command(subcommand, visible_alias = "pkg")]
    Package(commands::package::Command),
    /// Inspect the classes of published packages.
    #[command(subcommand)]
    Class(commands::catalogue::Class),
    /// Inspect the functions of published packages.
    #[command(subcommand, visible_alias = "fn")]
    Function(commands::catalogue::Function),
    /// Deploy a package and wait until it is running.
    Deploy(commands::deploy::Deploy),
    /// Show what a deployment would run, on which clusters, and why.
    Plan(commands::plan::Command),
    /// Show what a deployment would change.
    Diff(commands::diff::Command),
    /// Show the status of deployments.
    Status(commands::status::Command),
    /// Roll a deployment back to an earlier revision.
    Rollback(commands::rollback::Command),
    /// Delete deployments and wait until they are removed from all clusters.
    Delete(commands::delete::Command),
    /// Watch status changes of a deployment.
    Watch(commands::watch::Command),
    /// Stream events of the package manager.
    Events(commands::events::Command),
    /// Print the logs of functions.
    Logs(commands::logs::Command),
    /// Invoke a method of an object, or a function.
    Invoke(commands::invoke::Command),
    /// Read and write the objects of a class.
    #[command(subcommand, visible_alias = "obj")]
    Object(commands::object::Command),
    /// Inspect, back up and restore the data grid of a class.
    #[command(subcommand)]
    Grid(commands::grid::Command),
    /// Show measurements, compliance and enforcement of a class.
    Nfr(commands::nfr::Command),
    /// Inspect the clusters of the package manager.
    #[command(subcommand)]
    Cluster(commands::cluster::Command),
    /// Manage orphans: ClassRuntimes that belong to no deployment.
    #[command(subcommand)]
    Orphan(commands::orphan::Command),
    /// Check the package manager and its clusters for problems.
    Check(commands::check::Command),
    /// Collect diagnostics for a bug report, with secrets redacted.
    Report(commands::report::Command),
    /// Manage connections to package managers.
    #[command(subcommand)]
    Context(commands::context::Command),
    /// Print a shell completion script.
    Completion(commands::completion::Command),
    /// Manage local Kubernetes clusters for development and tests.
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// Install OaaS into a new local cluster or an existing one, and deploy a sample.
    Up(up::Up),
    /// Uninstall what `oprc up` installed.
    Down(up::Down),
}

fn main() -> ExitCode {
    completion::complete_and_exit_if_requested(Arguments::command);
    run_command_line()
}

// The supervisor's child processes die with the thread that started them, so there is only one.
#[tokio::main(flavor = "current_thread")]
async fn run_command_line() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    let matches = command_named_after(given.first()).get_matches_from(given);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    output::set_color(arguments.color);
    match run(arguments.command).await {
        Ok(code) => code,
        Err(error) if error::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // The message may quote text from a server.
            let message = output::sanitize_lines(&format!("{error:#}"));
            let label = output::paint(output::Tone::Bad, "error:");
            output::note_styled(&format!("{label} {message}"));
            error::exit_code(&error)
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Package(command) => commands::package::run(command).await?,
        Command::Class(command) => commands::catalogue::classes(command).await?,
        Command::Function(command) => commands::catalogue::functions(command).await?,
        Command::Deploy(command) => commands::deploy::run(command).await?,
        Command::Plan(command) => commands::plan::run(command).await?,
        Command::Diff(command) => return commands::diff::run(command).await,
        Command::Status(command) => commands::status::run(command).await?,
        Command::Rollback(command) => commands::rollback::run(command).await?,
        Command::Delete(command) => commands::delete::run(command).await?,
        Command::Watch(command) => commands::watch::run(command).await?,
        Command::Events(command) => commands::events::run(command).await?,
        Command::Logs(command) => commands::logs::run(command).await?,
        Command::Invoke(command) => commands::invoke::run(command).await?,
        Command::Object(command) => commands::object::run(command).await?,
        Command::Grid(command) => commands::grid::run(command).await?,
        Command::Nfr(command) => commands::nfr::run(command).await?,
        Command::Cluster(command) => commands::cluster::run(command).await?,
        Command::Orphan(command) => commands::orphan::run(command).await?,
        Command::Check(command) => return commands::check::run(command).await,
        Command::Report(command) => commands::report::run(command).await?,
        Command::Context(command) => commands::context::run(command)?,
        Command::Completion(command) => commands::completion::run(&command)?,
        Command::Sandbox(command) => return sandbox::run(command).await,
        Command::Up(command) => up::up(command).await?,
        Command::Down(command) => up::down(command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `kubectl` runs the plugin `kubectl-oaas` for `kubectl oaas`; the usage text shows the latter.
fn command_named_after(program: Option<&OsString>) -> clap::Command {
    let program = program.and_then(|it| Path::new(it).file_stem());
    let command = Arguments::command();
    match program.and_then(|it| it.to_str()) {
        Some("kubectl-oaas") => command.bin_name("kubectl oaas"),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_definition_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_with_an_example() {
        fn walk(command: &clap::Command, path: &str, without: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            let below: Vec<_> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
            if below.is_empty() {
                let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                let shown = example.contains("Example") && example.contains("\n  ");
                if command.get_about().is_none() || !shown || !example.contains("oprc ") {
                    without.push(path);
                }
                return;
            }
            for it in below {
                walk(it, &path, without);
            }
        }
        let mut without = Vec::new();
        walk(&Arguments::command(), "", &mut without);
        assert_eq!(without, Vec::<String>::new());
    }

    #[test]
    fn usage_names_the_kubectl_plugin() {
        let name = OsString::from("/usr/bin/kubectl-oaas");
        assert_eq!(command_named_after(Some(&name)).get_bin_name(), Some("kubectl oaas"));
        assert_eq!(command_named_after(Some(&OsString::from("oprc"))).get_bin_name(), None);
    }
}
