//! Follows a deployment until it is as wanted: by the stream of events, and the status that is read
//! whenever something has happened to it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use oprc_rest::{
    Condition, Contact, DeploymentCondition as Is, DeploymentStatus, Event, UnitStatus,
};

use crate::{
    client::{Client, Events, escape},
    failure::{Failure, is_away, is_missing},
    output::{Show, age, clean, paint, say, tone_of},
    words::word,
};

/// Things that happen at once are read once.
const TOGETHER: Duration = Duration::from_millis(100);
/// How long a deployment may be unwell before that is how it ended.
const UNWELL: Duration = Duration::from_secs(5);
/// How soon a stream that broke off is opened again, at first and at most.
const REOPEN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// All classes are Available.
    Running,
    /// It is gone.
    Gone,
    /// Nothing: it is only told what happens.
    Never,
}

/// Follows a deployment, telling what happens. Gives its last status; none where it is gone.
pub(crate) async fn follow(
    client: &Client,
    key: &str,
    revision: &str,
    goal: Goal,
    limit: Option<Duration>,
) -> Result<Option<DeploymentStatus>> {
    tell(client, key, revision, goal, limit, None).await
}

/// The same where what happens may be the result: printed as `show` says, a status each.
pub(crate) async fn tell(
    client: &Client,
    key: &str,
    revision: &str,
    goal: Goal,
    limit: Option<Duration>,
    show: Option<Show>,
) -> Result<Option<DeploymentStatus>> {
    let mut teller = Teller::new(key, show);
    let work = watch(client, key, revision, goal, &mut teller);
    let Some(limit) = limit else { return work.await };
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => {
            let (limit, last) = (age::short(limit), teller.last.clone());
            Err(Failure::Away(format!("{key}: not within {limit}; it is {last}")).into())
        }
    }
}

async fn watch(
    client: &Client,
    key: &str,
    revision: &str,
    goal: Goal,
    teller: &mut Teller,
) -> Result<Option<DeploymentStatus>> {
    let path = format!("/deployments/{}/status", escape(key));
    let mut wait = REOPEN.0;
    let (mut answered, mut unwell) = (false, None);
    loop {
        // The stream is opened first: what happens between it and the status isn't missed.
        let mut events = match client.events(None).await {
            Ok(events) => Some(events),
            Err(error) if answered && is_away(&error) => None,
            Err(error) => return Err(error),
        };
        while let Some(events) = &mut events {
            let status: Option<DeploymentStatus> = match client.get(&path).await {
                Ok(status) => Some(status),
                Err(error) if is_missing(&error) => None,
                // What was there once comes back: it may only be started anew.
                Err(error) if answered && is_away(&error) => break,
                Err(error) => return Err(error),
            };
            answered = true;
            if let Some(status) = &status {
                let lines = teller.tell(status);
                match &teller.show {
                    Some(_) if lines.is_empty() => {}
                    Some(show) => show.next(status, || lines.join("\n") + "\n")?,
                    None => lines.iter().for_each(|line| say(line)),
                }
            }
            let outcome = verdict(status.as_ref(), key, revision, goal);
            let patience = match &outcome {
                Some(Err(_)) if status.as_ref().is_some_and(may_recover) => {
                    *unwell.get_or_insert_with(Instant::now) + UNWELL
                }
                _ => {
                    unwell = None;
                    Instant::now()
                }
            };
            let patience = patience.saturating_duration_since(Instant::now());
            match outcome {
                Some(outcome) if patience.is_zero() => return Ok(outcome.map(|()| status)?),
                Some(_) => {
                    let heard = something(events, key, status.as_ref());
                    // Where nothing happens in time, it is looked at once more.
                    if tokio::time::timeout(patience, heard).await == Ok(false) {
                        break;
                    }
                }
                None if something(events, key, status.as_ref()).await => {}
                None => break,
            }
            wait = REOPEN.0;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(REOPEN.1);
    }
}

/// Waits until something has happened to a deployment; false where the stream has ended.
async fn something(events: &mut Events, key: &str, status: Option<&DeploymentStatus>) -> bool {
    loop {
        match events.next().await {
            Ok(Some(event)) if concerns(&event, key, status) => break,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
    }
    let more = async { while let Ok(Some(_)) = events.next().await {} };
    // A stream that ends meanwhile is noticed the next time.
    let _ = tokio::time::timeout(TOGETHER, more).await;
    true
}

/// Whether an event may have changed a deployment's status.
fn concerns(event: &Event, key: &str, status: Option<&DeploymentStatus>) -> bool {
    let units = status.map(|it| it.units.as_slice()).unwrap_or_default();
    if event.kind.starts_with("deployment.") {
        return event.subject == key;
    }
    if event.kind.starts_with("cluster.") {
        return units.is_empty() || units.iter().any(|unit| unit.cluster == event.subject);
    }
    // Some events were missed, and who knows which.
    if event.kind == "gap" {
        return true;
    }
    // A unit that isn't known yet may be one of it.
    event.kind.starts_with("unit.")
        && (units.iter().any(|unit| unit.id == event.subject) || event.subject.contains(key))
}

/// Whether it may still become well by itself: what is left of a former version may be what is
/// unwell, and a cluster may be away for a moment.
fn may_recover(status: &DeploymentStatus) -> bool {
    matches!(status.condition, Is::Down | Is::Partial)
}

/// Whether it waits only for clusters that are away, and may come back.
fn is_cut_off(status: &DeploymentStatus) -> bool {
    // What is on its way out doesn't count.
    let wanted = |unit: &&UnitStatus| unit.condition != Condition::Deleted;
    let away = |unit: &UnitStatus| matches!(unit.contact, Contact::Stale | Contact::Unknown);
    status.condition == Is::Down
        && status.units_total > 0
        && status.units.iter().filter(wanted).all(away)
}

/// How it ended, where it has.
fn verdict(
    status: Option<&DeploymentStatus>,
    key: &str,
    revision: &str,
    goal: Goal,
) -> Option<Result<(), Failure>> {
    let Some(status) = status else {
        return match goal {
            Goal::Gone => Some(Ok(())),
            Goal::Running => Some(Err(Failure::Failed(format!("{key} was deleted meanwhile")))),
            Goal::Never => Some(Err(Failure::Missing(format!("there is no deployment {key:?}")))),
        };
    };
    let told = |what: &str| {
        let message = clean(&why(status));
        format!("{key} {what}{}{message}", if message.is_empty() { "" } else { ": " })
    };
    match (goal, status.condition) {
        // Revisions sort by when they were made: this is still about what was before.
        (Goal::Running, condition)
            if !revision.is_empty()
                && status.revision.as_str() < revision
                && condition != Is::RolledBack =>
        {
            None
        }
        (Goal::Running, _) if is_cut_off(status) => None,
        (Goal::Gone, Is::Deleted) | (Goal::Running, Is::Running) => Some(Ok(())),
        (Goal::Running, Is::Down) => Some(Err(Failure::Failed(told("failed")))),
        (Goal::Running, Is::RolledBack) => {
            Some(Err(Failure::Failed(told("failed and was rolled back"))))
        }
        (Goal::Running, Is::Deleting | Is::Deleted) => {
            Some(Err(Failure::Failed(told("is being deleted"))))
        }
        (Goal::Running, Is::Partial) => Some(Err(Failure::Partial(told("runs only in part")))),
        (Goal::Never | Goal::Gone, _)
        | (Goal::Running, Is::Pending | Is::Deploying | Is::RollingBack) => None,
    }
}

/// Why it is as it is: what it says itself, or what its first unit says that isn't well.
fn why(status: &DeploymentStatus) -> String {
    if !status.message.is_empty() {
        return status.message.clone();
    }
    let unwell = status.units.iter().find(|unit| !unit.message.is_empty());
    unwell
        .map(|unit| format!("{} on {}: {}", unit.class, unit.cluster, unit.message))
        .unwrap_or_default()
}

/// Tells what has changed, and when.
#[derive(Debug)]
struct Teller {
    key: String,
    /// How it is shown, where that is what was asked for.
    show: Option<Show>,
    begun: Instant,
    last: String,
    seen: BTreeMap<String, String>,
}

impl Teller {
    fn new(key: &str, show: Option<Show>) -> Self {
        let last = "unknown".to_owned();
        Self { key: key.to_owned(), show, begun: Instant::now(), last, seen: BTreeMap::new() }
    }

    /// A line for each thing that isn't as it was.
    fn tell(&mut self, status: &DeploymentStatus) -> Vec<String> {
        let condition = word(&status.condition);
        let why = clean(&why(status));
        self.last = format!("{condition}{}{why}", if why.is_empty() { "" } else { ": " });
        let mut lines = Vec::new();
        for unit in &status.units {
            let name = format!("{} {}", unit.cluster, unit.class);
            let phase =
                if unit.phase.is_empty() { word(&unit.condition) } else { unit.phase.clone() };
            let contact =
                if word(&unit.contact) == "FRESH" { "" } else { "cluster is unreachable" };
            let message = [contact, &unit.message].into_iter().filter(|it| !it.is_empty());
            let message = message.collect::<Vec<_>>().join(": ");
            lines.extend(self.line(&unit.id, &name, &phase, &message));
            for function in &unit.functions {
                let id = format!("{}\0{}", unit.id, function.key);
                let message = function.error_msg.clone().unwrap_or_default();
                let name = format!("{name}/{}", function.key);
                lines.extend(self.line(&id, &name, &word(&function.condition), &message));
            }
        }
        let key = self.key.clone();
        lines.extend(self.line("", &key, &condition, &status.message));
        lines
    }

    fn line(&mut self, id: &str, name: &str, condition: &str, message: &str) -> Option<String> {
        let now = format!("{condition}\0{message}");
        if self.seen.insert(id.to_owned(), now.clone()).as_ref() == Some(&now) {
            return None;
        }
        let elapsed = format!("{:.1}s", self.begun.elapsed().as_secs_f64());
        let painted = paint(tone_of(condition), &clean(condition));
        let colon = if message.is_empty() { "" } else { ": " };
        Some(format!("{elapsed:>7}  {}  {painted}{colon}{}", clean(name), clean(message)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(condition: Is, revision: &str) -> DeploymentStatus {
        let unit = UnitStatus {
            id: "u1".to_owned(),
            cluster: "east".to_owned(),
            class: "Hello".to_owned(),
            condition: Condition::Deploying,
            phase: "Progressing".to_owned(),
            message: "no image".to_owned(),
            ..UnitStatus::default()
        };
        DeploymentStatus {
            condition,
            revision: revision.to_owned(),
            units: vec![unit],
            ..DeploymentStatus::default()
        }
    }

    fn ends(condition: Is, revision: &str) -> Option<Result<(), Failure>> {
        verdict(Some(&status(condition, revision)), "hello", "05", Goal::Running)
    }

    #[test]
    fn waiting_ends_when_it_is_decided() {
        assert!(ends(Is::Deploying, "05").is_none());
        assert!(matches!(ends(Is::Running, "05"), Some(Ok(()))));
        assert!(matches!(ends(Is::Running, "06"), Some(Ok(()))));
        assert!(ends(Is::Running, "04").is_none(), "what ran before isn't what is waited for");
        assert!(ends(Is::Down, "04").is_none());
        assert!(matches!(ends(Is::Partial, "05"), Some(Err(Failure::Partial(_)))));
        let Some(Err(Failure::Failed(told))) = ends(Is::Down, "05") else { panic!("not failed") };
        assert_eq!(told, "hello failed: Hello on east: no image");
        assert!(matches!(ends(Is::RolledBack, "04"), Some(Err(Failure::Failed(_)))));
    }

    #[test]
    fn a_cluster_that_is_away_may_come_back() {
        let with = |contact: Contact| {
            let mut status = status(Is::Down, "05");
            status.units_total = 1;
            status.units[0].contact = contact;
            status.message = "Hello on east: the cluster is unreachable".to_owned();
            status
        };
        let ends = |status: &DeploymentStatus| verdict(Some(status), "hello", "05", Goal::Running);
        for contact in [Contact::Stale, Contact::Unknown] {
            assert!(ends(&with(contact)).is_none());
        }
        for contact in [Contact::Fresh, Contact::Unconfigured] {
            assert!(matches!(ends(&with(contact)), Some(Err(Failure::Failed(_)))));
        }
        // Another one has failed for good.
        let mut mixed = with(Contact::Stale);
        mixed.units.push(UnitStatus { condition: Condition::Down, ..UnitStatus::default() });
        assert!(ends(&mixed).is_some());
        // When the time is over it is told what it waited for.
        let mut teller = Teller::new("hello", None);
        teller.tell(&with(Contact::Stale));
        assert_eq!(teller.last, "DOWN: Hello on east: the cluster is unreachable");
    }

    #[test]
    fn what_is_gone_is_gone() {
        assert!(matches!(verdict(None, "hello", "", Goal::Gone), Some(Ok(()))));
        assert!(matches!(verdict(None, "hello", "", Goal::Running), Some(Err(_))));
        let deleting = status(Is::Deleting, "05");
        assert!(verdict(Some(&deleting), "hello", "", Goal::Gone).is_none());
    }

    #[test]
    fn each_change_is_told_once() {
        let mut teller = Teller::new("hello", None);
        let first = teller.tell(&status(Is::Deploying, "05"));
        assert_eq!(first.len(), 2);
        assert!(first[0].contains("east Hello") && first[0].contains("no image"), "{first:?}");
        assert_eq!(teller.tell(&status(Is::Deploying, "05")), [""; 0]);
        let last = teller.tell(&status(Is::Running, "05"));
        assert_eq!(last.len(), 1);
        assert!(last[0].contains("RUNNING"));
    }

    #[test]
    fn only_what_concerns_it_is_read_again() {
        let event = |kind: &str, subject: &str| Event {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            ..Event::default()
        };
        let status = status(Is::Deploying, "05");
        assert!(concerns(&event("deployment.condition", "hello"), "hello", Some(&status)));
        assert!(concerns(&event("unit.condition", "u1"), "hello", Some(&status)));
        assert!(concerns(&event("cluster.health", "east"), "hello", Some(&status)));
        assert!(!concerns(&event("cluster.health", "west"), "hello", Some(&status)));
        assert!(!concerns(&event("deployment.condition", "other"), "hello", Some(&status)));
        assert!(!concerns(&event("package.published", "hello"), "hello", Some(&status)));
    }
}
