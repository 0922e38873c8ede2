//! Transitions of a ClassRuntime's status, and which changes are worth a write.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use oprc_unit::truncate_message;

use super::{ClassRuntimeStatus, FunctionStatus, OdgmStatus, Phase};
use crate::reason::Reason;

/// Every function has its required replicas, of whatever generation.
pub const AVAILABLE: &str = "Available";
pub const PROGRESSING: &str = "Progressing";
pub const DEGRADED: &str = "Degraded";
/// An autoscaler of another owner scales the class.
pub const FOREIGN_AUTOSCALER: &str = "ForeignAutoscaler";
/// Most of the space of the data grid is used.
pub const DATA_GRID_STORAGE_PRESSURE: &str = "DataGridStoragePressure";

/// Whether the requirements of the class are measured. The analyzer sets it.
pub const NFR_OBSERVED: &str = "NfrObserved";
/// Whether enforcement can do what the requirements of the class need. The analyzer sets it.
pub const NFR_ENFORCED: &str = "NfrEnforced";
/// Metrics aren't read, although Prometheus is configured. The analyzer sets it.
pub const PROMETHEUS_DISABLED: &str = "PrometheusDisabled";

/// The conditions that the reconciler sets. Others belong to other field managers.
pub const OWNED_CONDITIONS: [&str; 5] =
    [AVAILABLE, PROGRESSING, DEGRADED, FOREIGN_AUTOSCALER, DATA_GRID_STORAGE_PRESSURE];

/// The data grid among functions. No function can have this key.
pub const GRID_KEY: &str = "addon:odgm";

const SERVING: &str = "every function has its required replicas";

impl ClassRuntimeStatus {
    /// The part of a status that the reconciler applies. To apply more would take fields from their
    /// owners.
    #[must_use]
    pub fn owned_by_reconciler(&self) -> Self {
        let mut own = self.clone();
        own.conditions.retain(|it| OWNED_CONDITIONS.contains(&it.type_.as_str()));
        own.nfr_recommendations.clear();
        own.last_applied_recommendations.clear();
        own.last_applied_at = None;
        own.nfr_history.clear();
        own.nfr_compliance.clear();
        own.oom_kills.clear();
        own
    }

    fn set_phase(&mut self, phase: Phase, reason: Reason, message: &str) {
        self.phase = phase;
        self.reason = Some(reason.as_str().to_owned());
        self.message = Some(truncate_message(message));
    }

    pub fn mark_available(&mut self, now: Timestamp) {
        let message = "all components are ready";
        self.set_phase(Phase::Available, Reason::Available, message);
        self.set_condition(AVAILABLE, true, Reason::Available, message, now);
        self.set_condition(PROGRESSING, false, Reason::Complete, "", now);
        self.set_condition(DEGRADED, false, Reason::AsExpected, "", now);
    }

    /// `missing` says why it isn't Available; none if all functions serve.
    pub fn mark_in_progress(
        &mut self,
        phase: Phase,
        reason: Reason,
        message: &str,
        missing: Option<&str>,
        now: Timestamp,
    ) {
        self.set_phase(phase, reason, message);
        match missing {
            None => self.set_condition(AVAILABLE, true, Reason::Available, SERVING, now),
            Some(it) => self.set_condition(AVAILABLE, false, Reason::Progressing, it, now),
        }
        let (reason, message) = match reason {
            Reason::QuotaExceeded => (reason, message),
            _ => (Reason::Progressing, "the latest specification is being rolled out"),
        };
        self.set_condition(PROGRESSING, true, reason, message, now);
        self.set_condition(DEGRADED, false, Reason::AsExpected, "", now);
    }

    /// `serving` says whether all functions serve nevertheless.
    pub fn mark_degraded(&mut self, reason: Reason, message: &str, serving: bool, now: Timestamp) {
        self.set_phase(Phase::Degraded, reason, message);
        self.set_condition(PROGRESSING, false, reason, "", now);
        self.set_condition(DEGRADED, true, reason, message, now);
        // After a rollback it is an earlier specification that serves.
        let (reason, message) = match reason {
            _ if !serving => (reason, message),
            Reason::RolledBack => (reason, message),
            _ => (Reason::Available, SERVING),
        };
        self.set_condition(AVAILABLE, serving, reason, message, now);
    }

    pub fn mark_deleting(&mut self, message: &str, now: Timestamp) {
        self.set_phase(Phase::Deleting, Reason::Deleting, message);
        self.set_condition(AVAILABLE, false, Reason::Deleting, message, now);
        self.set_condition(PROGRESSING, true, Reason::Deleting, message, now);
    }

    pub fn set_condition(
        &mut self,
        type_: &str,
        is_true: bool,
        reason: Reason,
        message: &str,
        now: Timestamp,
    ) {
        let status = if is_true { "True" } else { "False" };
        let before = self.conditions.iter().find(|it| it.type_ == type_ && it.status == status);
        let since = before.map_or(Time(now), |before| before.last_transition_time.clone());
        self.remove_condition(type_);
        self.conditions.push(Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: truncate_message(message),
            last_transition_time: since,
            observed_generation: self.observed_generation,
        });
        self.conditions.sort_by(|left, right| left.type_.cmp(&right.type_));
    }

    pub fn remove_condition(&mut self, type_: &str) {
        self.conditions.retain(|it| it.type_ != type_);
    }

    pub fn is_true(&self, type_: &str) -> bool {
        self.conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
    }

    /// Whether this status is worth a write. During a rollout only decisions count; counters are
    /// written when it ends.
    pub fn differs_materially_from(&self, old: Option<&Self>) -> bool {
        let Some(old) = old else { return true };
        if !self.phase.is_in_progress() || !old.phase.is_in_progress() {
            return self.material() != old.material();
        }
        // A new address can wait until all are known; one that was reported must not be wrong.
        let address_changed = old.functions.iter().any(|before| {
            before.url.is_some()
                && self.functions.iter().any(|it| it.key == before.key && it.url != before.url)
        });
        address_changed || self.decisions() != old.decisions()
    }

    /// Without changes that aren't worth a write: each write leads to another reconcile.
    fn material(&self) -> Self {
        let mut own = Self { last_updated: None, ..self.owned_by_reconciler() };
        let shorten = |reason: &Option<String>, message: &mut Option<String>| {
            if let (Some(reason), Some(message)) = (reason, message) {
                *message = material_part(reason, message);
            }
        };
        shorten(&own.reason, &mut own.message);
        own.conditions
            .iter_mut()
            .for_each(|it| it.message = material_part(&it.reason, &it.message));
        own.functions.iter_mut().for_each(|it| shorten(&it.reason, &mut it.message));
        own.odgm.iter_mut().for_each(|it| shorten(&it.reason, &mut it.message));
        own
    }

    /// What counts during a rollout.
    fn decisions(&self) -> Self {
        let owned =
            self.conditions.iter().filter(|it| OWNED_CONDITIONS.contains(&it.type_.as_str()));
        let condition = |it: &Condition| Condition {
            message: String::new(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            ..it.clone()
        };
        let function = |it: &FunctionStatus| FunctionStatus {
            key: it.key.clone(),
            reason: it.reason.clone(),
            ..FunctionStatus::default()
        };
        let grid = |it| OdgmStatus { ready: false, replicas: 0, message: None, ..it };
        Self {
            // Whether anything of it exists.
            phase: if self.phase == Phase::Pending { self.phase } else { Phase::Applying },
            observed_generation: self.observed_generation,
            conditions: owned.map(condition).collect(),
            functions: self.functions.iter().map(function).collect(),
            odgm: self.odgm.clone().map(grid),
            selection: self.selection.clone(),
            kept_collections: self.kept_collections.clone(),
            kept_nodes: self.kept_nodes,
            replaced: self.replaced.clone(),
            rolled_back: self.rolled_back,
            progress_since: self.progress_since.clone(),
            ..Self::default()
        }
    }
}

fn material_part(reason: &str, message: &str) -> String {
    Reason::parse(reason).map_or_else(|| message.to_owned(), |it| it.material_part(message))
}

#[cfg(test)]
mod tests {
    use oprc_unit::MAX_MESSAGE;

    use super::*;
    use crate::crd::{ComplianceState, RequirementStatus};

    fn failing(reason: Reason, message: &str) -> ClassRuntimeStatus {
        let mut status = ClassRuntimeStatus {
            functions: vec![FunctionStatus {
                key: "f".to_owned(),
                reason: Some(reason.as_str().to_owned()),
                message: Some(message.to_owned()),
                ..FunctionStatus::default()
            }],
            ..ClassRuntimeStatus::default()
        };
        status.mark_degraded(reason, message, false, Timestamp::UNIX_EPOCH);
        status
    }

    #[test]
    fn changed_words_of_a_volatile_message_are_not_written() {
        let before = failing(Reason::QuotaExceeded, "pods \"a-1\" is forbidden: exceeded quota");
        let after = failing(Reason::QuotaExceeded, "pods \"a-2\" is forbidden: exceeded quota");
        assert!(!after.differs_materially_from(Some(&before)));
        assert!(failing(Reason::CrashLoop, "pod a-1").differs_materially_from(Some(&before)));

        let reset = |port: u16| {
            failing(Reason::ApiServerError, &format!("500: tcp 10.0.0.5:{port}: reset"))
        };
        assert!(!reset(1).differs_materially_from(Some(&reset(2))));
        let other = failing(Reason::ApiServerError, "500: tcp 10.0.0.5:1: refused");
        assert!(other.differs_materially_from(Some(&reset(1))));

        // Other messages count.
        let before = failing(Reason::NameConflict, "Service a");
        assert!(failing(Reason::NameConflict, "Service b").differs_materially_from(Some(&before)));
    }

    #[test]
    fn long_messages_are_cut() {
        let status = failing(Reason::Rejected, &"é".repeat(1_000_000));
        assert!(status.message.unwrap().chars().count() <= MAX_MESSAGE + 1);
        assert!(status.conditions.iter().all(|it| it.message.chars().count() <= MAX_MESSAGE + 1));
    }

    #[test]
    fn conditions_of_other_managers_are_neither_applied_nor_compared() {
        let mut old = failing(Reason::CrashLoop, "pod a-1");
        let new = old.clone();
        let condition = Condition { type_: NFR_OBSERVED.to_owned(), ..old.conditions[0].clone() };
        old.conditions.push(condition);
        old.last_applied_at = Some(Time(Timestamp::UNIX_EPOCH));
        old.nfr_compliance.push(RequirementStatus {
            function: "f".to_owned(),
            requirement: "latency".to_owned(),
            state: ComplianceState::Met,
            reason: None,
            since: Time(Timestamp::UNIX_EPOCH),
            required: 100.0,
            observed: None,
        });
        assert_eq!(old.owned_by_reconciler(), new);
        assert!(!new.differs_materially_from(Some(&old)));
    }
}
