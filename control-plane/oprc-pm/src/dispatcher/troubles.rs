//! What went wrong with calls lately, and when to try again. Kept in memory only: whoever starts
//! anew finds out anew.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use backon::ExponentialBackoff;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::unit::{Outcome, Step};
use crate::{clusters::delays, records::UnitRecord};

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// What was done shows in a moment; only if it doesn't is it done again.
const SHOWS: Duration = Duration::from_millis(300);

type Key = (String, String);

/// What went wrong, by cluster and unit.
#[derive(Debug)]
pub struct Troubles {
    all: Mutex<BTreeMap<Key, Trouble>>,
    /// How long after a call that wasn't answered it may still be done.
    unsure: Duration,
    begun: Instant,
    /// Is told whenever something goes wrong in a way that wasn't known.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Trouble {
    /// What was tried: another revision, or taking it away, is another matter.
    revision: String,
    wanted: bool,
    delays: ExponentialBackoff,
    not_before: Instant,
    refused: Option<String>,
    last: String,
    unsure_until: Option<Instant>,
    /// Whether the last call was a Deploy that the cluster took.
    took: bool,
}

impl Trouble {
    fn is_about(&self, record: &UnitRecord) -> bool {
        self.revision == record.revision && self.wanted == record.spec.is_some()
    }
}

impl Troubles {
    /// None yet. A process that ran before may have made calls that aren't done yet.
    pub fn new(unsure: Duration) -> Self {
        let (all, changes) = (Mutex::default(), watch::Sender::new(0));
        Self { all, unsure, begun: Instant::now(), changes }
    }

    /// Is told whenever something goes wrong in a way that wasn't known, or doesn't any more.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Trouble>> {
        self.all.lock()
    }

    /// When a call may be made for a unit, if not now.
    pub(super) fn not_before(&self, key: &Key, record: &UnitRecord) -> Option<Instant> {
        let all = self.all();
        all.get(key).filter(|trouble| trouble.is_about(record)).map(|trouble| trouble.not_before)
    }

    /// Why a cluster won't have a unit as it is to be.
    pub fn refused(&self, key: &Key, record: &UnitRecord) -> Option<String> {
        let all = self.all();
        all.get(key)
            .filter(|trouble| trouble.is_about(record))
            .and_then(|trouble| trouble.refused.clone())
    }

    /// What went wrong last.
    pub fn last(&self, key: &Key, record: &UnitRecord) -> Option<String> {
        let all = self.all();
        let trouble = all.get(key).filter(|trouble| trouble.is_about(record))?;
        Some(trouble.last.clone()).filter(|last| !last.is_empty())
    }

    /// Until when a call of before may still be done, so that what isn't there may yet come.
    pub(super) fn unsure_until(&self, key: &Key, now: Instant) -> Option<Instant> {
        let begun = self.begun + self.unsure;
        let until = self.all().get(key).and_then(|trouble| trouble.unsure_until);
        Some(until.map_or(begun, |until| until.max(begun))).filter(|until| *until > now)
    }

    /// Notes what came of a call.
    pub(super) fn note(&self, key: Key, record: &UnitRecord, step: Step, outcome: &Outcome) {
        self.note_at(Instant::now(), key, record, step, outcome);
    }

    fn note_at(&self, now: Instant, key: Key, record: &UnitRecord, step: Step, outcome: &Outcome) {
        let mut all = self.all();
        let unsure_until = match (step, outcome) {
            (Step::Deploy, Outcome::Failed(_)) => Some(now + self.unsure),
            _ => all.get(&key).and_then(|trouble| trouble.unsure_until),
        };
        let new = || Trouble {
            revision: record.revision.clone(),
            wanted: record.spec.is_some(),
            delays: delays(SHORTEST, LONGEST),
            not_before: now,
            refused: None,
            last: String::new(),
            unsure_until,
            took: false,
        };
        let trouble = all.entry(key).or_insert_with(new);
        let before = (trouble.refused.clone(), trouble.last.clone());
        let failed = matches!(outcome, Outcome::Refused(_) | Outcome::Failed(_));
        // What is taken again and again, and is never as it should be, is as good as failed; what
        // was well for some time in between is a new matter.
        let took = matches!(outcome, Outcome::Took { .. });
        let quiet = trouble.took && now >= trouble.not_before + LONGEST;
        let again = failed || (took && trouble.took);
        let new_matter = !trouble.is_about(record) || quiet || !again;
        if new_matter {
            *trouble = new();
        }
        trouble.unsure_until = unsure_until;
        trouble.took = took;
        match outcome {
            Outcome::Refused(why) => {
                trouble.refused = Some(why.clone());
                trouble.last.clone_from(why);
            }
            Outcome::Failed(why) => trouble.last.clone_from(why),
            _ => {}
        }
        let wait =
            if failed || !new_matter { trouble.delays.next().unwrap_or(LONGEST) } else { SHOWS };
        trouble.not_before = now + wait;
        if before != (trouble.refused.clone(), trouble.last.clone()) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// Has a unit looked at again later.
    pub(super) fn later(&self, key: &Key, until: Instant) {
        if let Some(trouble) = self.all().get_mut(key) {
            trouble.not_before = trouble.not_before.max(until);
        }
    }

    /// There is no such unit any more.
    pub(super) fn forget(&self, key: &Key) {
        self.all().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(revision: &str) -> UnitRecord {
        serde_json::from_value(json!({
            "deployment": "d", "revision": revision, "class": "A", "environment": "",
            "namespace": "", "spec": {}, "correlation_id": "",
        }))
        .unwrap()
    }

    /// How long to wait after a Deploy that was taken at that time.
    fn taken(troubles: &Troubles, record: &UnitRecord, now: Instant) -> Duration {
        let key = ("east".to_owned(), "d.A..east".to_owned());
        let took = Outcome::Took { uid: "u".to_owned(), generation: 1, namespace: String::new() };
        troubles.note_at(now, key.clone(), record, Step::Deploy, &took);
        troubles.not_before(&key, record).unwrap() - now
    }

    #[test]
    fn what_is_taken_in_vain_is_sent_ever_more_seldom() {
        let (troubles, one) = (Troubles::new(Duration::ZERO), record("r1"));
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..10 {
            let wait = taken(&troubles, &one, now);
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits[0], SHOWS);
        assert!(waits[1] >= SHORTEST && waits[9] >= LONGEST, "{waits:?}");
        // Another revision is another matter, and so is what was well for some time.
        let other = record("r2");
        assert_eq!(taken(&troubles, &other, now), SHOWS);
        now += SHOWS;
        assert!(taken(&troubles, &other, now) > SHOWS);
        assert_eq!(taken(&troubles, &other, now + LONGEST * 4), SHOWS);
    }
}
