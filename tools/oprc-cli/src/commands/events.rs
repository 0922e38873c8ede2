//! `oprc events`: what happens, as it happens.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use oprc_rest::Event;

use crate::{
    client::Client,
    failure::Failure,
    output::{Format, Show, Tone, age, clean, paint, tone_of},
    remote::Remote,
};

/// How soon a stream that broke off is opened again, at first and at most.
const REOPEN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// The command.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc events --type deployment. --subject hello\n  oprc events --for 10s -o json | jq .message"
)]
pub(crate) struct Command {
    /// Begin after the event of this id, as far back as the package manager remembers.
    #[arg(long, value_name = "ID")]
    since: Option<String>,
    /// Only events whose type begins with this.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events about this package, deployment, unit or cluster.
    #[arg(long)]
    subject: Option<String>,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = age::parse)]
    limit: Option<Duration>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// Does it.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    command.show.refuse(&[Format::Name, Format::Wide])?;
    let client = command.remote.client().await?;
    let work = stream(&client, &command);
    match command.limit {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Ok(()))?,
        None => work.await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn stream(client: &Client, command: &Command) -> Result<()> {
    let mut last = command.since.clone();
    let (mut wait, mut opened) = (REOPEN.0, false);
    loop {
        match client.events(last.as_deref()).await {
            Ok(mut events) => {
                opened = true;
                while let Ok(Some(event)) = events.next().await {
                    wait = REOPEN.0;
                    // That some were missed has no place of its own in the stream.
                    if !event.id.is_empty() {
                        last = Some(event.id.clone());
                    }
                    if matches(&event, command) {
                        command.show.next(&event, || line(&event))?;
                    }
                }
            }
            // Once it was there it is waited for; what was never there is an error.
            Err(error) if opened && matches!(error.downcast_ref(), Some(Failure::Away(_))) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(REOPEN.1);
    }
}

fn matches(event: &Event, command: &Command) -> bool {
    command.kind.as_ref().is_none_or(|kind| event.kind.starts_with(kind.as_str()))
        && command.subject.as_ref().is_none_or(|subject| event.subject == *subject)
}

fn line(event: &Event) -> String {
    let condition = paint(tone_of(&event.condition), &clean(&event.condition));
    let parts = [clean(&event.kind), clean(&event.subject), condition, clean(&event.message)];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}  {}\n", paint(Tone::Faint, &clean(&event.at)), parts.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines() {
        let event = Event {
            at: "2026-11-16T12:00:00Z".to_owned(),
            kind: "unit.condition".to_owned(),
            subject: "u1".to_owned(),
            condition: "DOWN".to_owned(),
            message: "no\nimage".to_owned(),
            ..Event::default()
        };
        let plain = anstream::adapter::strip_str(&line(&event)).to_string();
        assert_eq!(plain, "2026-11-16T12:00:00Z  unit.condition  u1  DOWN  no image\n");
    }
}
