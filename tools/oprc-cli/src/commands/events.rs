//! `oprc events`: the event stream of the package manager.

use std::time::Duration;

use anyhow::Result;
use oprc_rest::Event;

use crate::{
    client::Client,
    connection::ApiArgs,
    error::is_unavailable,
    output::{Format, Tone, duration, join_non_empty, paint, sanitize, tone_of},
};

/// First and longest delay before the stream is reopened.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  oprc events --type deployment. --subject hello\n  oprc events --for 10s -o json | jq .message"
)]
pub(crate) struct Command {
    /// Only events after this event id.
    #[arg(long, value_name = "EVENT_ID")]
    since: Option<String>,
    /// Show only events whose type starts with this prefix.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Show only events of this package, deployment, unit or cluster.
    #[arg(long)]
    subject: Option<String>,
    /// Stop after this duration, such as 30s or 5m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    limit: Option<Duration>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    command.api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let client = command.api.client().await?;
    let work = stream(&client, &command);
    match command.limit {
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or(Ok(())),
        None => work.await,
    }
}

async fn stream(client: &Client, command: &Command) -> Result<()> {
    let mut last = command.since.clone();
    let (mut delay, mut opened) = (RECONNECT_DELAY.0, false);
    loop {
        match client.events(last.as_deref()).await {
            Ok(mut events) => {
                opened = true;
                while let Ok(Some(event)) = events.next().await {
                    delay = RECONNECT_DELAY.0;
                    // A gap event has no id.
                    if !event.id.is_empty() {
                        last = Some(event.id.clone());
                    }
                    if matches(&event, command) {
                        command.api.show.print_item(&event, || line(&event))?;
                    }
                }
            }
            // Reconnects only after the first connection succeeded.
            Err(error) if opened && is_unavailable(&error) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RECONNECT_DELAY.1);
    }
}

fn matches(event: &Event, command: &Command) -> bool {
    command.kind.as_ref().is_none_or(|kind| event.kind.starts_with(kind.as_str()))
        && command.subject.as_ref().is_none_or(|subject| event.subject == *subject)
}

fn line(event: &Event) -> String {
    let condition = paint(tone_of(&event.condition), &sanitize(&event.condition));
    let [kind, subject, message] =
        [&event.kind, &event.subject, &event.message].map(|it| sanitize(it));
    let parts = join_non_empty(&[&kind, &subject, &condition, &message], "  ");
    format!("{}  {parts}\n", paint(Tone::Faint, &sanitize(&event.at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_an_event_as_one_line() {
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
