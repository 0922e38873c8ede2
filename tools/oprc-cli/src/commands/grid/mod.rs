//! `oprc grid`: the data grid of a class.

mod backup;
mod events;
mod status;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use self::status::space;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the nodes and collections of the data grid.
    #[command(
        after_help = "Examples:\n  oprc grid status counter\n  oprc grid status counter -o json | jq '.collections[].objects'"
    )]
    Status(status::StatusArgs),
    /// List parked events: triggered calls that kept failing.
    #[command(
        after_help = "A parked event blocks the later events of its object until it is retried or discarded.\n\nExamples:\n  oprc grid events counter\n  oprc grid events counter --retry KEY\n  oprc grid events counter --discard KEY"
    )]
    Events(events::EventsArgs),
    /// Write all objects of a class to a file.
    #[command(
        after_help = "The file is a snapshot of one point in time. Calls continue meanwhile.\n\nExample:\n  oprc grid backup counter counter.ndjson"
    )]
    Backup(backup::BackupArgs),
    /// Restore a backup into a class that has no objects.
    #[command(after_help = "Example:\n  oprc grid restore counter counter.ndjson")]
    Restore(backup::RestoreArgs),
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Status(command) => status::run(command).await,
        Command::Events(command) => events::run(command).await,
        Command::Backup(command) => backup::backup(command).await,
        Command::Restore(command) => backup::restore(command).await,
    }
}
