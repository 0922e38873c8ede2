//! When a rollout has succeeded, failed, been rolled back or deleted.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use oprc_models::{OClassDeployment, Policy};
use oprc_rest::UnitPlan;
use oprc_unit::Phase;

use super::{
    model::{DeploymentRecord, Stage, UnitKey, UnitRecord, planned_key},
    unit::{Observation, Step, is_current, is_ready},
};

/// A unit's desired and observed state.
#[derive(Clone, Debug)]
pub struct UnitView<'a> {
    pub key: &'a UnitKey,
    pub record: &'a UnitRecord,
    pub observation: Observation,
    /// Why the cluster rejects the unit as it is desired.
    pub rejection: Option<String>,
    pub unreachable_since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For a class to become Available, unless its deployment sets its own.
    pub progress: Duration,
    /// For a cluster to return before an all-or-nothing deployment is rolled back.
    pub unreachable: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { progress: Duration::from_mins(10), unreachable: Duration::from_mins(1) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    Succeed,
    RollBack { because: String },
    RolledBack,
    Remove,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeed => f.write_str("succeeded"),
            Self::RollBack { because } => write!(f, "rolling back: {because}"),
            Self::RolledBack => f.write_str("rolled back"),
            Self::Remove => f.write_str("deleted"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    pub transition: Option<Transition>,
    /// When to evaluate again if nothing else happens.
    pub deadline: Option<Timestamp>,
    /// All-or-nothing sends no unit before all clusters are reachable.
    pub hold_deploys: bool,
    /// All-or-nothing keeps what it may roll back to.
    pub hold_deletes: bool,
}

impl Evaluation {
    pub fn holds(&self, step: Step) -> bool {
        match step {
            Step::Deploy => self.hold_deploys,
            Step::Delete => self.hold_deletes,
            Step::Wait => true,
        }
    }

    fn transition(transition: Transition) -> Self {
        Self { transition: Some(transition), ..Self::default() }
    }
}

/// Whether a deployment is all-or-nothing and rolls back when it fails.
pub fn rolls_back_on_failure(deployment: &OClassDeployment) -> bool {
    deployment.policy == Some(Policy::AllOrNothing) && deployment.rollback_on_failure != Some(false)
}

pub fn evaluate(
    record: &DeploymentRecord,
    units: &[UnitView<'_>],
    now: Timestamp,
    deadlines: Deadlines,
) -> Evaluation {
    match &record.stage {
        Stage::RollingOut => evaluate_rollout(record, units, now, deadlines),
        Stage::RollingBack { .. } if is_rolled_back(record, units) => {
            Evaluation::transition(Transition::RolledBack)
        }
        Stage::Deleting if units.is_empty() => Evaluation::transition(Transition::Remove),
        _ => Evaluation::default(),
    }
}

fn evaluate_rollout(
    record: &DeploymentRecord,
    units: &[UnitView<'_>],
    now: Timestamp,
    deadlines: Deadlines,
) -> Evaluation {
    let stored = |planned: &UnitPlan| {
        let key = planned_key(planned);
        units.iter().find(|unit| *unit.key == key && unit.record.revision == record.revision)
    };
    // One of them may not be stored for this revision yet.
    let Some(planned) = record.plan.units.iter().map(stored).collect::<Option<Vec<_>>>() else {
        return Evaluation::default();
    };
    if planned.iter().all(|unit| is_ready(unit.record, &unit.observation)) {
        // Units that are no longer desired are deleted however long that takes.
        return Evaluation::transition(Transition::Succeed);
    }
    if record.deployment.policy != Some(Policy::AllOrNothing) {
        return Evaluation::default();
    }
    let failures = planned.iter().filter(|_| rolls_back_on_failure(&record.deployment));
    let failures: Vec<_> = failures.filter_map(|unit| failure(record, unit, deadlines)).collect();
    if let Some((_, because)) = failures.iter().find(|(at, _)| now >= *at) {
        // No call is made for the failed revision until the rollback is stored.
        return Evaluation {
            hold_deploys: true,
            hold_deletes: true,
            ..Evaluation::transition(Transition::RollBack { because: because.clone() })
        };
    }
    let begun = planned.iter().any(|unit| {
        let acknowledged = unit.record.acknowledged.as_ref();
        acknowledged.is_some_and(|it| it.revision == record.revision)
    });
    let unreachable = planned.iter().any(|unit| unit.observation == Observation::Unknown);
    Evaluation {
        transition: None,
        deadline: failures.iter().map(|(at, _)| *at).min(),
        hold_deploys: unreachable && !begun,
        hold_deletes: true,
    }
}

/// When and why a unit fails the whole rollout, unless it becomes ready before.
fn failure(
    record: &DeploymentRecord,
    unit: &UnitView<'_>,
    deadlines: Deadlines,
) -> Option<(Timestamp, String)> {
    if is_ready(unit.record, &unit.observation) {
        return None;
    }
    let (since, cluster) = (record.stage_since, &unit.key.0);
    let name = format!("{} on {cluster}", unit.record.class);
    if let Some(why) = &unit.rejection {
        return Some((Timestamp::MIN, format!("{name} was rejected: {why}")));
    }
    let options = record.deployment.options.as_ref();
    let progress = options.and_then(|options| options.progress_deadline_seconds);
    let progress = progress.map_or(deadlines.progress, |seconds| {
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    });
    Some(match &unit.observation {
        Observation::Unknown => {
            let from = unit.unreachable_since.map_or(since, |it| it.max(since));
            let why = format!("the cluster {cluster} is unreachable");
            (add(from, deadlines.unreachable), why)
        }
        Observation::Present(observed)
            if is_current(unit.record, observed)
                && observed.current_phase() == Some(Phase::Degraded) =>
        {
            let why = format!("{name} is Degraded: {}: {}", observed.reason, observed.message);
            // CRM has waited for the progress deadline itself.
            let waited = observed.reason == "ProgressDeadlineExceeded";
            (if waited { since } else { add(since, progress) }, why)
        }
        // CRM's progress deadline begins later, when it accepts the unit.
        _ => {
            let why = format!("{name} did not become Available before the deadline");
            (add(since, progress + deadlines.unreachable), why)
        }
    })
}

fn add(from: Timestamp, duration: Duration) -> Timestamp {
    from.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// Whether clusters have the former units as far as they accept them, and no others.
fn is_rolled_back(record: &DeploymentRecord, units: &[UnitView<'_>]) -> bool {
    let restored = |unit: &UnitView<'_>| match &unit.observation {
        Observation::Unknown => false,
        Observation::Present(observed) if is_current(unit.record, observed) => true,
        // A former unit that its cluster rejects is still retried, and its status says so.
        Observation::Present(_) | Observation::Absent => {
            unit.record.desired && unit.rejection.is_some()
        }
    };
    let mut former = record.former.iter().flat_map(|former| &former.plan.units).map(planned_key);
    units.iter().all(restored) && former.all(|key| units.iter().any(|unit| *unit.key == key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::unit::ObservedUnit, *};

    const SINCE: &str = "2026-11-16T00:00:00Z";

    fn since() -> Timestamp {
        SINCE.parse().unwrap()
    }

    /// An all-or-nothing deployment with one class on two clusters.
    fn record() -> DeploymentRecord {
        let unit = |cluster: &str| {
            json!({"id": format!("d.A..{cluster}"), "cluster": cluster, "environment": "",
                   "namespace": "", "class": "A", "spec": {}, "reasons": []})
        };
        serde_json::from_value(json!({
            "deployment": {"key": "d", "policy": "ALL_OR_NOTHING"},
            "revision": "r2", "created_at": SINCE, "updated_at": SINCE, "correlation_id": "",
            "plan": {"deployment": "d", "package": "p", "version": "1.0.0", "reasons": [],
                     "units": [unit("east"), unit("west")]},
            "stage": {"stage": "rolling_out"}, "stage_since": SINCE,
        }))
        .unwrap()
    }

    fn unit(cluster: &str, revision: &str, desired: bool) -> UnitRecord {
        serde_json::from_value(json!({
            "deployment": "d", "revision": revision, "class": "A", "environment": "",
            "namespace": "", "desired": desired, "correlation_id": cluster,
            "acknowledged": {"revision": revision, "uid": "u", "generation": 2, "namespace": ""},
        }))
        .unwrap()
    }

    fn present(phase: Phase, observed_generation: i64) -> Observation {
        Observation::Present(ObservedUnit {
            uid: "u".to_owned(),
            generation: 2,
            observed_generation,
            phase,
            reason: "ProgressDeadlineExceeded".to_owned(),
            ..ObservedUnit::default()
        })
    }

    fn key(cluster: &str) -> UnitKey {
        (cluster.to_owned(), format!("d.A..{cluster}"))
    }

    fn view<'a>(
        key: &'a UnitKey,
        record: &'a UnitRecord,
        observation: Observation,
        rejection: Option<&str>,
    ) -> UnitView<'a> {
        let rejection = rejection.map(str::to_owned);
        UnitView { key, record, observation, rejection, unreachable_since: None }
    }

    fn evaluate_with(
        (east, rejection): (Observation, Option<&str>),
        west: Observation,
        leftover: bool,
    ) -> Evaluation {
        let (one, two, old) =
            (unit("east", "r2", true), unit("west", "r2", true), unit("far", "r1", false));
        let [at_one, at_two, at_old] = ["east", "west", "far"].map(key);
        let mut units = vec![view(&at_one, &one, east, rejection), view(&at_two, &two, west, None)];
        if leftover {
            units.push(view(&at_old, &old, Observation::Unknown, None));
        }
        evaluate(&record(), &units, since() + Duration::from_secs(1), Deadlines::default())
    }

    #[test]
    fn failed_rollout_holds_all_calls_until_it_is_rolled_back() {
        let failed = evaluate_with(
            (present(Phase::Progressing, 2), Some("no")),
            present(Phase::Available, 2),
            true,
        );
        assert!(matches!(failed.transition, Some(Transition::RollBack { .. })), "{failed:?}");
        assert!(failed.hold_deploys && failed.hold_deletes, "{failed:?}");
    }

    #[test]
    fn all_or_nothing_waits_for_all_clusters_with_and_without_rollback() {
        let mut record = record();
        record.deployment.rollback_on_failure = Some(false);
        let units = ["east", "west"].map(|cluster| {
            let sent = UnitRecord { acknowledged: None, ..unit(cluster, "r2", true) };
            (key(cluster), sent)
        });
        let views = |east: Observation, rejection: Option<&str>| -> Vec<UnitView<'_>> {
            let observations = [east, Observation::Absent].into_iter();
            let all = units.iter().zip(observations);
            all.map(|((key, record), it)| view(key, record, it, rejection)).collect()
        };
        let later = since() + Duration::from_secs(10_000);
        let deadlines = Deadlines::default();
        let away = evaluate(&record, &views(Observation::Unknown, None), later, deadlines);
        assert!(away.hold_deploys && away.hold_deletes && away.transition.is_none(), "{away:?}");
        let failed = evaluate(&record, &views(Observation::Absent, Some("no")), later, deadlines);
        assert_eq!(failed.transition, None);
        assert!(!failed.hold_deploys && failed.hold_deletes, "{failed:?}");
    }

    #[test]
    fn rollback_ends_even_if_a_former_unit_is_rejected() {
        let mut record = record();
        record.stage = Stage::RollingBack { because: "it failed".to_owned() };
        let (at_one, at_two) = (key("east"), key("west"));
        let (one, two) = (unit("east", "r1", true), unit("west", "r1", true));
        let transition = |observation: Observation, rejection| {
            let units = [
                view(&at_one, &one, observation, rejection),
                view(&at_two, &two, present(Phase::Progressing, 2), None),
            ];
            evaluate(&record, &units, Timestamp::UNIX_EPOCH, Deadlines::default()).transition
        };
        assert_eq!(transition(Observation::Absent, None), None);
        assert_eq!(transition(Observation::Unknown, Some("no")), None);
        assert_eq!(transition(Observation::Absent, Some("no")), Some(Transition::RolledBack));
    }

    #[test]
    fn status_of_an_earlier_generation_fails_nothing() {
        let available = || present(Phase::Available, 2);
        let earlier = evaluate_with((present(Phase::Degraded, 1), None), available(), false);
        assert_eq!(earlier.transition, None);
        let current = evaluate_with((present(Phase::Degraded, 2), None), available(), false);
        assert!(matches!(current.transition, Some(Transition::RollBack { .. })), "{current:?}");
    }

    #[test]
    fn succeeds_although_former_units_are_left() {
        let available = || present(Phase::Available, 2);
        let done = evaluate_with((available(), None), available(), true);
        assert_eq!(done.transition, Some(Transition::Succeed));
    }
}
