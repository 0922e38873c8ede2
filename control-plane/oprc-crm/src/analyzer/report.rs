//! What a pass writes: transitions only, so that nothing is written while nothing changes.

use std::collections::BTreeSet;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use oprc_nfr::compliance::{RequirementKind, State};
use oprc_unit::{spec::EnforcementMode, truncate_message};

use super::{
    enforce::Enforced,
    evaluate::{has_requirements, is_measured, requested_mode, stored_entry},
};
use crate::{
    controller::NfrStatus,
    crd::{
        ComplianceState, NFR_ENFORCED, NFR_OBSERVED, NfrChange, PROMETHEUS_DISABLED,
        RequirementStatus,
    },
    observations::{FunctionObservation, Observations, RequirementVerdict},
    reason::Reason,
    reconcile::{EventRecord, ObservedClass},
};

/// The conditions that the analyzer sets.
const OWN_CONDITIONS: [&str; 3] = [NFR_OBSERVED, NFR_ENFORCED, PROMETHEUS_DISABLED];

/// The outcome of a pass.
#[derive(Clone, Debug)]
pub(super) enum Finding {
    Disabled(Disabled),
    Measured {
        missing: Option<MissingAnswer>,
    },
    /// `persists` says whether earlier passes failed as well.
    Failed {
        error: String,
        persists: bool,
    },
}

/// A query about requests has no answer.
#[derive(Clone, Debug)]
pub(super) struct MissingAnswer {
    pub(super) error: String,
    /// Whether earlier passes had none as well.
    pub(super) persists: bool,
}

/// Why metrics aren't read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disabled {
    NotConfigured,
    /// The cluster lacks the kinds of the Prometheus Operator by which functions would be scraped.
    MissingCrds,
}

impl Disabled {
    fn message(self) -> &'static str {
        match self {
            Self::NotConfigured => {
                "CRM reads no metrics: set prometheus.url, and features.prometheus if it is off"
            }
            Self::MissingCrds => {
                "CRM reads no metrics: the cluster lacks the monitors of the Prometheus Operator; \
                 install it, or set prometheus.scrape_kind to none if scraping is arranged elsewhere"
            }
        }
    }
}

/// A status that differs from the stored one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    pub(super) status: NfrStatus,
    pub(super) transitions: Vec<Transition>,
    /// Changes by enforcement, with their Events.
    pub(super) applied: Vec<(NfrChange, EventRecord)>,
    /// Out-of-memory kills.
    pub(super) oom_kills: Vec<EventRecord>,
}

/// A requirement that is violated now, or met again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transition {
    pub(super) function: String,
    pub(super) kind: RequirementKind,
    pub(super) event: EventRecord,
}

/// None if the stored status is right.
pub(super) fn plan_report(
    class: &ObservedClass,
    observations: &Observations,
    finding: &Finding,
    mut enforced: Enforced,
    now: Timestamp,
) -> Option<Report> {
    if class.deleting.is_some() {
        return None;
    }
    let key = (class.namespace.clone(), class.name.clone());
    let functions = observations.class(&key).into_iter().flatten();
    let verdicts: Vec<_> = functions
        .flat_map(|(key, function): (&String, &FunctionObservation)| {
            let is_serving = function.is_serving;
            function.requirements.iter().map(move |verdict| (key.as_str(), is_serving, verdict))
        })
        .collect();
    let stored = stored_status(class);
    let (mut status, transitions) = match finding {
        // Without measurements there is no compliance to report. What was applied stays.
        Finding::Disabled(disabled) if is_measured(class) && has_requirements(class) => {
            let conditions = disabled_conditions(class, *disabled, now);
            (NfrStatus { conditions, ..NfrStatus::default() }, Vec::new())
        }
        Finding::Disabled(_) => Default::default(),
        // Nothing is required, or nothing may be measured.
        Finding::Measured { .. } if verdicts.is_empty() => Default::default(),
        Finding::Measured { missing } => {
            let mut entries = Vec::new();
            let mut transitions = Vec::new();
            for (function, is_serving, verdict) in &verdicts {
                let kind = verdict.requirement.kind();
                let before = stored_entry(class, function, kind);
                // A function that starts or is scaled to zero has no metrics.
                let entry = entry(function, verdict, before, missing.is_none() && *is_serving);
                transitions.extend(transition(&entry, kind, before));
                entries.push(entry);
            }
            let is_unknown = verdicts.iter().any(|(_, is_serving, verdict)| {
                *is_serving && matches!(verdict.verdict.state, State::Unknown(_))
            });
            let conditions = match missing {
                Some(MissingAnswer { error, persists: true }) if is_unknown => {
                    let failure = (false, Reason::PrometheusUnavailable, error.clone());
                    enforced.condition = enforced.condition.map(|_| failure);
                    let failure = (false, Reason::PrometheusUnavailable, error.as_str());
                    vec![condition(class, NFR_OBSERVED, failure, now)]
                }
                _ => observed_condition(class, &entries, missing.is_none(), now),
            };
            (NfrStatus { conditions, nfr_compliance: entries, ..NfrStatus::default() }, transitions)
        }
        Finding::Failed { .. } if !is_measured(class) => Default::default(),
        // What was measured last is still the best that is known.
        Finding::Failed { error, persists } => {
            if !persists || !has_requirements(class) {
                return None;
            }
            let conditions =
                unmeasured_conditions(class, Reason::PrometheusUnavailable, error, now);
            (NfrStatus { conditions, ..stored.clone() }, Vec::new())
        }
    };
    let applied = enforced.changes.iter().cloned().zip(enforced.events()).collect();
    if let Some((is_true, reason, message)) = &enforced.condition {
        let enforced = condition(class, NFR_ENFORCED, (*is_true, *reason, message), now);
        status.conditions.push(enforced);
    }
    status.nfr_recommendations = enforced.recommendations;
    status.last_applied_recommendations = enforced.applied;
    status.last_applied_at = enforced.last_applied_at;
    status.nfr_history = enforced.history;
    status.oom_kills = enforced.oom_kills;
    let conditions = std::mem::take(&mut status.conditions);
    let differs = !same_conditions(&conditions, &stored.conditions)
        || status != NfrStatus { conditions: Vec::new(), ..stored };
    status.conditions = conditions;
    let oom_kills = enforced.new_kills;
    differs.then_some(Report { status, transitions, applied, oom_kills })
}

/// The part of the stored status that the analyzer owns.
fn stored_status(class: &ObservedClass) -> NfrStatus {
    let Some(status) = &class.status else { return NfrStatus::default() };
    let own = |it: &&Condition| OWN_CONDITIONS.contains(&it.type_.as_str());
    NfrStatus {
        conditions: status.conditions.iter().filter(own).cloned().collect(),
        nfr_compliance: status.nfr_compliance.clone(),
        nfr_recommendations: status.nfr_recommendations.clone(),
        last_applied_recommendations: status.last_applied_recommendations.clone(),
        last_applied_at: status.last_applied_at.clone(),
        nfr_history: status.nfr_history.clone(),
        oom_kills: status.oom_kills.clone(),
    }
}

fn disabled_conditions(
    class: &ObservedClass,
    disabled: Disabled,
    now: Timestamp,
) -> Vec<Condition> {
    let message = disabled.message();
    let mut conditions = unmeasured_conditions(class, Reason::PrometheusDisabled, message, now);
    if disabled == Disabled::MissingCrds {
        let missing = (true, Reason::MissingCRDs, message);
        conditions.push(condition(class, PROMETHEUS_DISABLED, missing, now));
    }
    conditions
}

/// What isn't measured isn't enforced either.
fn unmeasured_conditions(
    class: &ObservedClass,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let is_enforced = requested_mode(class) == EnforcementMode::Enforce;
    let types = [NFR_OBSERVED].into_iter().chain(is_enforced.then_some(NFR_ENFORCED));
    types.map(|type_| condition(class, type_, (false, reason, message), now)).collect()
}

/// Messages contain errors and names, which change more often than the state.
fn same_conditions(left: &[Condition], right: &[Condition]) -> bool {
    let essence = |all: &[Condition]| -> BTreeSet<_> {
        let parts = |it: &Condition| (it.type_.clone(), it.status.clone(), it.reason.clone());
        all.iter().map(parts).collect()
    };
    essence(left) == essence(right)
}

/// The stored entry if there is no transition.
fn entry(
    function: &str,
    found: &RequirementVerdict,
    before: Option<&RequirementStatus>,
    complete: bool,
) -> RequirementStatus {
    let RequirementVerdict { requirement, required, verdict, .. } = found;
    let state = ComplianceState::from(verdict.state);
    let reason = match verdict.state {
        State::Unknown(reason) => Some(reason.as_str().to_owned()),
        State::Met | State::Violated => None,
    };
    // The API server stores times with seconds.
    let since = Timestamp::from_second(verdict.since.div_euclid(1000)).unwrap_or_default();
    let new = RequirementStatus {
        function: function.to_owned(),
        requirement: requirement.kind().as_str().to_owned(),
        state,
        reason,
        since: Time(since),
        required: *required,
        observed: verdict.observed.map(round),
    };
    let unchanged = |before: &&RequirementStatus| {
        let same = before.required.total_cmp(required).is_eq() && before.state == state;
        // An unknown value that may exist changes nothing.
        same && before.since == new.since || state == ComplianceState::Unknown && !complete
    };
    before.filter(unchanged).cloned().unwrap_or(new)
}

fn round(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

fn transition(
    entry: &RequirementStatus,
    kind: RequirementKind,
    before: Option<&RequirementStatus>,
) -> Option<Transition> {
    let was_violated = before.is_some_and(|before| before.state == ComplianceState::Violated);
    let (reason, warning) = match entry.state {
        ComplianceState::Violated if !was_violated => (Reason::NFRViolated, true),
        ComplianceState::Met if was_violated => (Reason::NFRRecovered, false),
        _ => return None,
    };
    let RequirementStatus { function, required, observed, since, .. } = entry;
    let observed = observed.map_or_else(|| "no requests".to_owned(), |it| it.to_string());
    let name = kind.as_str();
    let note = match kind {
        RequirementKind::Throughput => {
            format!("{function}: {name}: {observed} requests/s served, {required} required")
        }
        RequirementKind::Latency => {
            format!("{function}: {name}: p95 is {observed} ms, at most {required} ms required")
        }
        RequirementKind::Availability => {
            format!("{function}: {name}: {observed} of requests served, {required} required")
        }
        RequirementKind::HardLatency => {
            format!("{function}: {name}: {observed} requests/s took longer than {required} ms")
        }
    };
    let note = format!("{note} (since {})", since.0);
    let event = EventRecord { warning, reason, note };
    Some(Transition { function: function.clone(), kind, event })
}

fn observed_condition(
    class: &ObservedClass,
    entries: &[RequirementStatus],
    complete: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let unknown = entries.iter().filter(|it| it.state == ComplianceState::Unknown);
    let unknown: Vec<_> =
        unknown.map(|it| format!("{} ({})", it.function, it.requirement)).collect();
    if unknown.is_empty() {
        let message = "all requirements are measured";
        return vec![condition(class, NFR_OBSERVED, (true, Reason::Measured, message), now)];
    }
    if !complete {
        let mut stored = stored_status(class).conditions;
        stored.retain(|it| it.type_ == NFR_OBSERVED);
        return stored;
    }
    let message = format!("no current metrics for {}", unknown.join(", "));
    vec![condition(class, NFR_OBSERVED, (false, Reason::NoData, &message), now)]
}

fn condition(
    class: &ObservedClass,
    type_: &str,
    (is_true, reason, message): (bool, Reason, &str),
    now: Timestamp,
) -> Condition {
    let status = if is_true { "True" } else { "False" };
    let stored = stored_status(class).conditions;
    let before = stored.into_iter().find(|it| it.type_ == type_ && it.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.as_str().to_owned(),
        message: truncate_message(message),
        last_transition_time: before.map_or(Time(now), |before| before.last_transition_time),
        observed_generation: Some(class.generation),
    }
}
