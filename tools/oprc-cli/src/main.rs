//! `oprc`, the command line of OaaS. As `kubectl-oaas` in the path, it is `kubectl oaas`.

mod client;
mod commands;
mod complete;
mod contexts;
mod failure;
mod files;
mod follow;
mod kube;
mod output;
mod remote;
mod sandbox;
mod tunnel;
mod up;
mod wanted;
mod words;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::output::Colour;

/// The command line of OaaS: stateful functions as classes, on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "oprc", version, propagate_version = true, after_help = failure::CODES)]
struct Arguments {
    /// When to use colours; `NO_COLOR` and `TERM=dumb` are heeded.
    #[arg(
        long,
        visible_alias = "color",
        value_enum,
        value_name = "WHEN",
        default_value_t,
        global = true
    )]
    colour: Colour,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish packages, and look at what is published.
    #[command(subcommand, visible_alias = "pkg")]
    Package(commands::package::Command),
    /// Classes that packages offer.
    #[command(subcommand)]
    Class(commands::catalogue::Class),
    /// Functions that packages offer.
    #[command(subcommand, visible_alias = "fn")]
    Function(commands::catalogue::Function),
    /// Deploy a package, and wait until it runs.
    Deploy(commands::deploy::Deploy),
    /// Tell what would run where, and why.
    Plan(commands::plan::Command),
    /// Tell what would change.
    Diff(commands::diff::Command),
    /// Tell how deployments are.
    Status(commands::status::Command),
    /// Go back to what was deployed before.
    Rollback(commands::rollback::Command),
    /// Take deployments away, and wait until they are gone.
    Delete(commands::delete::Command),
    /// Tell each change of a deployment as it comes.
    Watch(commands::watch::Command),
    /// Tell what happens, as it happens.
    Events(commands::events::Command),
    /// Print what functions print.
    Logs(commands::logs::Command),
    /// Call a function.
    Invoke(commands::invoke::Command),
    /// Clusters that the package manager knows.
    #[command(subcommand)]
    Cluster(commands::cluster::Command),
    /// What runs in clusters and the package manager doesn't know.
    #[command(subcommand)]
    Orphan(commands::orphan::Command),
    /// Tell whether everything is as it should be, and what to do where it isn't.
    Check(commands::check::Command),
    /// Make a bundle for a report of a bug, with secrets removed.
    Report(commands::report::Command),
    /// Package managers, and which one is used.
    #[command(subcommand)]
    Context(commands::context::Command),
    /// Print a script by which a shell completes commands.
    Completion(commands::completion::Command),
    /// A real Kubernetes on this machine, to try OaaS on.
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    /// From nothing to a sample class that answers.
    Up(up::Up),
    /// End what `up` began.
    Down(up::Down),
}

fn main() -> ExitCode {
    complete::answer(Arguments::command);
    start()
}

// One thread: the processes that a supervisor starts live as long as the thread that started them.
#[tokio::main(flavor = "current_thread")]
async fn start() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    let matches = named(given.first()).get_matches_from(given);
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    output::set_colour(arguments.colour);
    match run(arguments.command).await {
        Ok(code) => code,
        Err(error) if failure::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Much of what is said here was written by others.
            let told = output::clean_lines(&format!("{error:#}"));
            output::say(&format!("{} {told}", output::paint(output::Tone::Bad, "error:")));
            failure::code(&error)
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Package(command) => commands::package::run(command).await,
        Command::Class(command) => commands::catalogue::classes(command).await,
        Command::Function(command) => commands::catalogue::functions(command).await,
        Command::Deploy(command) => commands::deploy::run(command).await,
        Command::Plan(command) => commands::plan::run(command).await,
        Command::Diff(command) => commands::diff::run(command).await,
        Command::Status(command) => commands::status::run(command).await,
        Command::Rollback(command) => commands::rollback::run(command).await,
        Command::Delete(command) => commands::delete::run(command).await,
        Command::Watch(command) => commands::watch::run(command).await,
        Command::Events(command) => commands::events::run(command).await,
        Command::Logs(command) => commands::logs::run(command).await,
        Command::Invoke(command) => commands::invoke::run(command).await,
        Command::Cluster(command) => commands::cluster::run(command).await,
        Command::Orphan(command) => commands::orphan::run(command).await,
        Command::Check(command) => commands::check::run(command).await,
        Command::Report(command) => commands::report::run(command).await,
        Command::Context(command) => commands::context::run(command),
        Command::Completion(command) => commands::completion::run(&command),
        Command::Sandbox(command) => sandbox::run(command).await,
        Command::Up(command) => up::up(command).await,
        Command::Down(command) => up::down(command).await,
    }
}

/// The command line, called as it was called: `kubectl` runs `kubectl-oaas` for `kubectl oaas`.
fn named(program: Option<&OsString>) -> clap::Command {
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
    fn the_command_line_is_sound() {
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
    fn kubectl_finds_itself_in_the_usage() {
        let name = OsString::from("/usr/bin/kubectl-oaas");
        assert_eq!(named(Some(&name)).get_bin_name(), Some("kubectl oaas"));
        assert_eq!(named(Some(&OsString::from("oprc"))).get_bin_name(), None);
    }
}
