//! Failures of calls and when to retry them. Kept in memory only: a new process starts afresh.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use backon::ExponentialBackoff;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::sync::watch;

use crate::{
    backoff::delays,
    rollout::{CallOutcome, Step, UnitKey, UnitRecord},
};

const MIN_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The effect of a call shows on the watch within this time; otherwise it is repeated.
const SETTLE_DELAY: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct CallBackoff {
    units: Mutex<BTreeMap<UnitKey, CallHistory>>,
    /// How long a call that was not answered may still be executed.
    in_doubt: Duration,
    started: Instant,
    changes: watch::Sender<u64>,
}

/// Consecutive calls for the same revision of a unit.
#[derive(Debug)]
struct CallHistory {
    revision: String,
    /// Whether the calls deploy the unit instead of deleting it.
    desired: bool,
    delays: ExponentialBackoff,
    next_call: Instant,
    /// Whether the last call was accepted.
    accepted: bool,
    rejection: Option<String>,
    last_error: Option<String>,
    in_doubt_until: Option<Instant>,
}

impl CallHistory {
    fn new(record: &UnitRecord, now: Instant) -> Self {
        Self {
            revision: record.revision.clone(),
            desired: record.desired,
            delays: delays(MIN_DELAY, MAX_DELAY),
            next_call: now,
            accepted: false,
            rejection: None,
            last_error: None,
            in_doubt_until: None,
        }
    }

    fn is_about(&self, record: &UnitRecord) -> bool {
        self.revision == record.revision && self.desired == record.desired
    }

    /// Whether a call continues the history. A unit that is accepted repeatedly but never converges
    /// backs off like a failure; a quiet period after an accepted call ends the history.
    fn is_continued_by(&self, outcome: &CallOutcome, now: Instant) -> bool {
        if self.accepted && now >= self.next_call + MAX_DELAY {
            return false;
        }
        match outcome {
            CallOutcome::Rejected(_) | CallOutcome::Failed(_) => true,
            CallOutcome::Accepted(_) => self.accepted,
            CallOutcome::Terminating | CallOutcome::NotFound => false,
        }
    }

    fn record(&mut self, outcome: &CallOutcome, continued: bool, now: Instant) {
        self.accepted = matches!(outcome, CallOutcome::Accepted(_));
        if let CallOutcome::Rejected(why) = outcome {
            self.rejection = Some(why.clone());
        }
        let wait = match outcome {
            CallOutcome::Rejected(why) | CallOutcome::Failed(why) => {
                self.last_error = Some(why.clone());
                self.delays.next()
            }
            CallOutcome::Accepted(_) if continued => self.delays.next(),
            _ => Some(SETTLE_DELAY),
        };
        self.next_call = now + wait.unwrap_or(MAX_DELAY);
    }
}

impl CallBackoff {
    /// Calls of a former process are in doubt for `in_doubt` from now.
    pub fn new(in_doubt: Duration) -> Self {
        let (units, changes) = (Mutex::default(), watch::Sender::new(0));
        Self { units, in_doubt, started: Instant::now(), changes }
    }

    /// Notified when the errors of a unit change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn history(
        &self,
        key: &UnitKey,
        record: &UnitRecord,
    ) -> Option<MappedMutexGuard<'_, CallHistory>> {
        let history = MutexGuard::try_map(self.units.lock(), |units| units.get_mut(key)).ok()?;
        history.is_about(record).then_some(history)
    }

    /// The earliest time of the next call.
    pub(super) fn next_call(&self, key: &UnitKey, record: &UnitRecord) -> Option<Instant> {
        Some(self.history(key, record)?.next_call)
    }

    /// Why the cluster rejects the unit as it is desired.
    pub fn rejection(&self, key: &UnitKey, record: &UnitRecord) -> Option<String> {
        self.history(key, record)?.rejection.clone()
    }

    pub fn last_error(&self, key: &UnitKey, record: &UnitRecord) -> Option<String> {
        self.history(key, record)?.last_error.clone()
    }

    /// Until when an earlier Deploy may still be executed, so that an absent unit may yet appear.
    pub(super) fn in_doubt_until(&self, key: &UnitKey, now: Instant) -> Option<Instant> {
        let former_process = self.started + self.in_doubt;
        let until = self.units.lock().get(key).and_then(|history| history.in_doubt_until);
        until.max(Some(former_process)).filter(|until| *until > now)
    }

    pub(super) fn record(
        &self,
        now: Instant,
        key: UnitKey,
        record: &UnitRecord,
        step: Step,
        outcome: &CallOutcome,
    ) {
        let mut units = self.units.lock();
        let history = units.entry(key).or_insert_with(|| CallHistory::new(record, now));
        let errors = (history.rejection.clone(), history.last_error.clone());
        let in_doubt_until = match (step, outcome) {
            (Step::Deploy, CallOutcome::Failed(_)) => Some(now + self.in_doubt),
            _ => history.in_doubt_until,
        };
        let continued = history.is_about(record) && history.is_continued_by(outcome, now);
        if !continued {
            *history = CallHistory::new(record, now);
        }
        history.in_doubt_until = in_doubt_until;
        history.record(outcome, continued, now);
        if errors != (history.rejection.clone(), history.last_error.clone()) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    pub(super) fn postpone(&self, key: &UnitKey, until: Instant) {
        if let Some(history) = self.units.lock().get_mut(key) {
            history.next_call = history.next_call.max(until);
        }
    }

    pub(super) fn remove(&self, key: &UnitKey) {
        self.units.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollout::Acknowledged;

    fn unit(revision: &str) -> UnitRecord {
        serde_json::from_value(json!({
            "deployment": "d", "revision": revision, "class": "A", "environment": "",
            "namespace": "", "desired": true, "correlation_id": "",
        }))
        .unwrap()
    }

    /// The delay after a call with this outcome.
    fn delay(
        backoff: &CallBackoff,
        unit: &UnitRecord,
        outcome: &CallOutcome,
        now: Instant,
    ) -> Duration {
        let key = ("east".to_owned(), "d.A..east".to_owned());
        backoff.record(now, key.clone(), unit, Step::Deploy, outcome);
        backoff.next_call(&key, unit).unwrap() - now
    }

    fn accepted() -> CallOutcome {
        CallOutcome::Accepted(Acknowledged {
            revision: "r".to_owned(),
            uid: "u".to_owned(),
            generation: 1,
            namespace: String::new(),
        })
    }

    #[test]
    fn backs_off_when_a_unit_never_converges() {
        let (backoff, first) = (CallBackoff::new(Duration::ZERO), unit("r1"));
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = delay(&backoff, &first, &accepted(), now);
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits[0], SETTLE_DELAY);
        assert!(waits[1] >= MIN_DELAY && waits[9] >= MAX_DELAY, "{waits:?}");
        // Another revision starts afresh, and so does a quiet period.
        let other = unit("r2");
        assert_eq!(delay(&backoff, &other, &accepted(), now), SETTLE_DELAY);
        now += SETTLE_DELAY;
        assert!(delay(&backoff, &other, &accepted(), now) > SETTLE_DELAY);
        assert_eq!(delay(&backoff, &other, &accepted(), now + MAX_DELAY * 4), SETTLE_DELAY);
    }

    #[test]
    fn rejection_is_kept_until_a_call_is_accepted() {
        let (backoff, unit, now) = (CallBackoff::new(Duration::ZERO), unit("r"), Instant::now());
        let key = ("east".to_owned(), "d.A..east".to_owned());
        delay(&backoff, &unit, &CallOutcome::Rejected("no".to_owned()), now);
        delay(&backoff, &unit, &CallOutcome::Failed("lost".to_owned()), now);
        assert_eq!(backoff.rejection(&key, &unit).as_deref(), Some("no"));
        assert_eq!(backoff.last_error(&key, &unit).as_deref(), Some("lost"));
        delay(&backoff, &unit, &accepted(), now);
        assert_eq!(backoff.rejection(&key, &unit), None);
        assert_eq!(backoff.last_error(&key, &unit), None);
    }
}
