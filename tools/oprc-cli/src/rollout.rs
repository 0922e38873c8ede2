//! Watches a deployment until its rollout ends: the status is read again after each event that
//! concerns it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use oprc_rest::{
    Condition, Contact, DeploymentCondition as Is, DeploymentStatus, Event, UnitStatus,
};

use crate::{
    client::{Client, Events, escape},
    error::{CliError, is_unavailable, optional},
    output::{
        OutputArgs, api_name, duration, join_non_empty, note_styled, paint, sanitize, tone_of,
    },
};

/// Events within this time lead to one read of the status.
const EVENT_DEBOUNCE: Duration = Duration::from_millis(100);
/// How long a deployment may be Down or Partial before the rollout counts as failed.
const FAILURE_GRACE: Duration = Duration::from_secs(5);
/// First and longest delay before the event stream is reopened.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal<'a> {
    /// All classes are Available in this revision or a later one.
    Running {
        revision: &'a str,
    },
    Deleted,
    /// Watch without end.
    Unbounded,
}

/// Waits for the goal and reports progress to standard error. With `show`, each changed status is
/// printed to standard output instead.
pub(crate) async fn wait(
    client: &Client,
    key: &str,
    goal: Goal<'_>,
    limit: Option<Duration>,
    show: Option<OutputArgs>,
) -> Result<()> {
    let mut reporter = Reporter::new(key, show);
    let work = watch_until(client, key, goal, &mut reporter);
    let Some(limit) = limit else { return work.await };
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) if goal == Goal::Unbounded => Ok(()),
        Err(_) => {
            let (limit, last) = (duration::short(limit), reporter.last);
            bail!(CliError::Unavailable(format!(
                "deployment {key}: timed out after {limit}; last status: {last}"
            )))
        }
    }
}

async fn watch_until(
    client: &Client,
    key: &str,
    goal: Goal<'_>,
    reporter: &mut Reporter,
) -> Result<()> {
    let path = format!("/deployments/{}/status", escape(key));
    let mut delay = RECONNECT_DELAY.0;
    let (mut connected, mut failing_since) = (false, None);
    loop {
        // Opened before the status is read, so that no change in between is missed.
        let mut events = match client.events(None).await {
            Ok(events) => Some(events),
            Err(error) if connected && is_unavailable(&error) => None,
            Err(error) => return Err(error),
        };
        while let Some(events) = &mut events {
            let status: Option<DeploymentStatus> = match optional(client.get(&path).await) {
                // The package manager may be restarting.
                Err(error) if connected && is_unavailable(&error) => break,
                status => status?,
            };
            connected = true;
            if let Some(status) = &status {
                reporter.report(status)?;
            }
            let outcome = outcome(status.as_ref(), key, goal);
            let grace = match &outcome {
                Some(Err(_)) if status.as_ref().is_some_and(may_recover) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    FAILURE_GRACE.saturating_sub(since.elapsed())
                }
                _ => {
                    failing_since = None;
                    Duration::ZERO
                }
            };
            let event = next_relevant_event(events, key, status.as_ref());
            let open = match outcome {
                Some(outcome) if grace.is_zero() => return Ok(outcome?),
                // Without an event the status is read once more after the grace period.
                Some(_) => tokio::time::timeout(grace, event).await.unwrap_or(true),
                None => event.await,
            };
            if !open {
                break;
            }
            delay = RECONNECT_DELAY.0;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RECONNECT_DELAY.1);
    }
}

/// Waits for an event that concerns the deployment; false if the stream has ended.
async fn next_relevant_event(
    events: &mut Events,
    key: &str,
    status: Option<&DeploymentStatus>,
) -> bool {
    loop {
        match events.next().await {
            Ok(Some(event)) if is_relevant(&event, key, status) => break,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
    }
    let more = async { while let Ok(Some(_)) = events.next().await {} };
    // If the stream ends here, the next call notices it.
    let _ = tokio::time::timeout(EVENT_DEBOUNCE, more).await;
    true
}

fn is_relevant(event: &Event, key: &str, status: Option<&DeploymentStatus>) -> bool {
    let units = status.map(|it| it.units.as_slice()).unwrap_or_default();
    if event.kind.starts_with("deployment.") {
        return event.subject == key;
    }
    if event.kind.starts_with("cluster.") {
        return units.is_empty() || units.iter().any(|unit| unit.cluster == event.subject);
    }
    // Events were missed, and any of them may have concerned it.
    if event.kind == "gap" {
        return true;
    }
    // A new unit isn't in the last status yet; its id contains the deployment's key.
    event.kind.starts_with("unit.")
        && (units.iter().any(|unit| unit.id == event.subject) || event.subject.contains(key))
}

/// Down and Partial may be transient: units of the previous revision may be failing, or a cluster is
/// unreachable for a moment.
fn may_recover(status: &DeploymentStatus) -> bool {
    matches!(status.condition, Is::Down | Is::Partial)
}

/// Whether every remaining unit is on a cluster that is unreachable for now.
fn all_clusters_unreachable(status: &DeploymentStatus) -> bool {
    let remaining = |unit: &&UnitStatus| unit.condition != Condition::Deleted;
    let unreachable = |unit: &UnitStatus| matches!(unit.contact, Contact::Stale | Contact::Unknown);
    status.condition == Is::Down
        && status.units_total > 0
        && status.units.iter().filter(remaining).all(unreachable)
}

/// The result of the rollout; `None` while it is in progress.
fn outcome(
    status: Option<&DeploymentStatus>,
    key: &str,
    goal: Goal<'_>,
) -> Option<Result<(), CliError>> {
    let Some(status) = status else {
        return Some(match goal {
            Goal::Deleted => Ok(()),
            Goal::Running { .. } => Err(CliError::Failed(format!(
                "deployment {key} was deleted while its rollout was in progress"
            ))),
            Goal::Unbounded => Err(CliError::NotFound(format!(
                "deployment {key:?} not found; `oprc status` lists deployments"
            ))),
        });
    };
    let revision = match goal {
        Goal::Running { revision } => revision,
        Goal::Deleted => return (status.condition == Is::Deleted).then_some(Ok(())),
        Goal::Unbounded => return None,
    };
    // Revisions sort by creation time: this status is of an earlier one.
    let earlier = status.revision.as_str() < revision && status.condition != Is::RolledBack;
    if earlier || all_clusters_unreachable(status) {
        return None;
    }
    let (error, result): (fn(String) -> CliError, _) = match status.condition {
        Is::Pending | Is::Deploying | Is::RollingBack => return None,
        Is::Running => return Some(Ok(())),
        Is::Down => (CliError::Failed, "failed"),
        Is::RolledBack => (CliError::Failed, "failed and was rolled back"),
        Is::Deleting | Is::Deleted => (CliError::Failed, "is being deleted"),
        Is::Partial => (CliError::Partial, "is only partially running"),
    };
    let cause = sanitize(&cause(status));
    let message = join_non_empty(&[&format!("deployment {key} {result}"), &cause], ": ");
    Some(Err(error(format!(
        "{message}\nhint: `oprc status {key} --pods` and `oprc logs {key}` show details"
    ))))
}

/// The deployment's message, or that of the first unit that has one.
fn cause(status: &DeploymentStatus) -> String {
    if !status.message.is_empty() {
        return status.message.clone();
    }
    let unit = status.units.iter().find(|unit| !unit.message.is_empty());
    unit.map(|unit| format!("{} on {}: {}", unit.class, unit.cluster, unit.message))
        .unwrap_or_default()
}

/// The phase that CRM reports, or the condition if there is none yet.
pub(crate) fn phase_of(unit: &UnitStatus) -> String {
    if unit.phase.is_empty() { api_name(&unit.condition) } else { unit.phase.clone() }
}

/// Reports each change of a status once, with the time since the start.
#[derive(Debug)]
struct Reporter {
    key: String,
    /// Prints to standard output in this format, if set.
    show: Option<OutputArgs>,
    started: Instant,
    last: String,
    reported: BTreeMap<String, String>,
}

impl Reporter {
    fn new(key: &str, show: Option<OutputArgs>) -> Self {
        let last = "unknown".to_owned();
        let (key, started) = (key.to_owned(), Instant::now());
        Self { key, show, started, last, reported: BTreeMap::new() }
    }

    fn report(&mut self, status: &DeploymentStatus) -> Result<()> {
        let lines = self.changes(status);
        match &self.show {
            Some(_) if lines.is_empty() => {}
            Some(show) => show.print_item(status, || lines.join("\n") + "\n")?,
            None => lines.iter().for_each(|line| note_styled(line)),
        }
        Ok(())
    }

    /// One line for each unit, function and deployment that changed.
    fn changes(&mut self, status: &DeploymentStatus) -> Vec<String> {
        let condition = api_name(&status.condition);
        let cause = sanitize(&cause(status));
        self.last = join_non_empty(&[&condition, &cause], ": ");
        let mut lines = Vec::new();
        for unit in &status.units {
            let name = format!("{} {}", unit.cluster, unit.class);
            let contact = match unit.contact {
                Contact::Fresh => "",
                Contact::Unconfigured => "cluster is no longer configured",
                Contact::Stale | Contact::Unknown => "cluster is unreachable",
            };
            let message = join_non_empty(&[contact, &unit.message], ": ");
            lines.extend(self.change(&unit.id, &name, &phase_of(unit), &message));
            for function in &unit.functions {
                let id = format!("{}\0{}", unit.id, function.key);
                let message = function.error_msg.clone().unwrap_or_default();
                let name = format!("{name}/{}", function.key);
                lines.extend(self.change(&id, &name, &api_name(&function.condition), &message));
            }
        }
        let key = self.key.clone();
        lines.extend(self.change("", &key, &condition, &status.message));
        lines
    }

    fn change(&mut self, id: &str, name: &str, condition: &str, message: &str) -> Option<String> {
        let now = format!("{condition}\0{message}");
        if self.reported.insert(id.to_owned(), now.clone()).as_ref() == Some(&now) {
            return None;
        }
        let elapsed = format!("{:.1}s", self.started.elapsed().as_secs_f64());
        let painted = paint(tone_of(condition), &sanitize(condition));
        let state = join_non_empty(&[&painted, &sanitize(message)], ": ");
        Some(format!("{elapsed:>7}  {}  {state}", sanitize(name)))
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

    fn outcome_of(condition: Is, revision: &str) -> Option<Result<(), CliError>> {
        outcome(Some(&status(condition, revision)), "hello", Goal::Running { revision: "05" })
    }

    #[test]
    fn waiting_ends_when_the_rollout_is_decided() {
        assert!(outcome_of(Is::Deploying, "05").is_none());
        assert!(matches!(outcome_of(Is::Running, "05"), Some(Ok(()))));
        assert!(matches!(outcome_of(Is::Running, "06"), Some(Ok(()))));
        assert!(outcome_of(Is::Running, "04").is_none(), "the previous revision doesn't count");
        assert!(outcome_of(Is::Down, "04").is_none());
        assert!(matches!(outcome_of(Is::Partial, "05"), Some(Err(CliError::Partial(_)))));
        let Some(Err(CliError::Failed(message))) = outcome_of(Is::Down, "05") else {
            panic!("not failed")
        };
        let expected = "deployment hello failed: Hello on east: no image\n\
                        hint: `oprc status hello --pods` and `oprc logs hello` show details";
        assert_eq!(message, expected);
        assert!(matches!(outcome_of(Is::RolledBack, "04"), Some(Err(CliError::Failed(_)))));
    }

    #[test]
    fn waits_for_an_unreachable_cluster() {
        let with = |contact: Contact| {
            let mut status = status(Is::Down, "05");
            status.units_total = 1;
            status.units[0].contact = contact;
            status.message = "Hello on east: the cluster is unreachable".to_owned();
            status
        };
        let goal = Goal::Running { revision: "05" };
        let ends = |status: &DeploymentStatus| outcome(Some(status), "hello", goal);
        for contact in [Contact::Stale, Contact::Unknown] {
            assert!(ends(&with(contact)).is_none());
        }
        for contact in [Contact::Fresh, Contact::Unconfigured] {
            assert!(matches!(ends(&with(contact)), Some(Err(CliError::Failed(_)))));
        }
        // A unit on a reachable cluster has failed.
        let mut mixed = with(Contact::Stale);
        mixed.units.push(UnitStatus { condition: Condition::Down, ..UnitStatus::default() });
        assert!(ends(&mixed).is_some());
        // The timeout error quotes the last status.
        let mut reporter = Reporter::new("hello", None);
        reporter.changes(&with(Contact::Stale));
        assert_eq!(reporter.last, "DOWN: Hello on east: the cluster is unreachable");
    }

    #[test]
    fn a_missing_deployment_counts_as_deleted() {
        assert!(matches!(outcome(None, "hello", Goal::Deleted), Some(Ok(()))));
        let running = Goal::Running { revision: "" };
        assert!(matches!(outcome(None, "hello", running), Some(Err(_))));
        let deleting = status(Is::Deleting, "05");
        assert!(outcome(Some(&deleting), "hello", Goal::Deleted).is_none());
    }

    #[test]
    fn reports_each_change_once() {
        let mut reporter = Reporter::new("hello", None);
        let first = reporter.changes(&status(Is::Deploying, "05"));
        assert_eq!(first.len(), 2);
        assert!(first[0].contains("east Hello") && first[0].contains("no image"), "{first:?}");
        assert_eq!(reporter.changes(&status(Is::Deploying, "05")), [""; 0]);
        let last = reporter.changes(&status(Is::Running, "05"));
        assert_eq!(last.len(), 1);
        assert!(last[0].contains("RUNNING"));
    }

    #[test]
    fn ignores_events_of_other_deployments() {
        let event = |kind: &str, subject: &str| Event {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            ..Event::default()
        };
        let status = status(Is::Deploying, "05");
        assert!(is_relevant(&event("deployment.condition", "hello"), "hello", Some(&status)));
        assert!(is_relevant(&event("unit.condition", "u1"), "hello", Some(&status)));
        assert!(is_relevant(&event("cluster.health", "east"), "hello", Some(&status)));
        assert!(!is_relevant(&event("cluster.health", "west"), "hello", Some(&status)));
        assert!(!is_relevant(&event("deployment.condition", "other"), "hello", Some(&status)));
        assert!(!is_relevant(&event("package.published", "hello"), "hello", Some(&status)));
    }
}
