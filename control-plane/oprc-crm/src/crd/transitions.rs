//! How a status goes from one phase to another, and when that is worth a write.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use oprc_unit::truncate_message;

use super::{ClassRuntimeStatus, Phase};

/// Conditions of every class.
pub const AVAILABLE: &str = "Available";
/// Whether something is under way.
pub const PROGRESSING: &str = "Progressing";
/// Whether something is wrong.
pub const DEGRADED: &str = "Degraded";
/// Whether a user's own autoscaler scales the class.
pub const FOREIGN_AUTOSCALER: &str = "ForeignAutoscaler";
/// Whether limits on calls at once are kept.
pub const CONCURRENCY_LIMITED: &str = "ConcurrencyLimited";

/// What pods and quotas say with figures and made-up names in it. While the reason is the same,
/// other words aren't news.
const IN_OTHER_WORDS: [&str; 6] = [
    "ContainerNotCreated",
    "CrashLoop",
    "ImagePullFailed",
    "PodsNotCreated",
    "QuotaExceeded",
    "Unschedulable",
];

/// What the API server and those it asks say, now and then with numbers of requests and connections
/// in it. While the reason is the same, other numbers aren't news: each would be another write, and
/// another look at the class because of that.
const WITH_NUMBERS: [&str; 4] = ["ApiServerFails", "Conflict", "Forbidden", "Rejected"];

/// Whether two sentences for the same reason say the same.
fn no_news(reason: &str, left: &str, right: &str) -> bool {
    fn words(text: &str) -> impl Iterator<Item = &str> {
        let all = text.split(|it: char| !it.is_alphanumeric());
        all.filter(|word| !word.contains(|it: char| it.is_ascii_digit()))
    }
    IN_OTHER_WORDS.contains(&reason)
        || WITH_NUMBERS.contains(&reason) && words(left).eq(words(right))
}

impl ClassRuntimeStatus {
    /// It is in a phase, and why.
    pub fn enter(&mut self, phase: Phase, reason: &str, message: &str) {
        self.phase = phase;
        self.reason = Some(reason.to_owned());
        self.message = Some(truncate_message(message));
    }

    /// Everything is ready.
    pub fn become_available(&mut self, now: Timestamp) {
        self.enter(Phase::Available, "Available", "everything is ready");
        self.set(AVAILABLE, true, "Available", "everything is ready", now);
        self.set(PROGRESSING, false, "Complete", "", now);
        self.set(DEGRADED, false, "AsExpected", "", now);
    }

    /// It is on its way. `missing` says what keeps it from being Available.
    pub fn progress(&mut self, message: &str, missing: &str, now: Timestamp) {
        self.enter(Phase::Progressing, "Progressing", message);
        self.set(AVAILABLE, false, "Progressing", missing, now);
        self.set(PROGRESSING, true, "Progressing", "objects are written", now);
        self.set(DEGRADED, false, "AsExpected", "", now);
    }

    /// Something is wrong, and it isn't Available.
    pub fn fail(&mut self, reason: &str, message: &str, now: Timestamp) {
        self.degrade(reason, message, now);
        self.set(AVAILABLE, false, reason, message, now);
    }

    /// A former specification runs, in place of one that missed its deadline.
    pub fn run_as_before(&mut self, message: &str, now: Timestamp) {
        self.degrade("RolledBack", message, now);
        self.set(AVAILABLE, true, "RolledBack", message, now);
    }

    /// It is going.
    pub fn go(&mut self, message: &str, now: Timestamp) {
        self.enter(Phase::Deleting, "Deleting", message);
        self.set(AVAILABLE, false, "Deleting", message, now);
        self.set(PROGRESSING, true, "Deleting", message, now);
    }

    fn degrade(&mut self, reason: &str, message: &str, now: Timestamp) {
        self.enter(Phase::Degraded, reason, message);
        self.set(PROGRESSING, false, reason, "", now);
        self.set(DEGRADED, true, reason, message, now);
    }

    /// Says whether a condition holds, and since when.
    pub fn set(&mut self, type_: &str, holds: bool, reason: &str, message: &str, now: Timestamp) {
        let status = if holds { "True" } else { "False" };
        let before = self.conditions.iter().find(|it| it.type_ == type_ && it.status == status);
        let since = before.map_or(Time(now), |before| before.last_transition_time.clone());
        let condition = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
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

    /// Says nothing of a condition any more.
    pub fn unset(&mut self, type_: &str) {
        self.conditions.retain(|it| it.type_ != type_);
    }

    /// Whether a condition holds.
    pub fn holds(&self, type_: &str) -> bool {
        self.conditions.iter().any(|it| it.type_ == type_ && it.status == "True")
    }

    /// Whether another status is worth a write. While things are under way only what is decided
    /// counts; figures are told when they have come to rest.
    pub fn worth_writing_over(&self, old: Option<&Self>) -> bool {
        let Some(old) = old else { return true };
        if self.phase != Phase::Progressing || old.phase != Phase::Progressing {
            let mut same = old.clone();
            same.last_updated.clone_from(&self.last_updated);
            same.take_words_of(self);
            return *self != same;
        }
        let conditions = |status: &Self| {
            let all = status.conditions.iter();
            all.map(|it| {
                (it.type_.clone(), it.status.clone(), it.reason.clone(), it.observed_generation)
            })
            .collect::<Vec<_>>()
        };
        let functions = |status: &Self| {
            let all = status.functions.iter();
            all.map(|it| (it.key.clone(), it.reason.clone())).collect::<Vec<_>>()
        };
        // An address that is there can wait until all are; one that was told can't be wrong.
        let told_otherwise = old.functions.iter().any(|before| {
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
            || conditions(self) != conditions(old)
            || functions(self) != functions(old)
            || told_otherwise
            || odgm(self) != odgm(old)
            || self.selection != old.selection
            || self.kept_collections != old.kept_collections
            || self.kept_nodes != old.kept_nodes
            || self.replaced != old.replaced
            || self.rolled_back != old.rolled_back
            || self.progress_since != old.progress_since
    }

    /// Says in another's words what both say.
    fn take_words_of(&mut self, other: &Self) {
        let take = |reasons: [Option<&str>; 2], own: &mut Option<String>, its: &Option<String>| {
            let [Some(reason), Some(same)] = reasons else { return };
            let (left, right) = (own.as_deref(), its.as_deref());
            if reason == same
                && no_news(reason, left.unwrap_or_default(), right.unwrap_or_default())
            {
                own.clone_from(its);
            }
        };
        if self.phase == other.phase {
            let reasons = [self.reason.as_deref(), other.reason.as_deref()];
            take(reasons, &mut self.message, &other.message);
        }
        for (own, its) in self.conditions.iter_mut().zip(&other.conditions) {
            if own.type_ == its.type_
                && own.status == its.status
                && own.reason == its.reason
                && no_news(&own.reason, &own.message, &its.message)
            {
                own.message.clone_from(&its.message);
            }
        }
        for (own, its) in self.functions.iter_mut().zip(&other.functions) {
            if own.key == its.key {
                take(
                    [own.reason.as_deref(), its.reason.as_deref()],
                    &mut own.message,
                    &its.message,
                );
            }
        }
        if let (Some(own), Some(its)) = (&mut self.odgm, &other.odgm) {
            take([own.reason.as_deref(), its.reason.as_deref()], &mut own.message, &its.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::FunctionStatus;
    use oprc_unit::MAX_MESSAGE;

    fn failing(reason: &str, message: &str) -> ClassRuntimeStatus {
        let mut status = ClassRuntimeStatus {
            functions: vec![FunctionStatus {
                key: "f".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                ..FunctionStatus::default()
            }],
            ..ClassRuntimeStatus::default()
        };
        status.fail(reason, message, Timestamp::UNIX_EPOCH);
        status
    }

    #[test]
    fn the_same_in_other_words_is_no_news() {
        let before = failing("QuotaExceeded", "pods \"a-1\" is forbidden: exceeded quota");
        let after = failing("QuotaExceeded", "pods \"a-2\" is forbidden: exceeded quota");
        assert!(!after.worth_writing_over(Some(&before)));
        assert!(failing("CrashLoop", "pod a-1").worth_writing_over(Some(&before)));

        let reset =
            |port: u16| failing("ApiServerFails", &format!("500: tcp 10.0.0.5:{port}: reset"));
        assert!(!reset(1).worth_writing_over(Some(&reset(2))));
        let other = failing("ApiServerFails", "500: tcp 10.0.0.5:1: refused");
        assert!(other.worth_writing_over(Some(&reset(1))));

        // Where the words are what there is to know, they count.
        let before = failing("NameTaken", "Service a");
        assert!(failing("NameTaken", "Service b").worth_writing_over(Some(&before)));
    }

    #[test]
    fn no_message_is_longer_than_it_may_be() {
        let status = failing("Rejected", &"é".repeat(1_000_000));
        assert!(status.message.unwrap().chars().count() <= MAX_MESSAGE + 1);
        assert!(status.conditions.iter().all(|it| it.message.chars().count() <= MAX_MESSAGE + 1));
    }
}
