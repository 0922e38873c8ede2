//! How a deployment goes on: when it has succeeded, failed, gone back or gone. Pure.

use oprc_models::{OClassDeployment, Policy};

use super::unit::{Seen, is_current, is_good};
use crate::{
    records::{DeploymentRecord, Stage, UnitRecord},
    stamp::{Millis, parse},
};

/// What a deployment's unit is to be, and what is known of it.
#[derive(Clone, Debug)]
pub struct UnitView<'a> {
    /// Its cluster.
    pub cluster: &'a str,
    /// Its id.
    pub id: &'a str,
    /// What it is to be.
    pub record: &'a UnitRecord,
    /// What the cluster tells.
    pub seen: Seen,
    /// Why the cluster won't have it as it is to be.
    pub refused: Option<String>,
    /// Since when the cluster is away, where it is.
    pub away_since: Option<Millis>,
}

/// How long something may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A class to become Available, unless its deployment says otherwise.
    pub progress: Millis,
    /// A cluster to come back, before a deployment of all or nothing goes back.
    pub away: Millis,
}

impl Default for Limits {
    fn default() -> Self {
        Self { progress: 600_000, away: 60_000 }
    }
}

/// Where a deployment goes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// All of it is Available.
    Settle,
    /// It has failed, and goes back.
    RollBack {
        /// Why.
        because: String,
    },
    /// It has gone back.
    RolledBack,
    /// All of it is gone.
    Remove,
}

/// What is to happen to a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Where it goes now.
    pub transition: Option<Transition>,
    /// When to look again, if nothing else happens.
    pub again: Option<Millis>,
    /// No unit is to be sent yet: all or nothing begins when all clusters are there.
    pub hold_deploys: bool,
    /// No unit is to be taken away yet: all or nothing keeps what it goes back to.
    pub hold_deletes: bool,
}

/// Whether a deployment is of all or nothing and goes back when it fails.
pub fn goes_back(deployment: &OClassDeployment) -> bool {
    deployment.policy == Some(Policy::AllOrNothing) && deployment.rollback_on_failure != Some(false)
}

/// The units that the plan has, all of them stored for its revision.
fn planned<'a, 'b>(
    record: &DeploymentRecord,
    units: &'a [UnitView<'b>],
) -> Option<Vec<&'a UnitView<'b>>> {
    let find = |id: &str, cluster: &str| {
        units.iter().find(|unit| {
            unit.id == id && unit.cluster == cluster && unit.record.revision == record.revision
        })
    };
    record.plan.units.iter().map(|unit| find(&unit.id, &unit.cluster)).collect()
}

/// Looks at a deployment and all of its units.
pub fn outlook(
    record: &DeploymentRecord,
    units: &[UnitView<'_>],
    now: Millis,
    limits: Limits,
) -> Outlook {
    match &record.stage {
        Stage::Driving { since } => {
            driving(record, units, parse(since).unwrap_or(now), now, limits)
        }
        Stage::RollingBack { .. } if is_back(record, units) => {
            Outlook { transition: Some(Transition::RolledBack), ..Outlook::default() }
        }
        Stage::Deleting { .. } if units.is_empty() => {
            Outlook { transition: Some(Transition::Remove), ..Outlook::default() }
        }
        _ => Outlook::default(),
    }
}

fn driving(
    record: &DeploymentRecord,
    units: &[UnitView<'_>],
    since: Millis,
    now: Millis,
    limits: Limits,
) -> Outlook {
    let Some(wanted) = planned(record, units) else { return Outlook::default() };
    let good = wanted.iter().all(|unit| is_good(unit.record, &unit.seen));
    if good {
        // What isn't wanted any more goes by itself, however long that takes.
        return Outlook { transition: Some(Transition::Settle), ..Outlook::default() };
    }
    if record.deployment.policy != Some(Policy::AllOrNothing) {
        return Outlook::default();
    }
    let mut again: Option<Millis> = None;
    // One that doesn't go back has no time by which it has failed.
    for unit in wanted.iter().filter(|_| goes_back(&record.deployment)) {
        match failure(record, unit, since, now, limits) {
            Failure::Now(because) => {
                // Until that is stored nothing more is done for what has failed.
                let transition = Some(Transition::RollBack { because });
                return Outlook { transition, again: None, hold_deploys: true, hold_deletes: true };
            }
            Failure::At(at) => again = Some(again.map_or(at, |before| before.min(at))),
            Failure::Never => {}
        }
    }
    let sent = wanted.iter().any(|unit| {
        unit.record.taken.as_ref().is_some_and(|taken| taken.revision == record.revision)
    });
    let away = wanted.iter().any(|unit| unit.seen == Seen::Unknown);
    Outlook { transition: None, again, hold_deploys: away && !sent, hold_deletes: true }
}

enum Failure {
    Now(String),
    At(Millis),
    Never,
}

/// Whether a unit makes all of its deployment fail, or when it will.
fn failure(
    record: &DeploymentRecord,
    unit: &UnitView<'_>,
    since: Millis,
    now: Millis,
    limits: Limits,
) -> Failure {
    if is_good(unit.record, &unit.seen) {
        return Failure::Never;
    }
    let name = format!("{} on {}", unit.record.class, unit.cluster);
    if let Some(why) = &unit.refused {
        return Failure::Now(format!("{name} was refused: {why}"));
    }
    let progress = record
        .deployment
        .options
        .as_ref()
        .and_then(|options| options.progress_deadline_seconds)
        .map_or(limits.progress, |seconds| Millis::from(seconds) * 1000);
    let (until, why) = match &unit.seen {
        Seen::Unknown => {
            let from = unit.away_since.map_or(since, |away| away.max(since));
            (from + limits.away, format!("the cluster {} is away", unit.cluster))
        }
        // A status may still be about what was before.
        Seen::Present(sight)
            if is_current(unit.record, sight)
                && sight.observed_generation >= sight.generation
                && sight.phase == "Degraded" =>
        {
            let why = format!("{name} is Degraded: {}: {}", sight.reason, sight.message);
            // CRM has waited already.
            let waited = sight.reason == "ProgressDeadlineExceeded";
            (if waited { since } else { since + progress }, why)
        }
        // CRM counts by itself from when it took the unit.
        _ => (since + progress + limits.away, format!("{name} isn't Available in good time")),
    };
    if now >= until { Failure::Now(why) } else { Failure::At(until) }
}

/// Whether clusters have what was before as far as they will have it, and nothing else.
fn is_back(record: &DeploymentRecord, units: &[UnitView<'_>]) -> bool {
    let has = |unit: &UnitView<'_>| match &unit.seen {
        Seen::Unknown => false,
        Seen::Present(sight) if is_current(unit.record, sight) => true,
        // Refused as it was before, or by now. It is asked for again and again, and that is told.
        Seen::Present(_) | Seen::Absent => unit.record.spec.is_some() && unit.refused.is_some(),
    };
    let planned = record.former.iter().flat_map(|former| &former.plan.units);
    units.iter().all(has)
        && planned
            .into_iter()
            .all(|plan| units.iter().any(|it| it.id == plan.id && it.cluster == plan.cluster))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::unit::Sight, *};

    const SINCE: &str = "2026-11-16T00:00:00Z";

    /// A deployment of all or nothing with one class on two clusters.
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

    fn unit(cluster: &str, revision: &str, wanted: bool) -> UnitRecord {
        serde_json::from_value(json!({
            "deployment": "d", "revision": revision, "class": "A", "environment": "",
            "namespace": "", "spec": wanted.then(|| json!({})), "correlation_id": cluster,
            "taken": {"revision": revision, "uid": "u", "generation": 2},
        }))
        .unwrap()
    }

    fn seen(phase: &str, observed: i64) -> Seen {
        Seen::Present(Sight {
            uid: "u".to_owned(),
            generation: 2,
            observed_generation: observed,
            phase: phase.to_owned(),
            reason: "ProgressDeadlineExceeded".to_owned(),
            ..Sight::default()
        })
    }

    fn view<'a>(
        cluster: &'a str,
        id: &'a str,
        record: &'a UnitRecord,
        seen: Seen,
        refused: Option<&str>,
    ) -> UnitView<'a> {
        let refused = refused.map(str::to_owned);
        UnitView { cluster, id, record, seen, refused, away_since: None }
    }

    fn look(east: (Seen, Option<&str>), west: Seen, leftover: bool) -> Outlook {
        let (one, two, old) =
            (unit("east", "r2", true), unit("west", "r2", true), unit("far", "r1", false));
        let (seen, refused) = east;
        let mut units = vec![
            view("east", "d.A..east", &one, seen, refused),
            view("west", "d.A..west", &two, west, None),
        ];
        if leftover {
            units.push(view("far", "d.A..far", &old, Seen::Unknown, None));
        }
        let now = parse(SINCE).unwrap() + 1000;
        outlook(&record(), &units, now, Limits::default())
    }

    #[test]
    fn what_has_failed_takes_nothing_away_before_it_goes_back() {
        let failed = look((seen("Progressing", 2), Some("no")), seen("Available", 2), true);
        assert!(matches!(failed.transition, Some(Transition::RollBack { .. })), "{failed:?}");
        assert!(failed.hold_deploys && failed.hold_deletes, "{failed:?}");
    }

    #[test]
    fn all_or_nothing_waits_for_all_whether_or_not_it_goes_back() {
        let mut record = record();
        record.deployment.rollback_on_failure = Some(false);
        let units = ["east", "west"].map(|cluster| {
            let sent = UnitRecord { taken: None, ..unit(cluster, "r2", true) };
            (cluster, format!("d.A..{cluster}"), sent)
        });
        let views = |east: Seen, refused: Option<&str>| -> Vec<UnitView<'_>> {
            let seen = [east, Seen::Absent].into_iter();
            let all = units.iter().zip(seen);
            all.map(|((cluster, id, record), seen)| view(cluster, id, record, seen, refused))
                .collect()
        };
        let later = parse(SINCE).unwrap() + 10_000_000;
        let away = outlook(&record, &views(Seen::Unknown, None), later, Limits::default());
        assert!(away.hold_deploys && away.hold_deletes && away.transition.is_none(), "{away:?}");
        let failed = outlook(&record, &views(Seen::Absent, Some("no")), later, Limits::default());
        assert_eq!(failed.transition, None);
        assert!(!failed.hold_deploys && failed.hold_deletes, "{failed:?}");
    }

    #[test]
    fn what_is_refused_even_as_it_was_before_ends_no_less() {
        let mut record = record();
        record.stage =
            Stage::RollingBack { since: SINCE.to_owned(), because: "it failed".to_owned() };
        let (one, two) = (unit("east", "r1", true), unit("west", "r1", true));
        let look = |seen: Seen, refused| {
            let units = [
                view("east", "d.A..east", &one, seen, refused),
                view("west", "d.A..west", &two, self::seen("Progressing", 2), None),
            ];
            outlook(&record, &units, 0, Limits::default()).transition
        };
        assert_eq!(look(Seen::Absent, None), None);
        assert_eq!(look(Seen::Unknown, Some("no")), None);
        assert_eq!(look(Seen::Absent, Some("no")), Some(Transition::RolledBack));
    }

    #[test]
    fn a_status_of_before_fails_nothing() {
        let fresh = look((seen("Degraded", 1), None), seen("Available", 2), false);
        assert_eq!(fresh.transition, None);
        let stale = look((seen("Degraded", 2), None), seen("Available", 2), false);
        assert!(matches!(stale.transition, Some(Transition::RollBack { .. })), "{stale:?}");
    }

    #[test]
    fn what_runs_has_succeeded_whatever_is_left_of_before() {
        let done = look((seen("Available", 2), None), seen("Available", 2), true);
        assert_eq!(done.transition, Some(Transition::Settle));
    }
}
