//! `oprc`, the command line of OaaS.

mod sandbox;
mod unit;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The command line of OaaS: stateful functions as classes, on Kubernetes.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A real Kubernetes on this machine, to try OaaS on.
    #[command(subcommand)]
    Sandbox(sandbox::Command),
    #[command(subcommand)]
    Unit(unit::Command),
}

// One thread: the processes that a supervisor starts live as long as the thread that started them.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Sandbox(command) => sandbox::run(command).await,
        Command::Unit(command) => unit::run(command).await,
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
