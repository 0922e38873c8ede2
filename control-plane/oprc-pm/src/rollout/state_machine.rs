//! When a rollout has succeeded, failed, been rolled back or deleted.

use std::time::Duration;

use jiff::Timestamp;
use oprc_models::{OClassDeployment, Policy};

use super::{
    model::{DeploymentRecord, Stage, UnitRecord},
    unit::{Observation, Phase, is_current, is_ready},
};

/// A unit's desired and observed state.
#[derive(Clone, Debug)]
pub struct UnitView<'a> {
    pub cluster: &'a str,
    pub id: &'a str,
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
        Stage::RollingOut { since } => {
            Rollout { record, since: *since, now, deadlines }.evaluate(units)
        }
        Stage::RollingBack { .. } if is_rolled_back(record, units) => {
            Evaluation::transition(Transition::RolledBack)
        }
        Stage::Deleting { .. } if units.is_empty() => Evaluation::transition(Transition::Remove),
        _ => Evaluation::default(),
    }
}

enum Failure {
    Now(String),
    At(Timestamp),
    Never,
}

struct Rollout<'a> {
    record: &'a DeploymentRecord,
    since: Timestamp,
    now: Timestamp,
    deadlines: Deadlines,
}

impl Rollout<'_> {
    fn evaluate(&self, units: &[UnitView<'_>]) -> Evaluation {
        let Some(planned) = self.planned_units(units) else { return Evaluation::default() };
        if planned.iter().all(|unit| is_ready(unit.record, &unit.observation)) {
            // Units that are no longer desired are deleted however long that takes.
            return Evaluation::transition(Transition::Succeed);
        }
        let deployment = &self.record.deployment;
        if deployment.policy != Some(Policy::AllOrNothing) {
            return Evaluation::default();
        }
        let mut deadline: Option<Timestamp> = None;
        for unit in planned.iter().filter(|_| rolls_back_on_failure(deployment)) {
            match self.failure(unit) {
                Failure::Now(because) => {
                    // No call is made for the failed revision until the rollback is stored.
                    return Evaluation {
                        hold_deploys: true,
                        hold_deletes: true,
                        ..Evaluation::transition(Transition::RollBack { because })
                    };
                }
                Failure::At(at) => deadline = Some(deadline.map_or(at, |first| first.min(at))),
                Failure::Never => {}
            }
        }
        let begun = planned.iter().any(|unit| {
            let acknowledged = unit.record.acknowledged.as_ref();
            acknowledged.is_some_and(|it| it.revision == self.record.revision)
        });
        let unreachable = planned.iter().any(|unit| unit.observation == Observation::Unknown);
        Evaluation {
            transition: None,
            deadline,
            hold_deploys: unreachable && !begun,
            hold_deletes: true,
        }
    }

    /// The units of the plan; none if one of them isn't stored for this revision yet.
    fn planned_units<'a, 'b>(&self, units: &'a [UnitView<'b>]) -> Option<Vec<&'a UnitView<'b>>> {
        let revision = &self.record.revision;
        let find = |id: &str, cluster: &str| {
            units.iter().find(|unit| {
                unit.id == id && unit.cluster == cluster && unit.record.revision == *revision
            })
        };
        self.record.plan.units.iter().map(|unit| find(&unit.id, &unit.cluster)).collect()
    }

    /// Whether a unit fails the whole rollout, or when it will.
    fn failure(&self, unit: &UnitView<'_>) -> Failure {
        if is_ready(unit.record, &unit.observation) {
            return Failure::Never;
        }
        let name = format!("{} on {}", unit.record.class, unit.cluster);
        if let Some(why) = &unit.rejection {
            return Failure::Now(format!("{name} was rejected: {why}"));
        }
        let (at, why) = match &unit.observation {
            Observation::Unknown => {
                let from = unit.unreachable_since.map_or(self.since, |it| it.max(self.since));
                let why = format!("the cluster {} is unreachable", unit.cluster);
                (add(from, self.deadlines.unreachable), why)
            }
            Observation::Present(observed)
                if is_current(unit.record, observed)
                    && observed.current_phase() == Some(Phase::Degraded) =>
            {
                let why = format!("{name} is Degraded: {}: {}", observed.reason, observed.message);
                // CRM has waited for the progress deadline itself.
                let waited = observed.exceeded_progress_deadline();
                (if waited { self.since } else { add(self.since, self.progress_deadline()) }, why)
            }
            // CRM's progress deadline begins later, when it accepts the unit.
            _ => {
                let allowed = self.progress_deadline() + self.deadlines.unreachable;
                let why = format!("{name} did not become Available before the deadline");
                (add(self.since, allowed), why)
            }
        };
        if self.now >= at { Failure::Now(why) } else { Failure::At(at) }
    }

    fn progress_deadline(&self) -> Duration {
        let options = self.record.deployment.options.as_ref();
        let own = options.and_then(|options| options.progress_deadline_seconds);
        own.map_or(self.deadlines.progress, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        })
    }
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
            unit.record.spec.is_some() && unit.rejection.is_some()
        }
    };
    let mut former = record.former.iter().flat_map(|former| &former.plan.units);
    units.iter().all(restored)
        && former.all(|plan| units.iter().any(|it| it.id == plan.id && it.cluster == plan.cluster))
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
            "stage": {"stage": "driving", "since": SINCE},
        }))
        .unwrap()
    }

    fn unit(cluster: &str, revision: &str, desired: bool) -> UnitRecord {
        serde_json::from_value(json!({
            "deployment": "d", "revision": revision, "class": "A", "environment": "",
            "namespace": "", "spec": desired.then(|| json!({})), "correlation_id": cluster,
            "taken": {"revision": revision, "uid": "u", "generation": 2},
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

    fn view<'a>(
        cluster: &'a str,
        id: &'a str,
        record: &'a UnitRecord,
        observation: Observation,
        rejection: Option<&str>,
    ) -> UnitView<'a> {
        let rejection = rejection.map(str::to_owned);
        UnitView { cluster, id, record, observation, rejection, unreachable_since: None }
    }

    fn evaluate_with(
        (east, rejection): (Observation, Option<&str>),
        west: Observation,
        leftover: bool,
    ) -> Evaluation {
        let (one, two, old) =
            (unit("east", "r2", true), unit("west", "r2", true), unit("far", "r1", false));
        let mut units = vec![
            view("east", "d.A..east", &one, east, rejection),
            view("west", "d.A..west", &two, west, None),
        ];
        if leftover {
            units.push(view("far", "d.A..far", &old, Observation::Unknown, None));
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
            (cluster, format!("d.A..{cluster}"), sent)
        });
        let views = |east: Observation, rejection: Option<&str>| -> Vec<UnitView<'_>> {
            let observations = [east, Observation::Absent].into_iter();
            let all = units.iter().zip(observations);
            all.map(|((cluster, id, record), it)| view(cluster, id, record, it, rejection))
                .collect()
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
        record.stage = Stage::RollingBack { since: since(), because: "it failed".to_owned() };
        let (one, two) = (unit("east", "r1", true), unit("west", "r1", true));
        let transition = |observation: Observation, rejection| {
            let units = [
                view("east", "d.A..east", &one, observation, rejection),
                view("west", "d.A..west", &two, present(Phase::Progressing, 2), None),
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
