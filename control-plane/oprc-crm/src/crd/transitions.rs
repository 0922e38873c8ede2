//! Transitions of a ClassRuntime's status, and which changes are worth a write.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use oprc_unit::truncate_message;

use super::{ClassRuntimeStatus, Phase};
use crate::reason::{MessageChange, Reason};

/// Every function has its required replicas, of whatever generation.
pub const AVAILABLE: &str = "Available";
pub const PROGRESSING: &str = "Progressing";
pub const DEGRADED: &str = "Degraded";
/// An autoscaler of another owner scales the class.
pub const FOREIGN_AUTOSCALER: &str = "ForeignAutoscaler";
/// False if `max_concurrency` isn't enforced.
pub const CONCURRENCY_LIMITED: &str = "ConcurrencyLimited";

/// The conditions that the reconciler applies. Others belong to other field managers.
pub const OWNED_CONDITIONS: [&str; 5] =
    [AVAILABLE, PROGRESSING, DEGRADED, FOREIGN_AUTOSCALER, CONCURRENCY_LIMITED];

/// The data grid's entry in `stable_since`. No function can have this key.
pub const GRID_STABILITY_KEY: &str = "addon:odgm";
/// Its former entry, which a function with that key shared.
const FORMER_GRID_STABILITY_KEY: &str = "odgm";

const SERVING: &str = "every function has its required replicas";

impl Phase {
    /// On the way to Available, without a failure.
    pub fn is_in_progress(self) -> bool {
        matches!(self, Self::Pending | Self::Applying | Self::Progressing)
    }
}

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
        own
    }

    /// Moves the record of the data grid to its present key.
    pub fn migrate_stability_key(&mut self) {
        if self.odgm.is_none() || self.stable_since.contains_key(GRID_STABILITY_KEY) {
            return;
        }
        let shared = self.functions.iter().any(|it| it.key == FORMER_GRID_STABILITY_KEY);
        let since = if shared {
            self.stable_since.get(FORMER_GRID_STABILITY_KEY).cloned()
        } else {
            self.stable_since.remove(FORMER_GRID_STABILITY_KEY)
        };
        self.stable_since.extend(since.map(|since| (GRID_STABILITY_KEY.to_owned(), since)));
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
        self.degrade(reason, message, now);
        if serving {
            self.set_condition(AVAILABLE, true, Reason::Available, SERVING, now);
        } else {
            self.set_condition(AVAILABLE, false, reason, message, now);
        }
    }

    /// An earlier specification runs in place of the latest.
    pub fn mark_rolled_back(&mut self, message: &str, now: Timestamp) {
        self.degrade(Reason::RolledBack, message, now);
        self.set_condition(AVAILABLE, true, Reason::RolledBack, message, now);
    }

    pub fn mark_deleting(&mut self, message: &str, now: Timestamp) {
        self.set_phase(Phase::Deleting, Reason::Deleting, message);
        self.set_condition(AVAILABLE, false, Reason::Deleting, message, now);
        self.set_condition(PROGRESSING, true, Reason::Deleting, message, now);
    }

    fn degrade(&mut self, reason: Reason, message: &str, now: Timestamp) {
        self.set_phase(Phase::Degraded, reason, message);
        self.set_condition(PROGRESSING, false, reason, "", now);
        self.set_condition(DEGRADED, true, reason, message, now);
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
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: truncate_message(message),
            last_transition_time: since,
            observed_generation: self.observed_generation,
        };
        match self.conditions.iter_mut().find(|it| it.type_ == type_) {
            Some(place) => *place = condition,
            None => self.conditions.push(condition),
        }
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
            let mut same = old.owned_by_reconciler();
            same.last_updated.clone_from(&self.last_updated);
            same.copy_immaterial_messages_from(self);
            return *self != same;
        }
        let conditions = |status: &Self| {
            let own = status.conditions.iter();
            let own = own.filter(|it| OWNED_CONDITIONS.contains(&it.type_.as_str()));
            own.map(|it| {
                (it.type_.clone(), it.status.clone(), it.reason.clone(), it.observed_generation)
            })
            .collect::<Vec<_>>()
        };
        let functions = |status: &Self| {
            let all = status.functions.iter();
            all.map(|it| (it.key.clone(), it.reason.clone())).collect::<Vec<_>>()
        };
        // A new address can wait until all are known; one that was reported must not be wrong.
        let address_changed = old.functions.iter().any(|before| {
            before.url.is_some()
                && self.functions.iter().any(|it| it.key == before.key && it.url != before.url)
        });
        let odgm = |status: &Self| {
            status
                .odgm
                .as_ref()
                .map(|it| (it.service.clone(), it.collections.clone(), it.reason.clone()))
        };
        self.observed_generation != old.observed_generation
            || (self.phase == Phase::Pending) != (old.phase == Phase::Pending)
            || conditions(self) != conditions(old)
            || functions(self) != functions(old)
            || address_changed
            || odgm(self) != odgm(old)
            || self.selection != old.selection
            || self.kept_collections != old.kept_collections
            || self.kept_nodes != old.kept_nodes
            || self.replaced != old.replaced
            || self.rolled_back != old.rolled_back
            || self.progress_since != old.progress_since
    }

    /// Takes over the messages whose change isn't worth a write.
    fn copy_immaterial_messages_from(&mut self, new: &Self) {
        let copy = |reasons: [Option<&str>; 2], own: &mut Option<String>, its: &Option<String>| {
            let [Some(reason), Some(same)] = reasons else { return };
            let (left, right) = (own.as_deref(), its.as_deref());
            if reason == same
                && is_immaterial(reason, left.unwrap_or_default(), right.unwrap_or_default())
            {
                own.clone_from(its);
            }
        };
        if self.phase == new.phase {
            let reasons = [self.reason.as_deref(), new.reason.as_deref()];
            copy(reasons, &mut self.message, &new.message);
        }
        for (own, its) in self.conditions.iter_mut().zip(&new.conditions) {
            if own.type_ == its.type_
                && own.status == its.status
                && own.reason == its.reason
                && is_immaterial(&own.reason, &own.message, &its.message)
            {
                own.message.clone_from(&its.message);
            }
        }
        for (own, its) in self.functions.iter_mut().zip(&new.functions) {
            if own.key == its.key {
                copy(
                    [own.reason.as_deref(), its.reason.as_deref()],
                    &mut own.message,
                    &its.message,
                );
            }
        }
        if let (Some(own), Some(its)) = (&mut self.odgm, &new.odgm) {
            copy([own.reason.as_deref(), its.reason.as_deref()], &mut own.message, &its.message);
        }
    }
}

/// Whether a changed message of the same reason isn't worth a write: each write leads to another
/// reconcile.
fn is_immaterial(reason: &str, left: &str, right: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = &str> {
        let all = text.split(|it: char| !it.is_alphanumeric());
        all.filter(|word| !word.contains(|it: char| it.is_ascii_digit()))
    }
    match Reason::parse(reason).map(Reason::message_change) {
        Some(MessageChange::Volatile) => true,
        Some(MessageChange::NumbersVary) => words(left).eq(words(right)),
        Some(MessageChange::Significant) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::FunctionStatus;
    use oprc_unit::MAX_MESSAGE;

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
            failing(Reason::ApiServerFails, &format!("500: tcp 10.0.0.5:{port}: reset"))
        };
        assert!(!reset(1).differs_materially_from(Some(&reset(2))));
        let other = failing(Reason::ApiServerFails, "500: tcp 10.0.0.5:1: refused");
        assert!(other.differs_materially_from(Some(&reset(1))));

        // Other messages count.
        let before = failing(Reason::NameTaken, "Service a");
        assert!(failing(Reason::NameTaken, "Service b").differs_materially_from(Some(&before)));
    }

    #[test]
    fn long_messages_are_cut() {
        let status = failing(Reason::Rejected, &"é".repeat(1_000_000));
        assert!(status.message.unwrap().chars().count() <= MAX_MESSAGE + 1);
        assert!(status.conditions.iter().all(|it| it.message.chars().count() <= MAX_MESSAGE + 1));
    }

    #[test]
    fn the_grids_stability_record_gets_its_own_key() {
        let since = Time(Timestamp::UNIX_EPOCH);
        let with = |function: &str| {
            let mut status = ClassRuntimeStatus {
                functions: vec![FunctionStatus {
                    key: function.to_owned(),
                    ..FunctionStatus::default()
                }],
                odgm: Some(crate::crd::OdgmStatus::default()),
                stable_since: [("odgm".to_owned(), since.clone())].into(),
                ..ClassRuntimeStatus::default()
            };
            status.migrate_stability_key();
            status.stable_since.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(with("f"), [GRID_STABILITY_KEY]);
        assert_eq!(with("odgm"), [GRID_STABILITY_KEY, "odgm"]);
    }

    #[test]
    fn conditions_of_other_managers_are_neither_applied_nor_compared() {
        let mut old = failing(Reason::CrashLoop, "pod a-1");
        let new = old.clone();
        let condition = Condition { type_: "NfrObserved".to_owned(), ..old.conditions[0].clone() };
        old.conditions.push(condition);
        old.last_applied_at = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(old.owned_by_reconciler(), new);
        assert!(!new.differs_materially_from(Some(&old)));
    }
}
