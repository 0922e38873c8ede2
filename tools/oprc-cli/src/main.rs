//! `oprc`, the command line of OaaS.

mod sandbox;

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
}

// One thread: the processes that a supervisor starts live as long as the thread that started them.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Command::Sandbox(command) = Arguments::parse().command;
    match sandbox::run(command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
