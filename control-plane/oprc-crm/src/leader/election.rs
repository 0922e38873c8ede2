//! What a candidate does next, as a function of what it has seen and when.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// A lease as it was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// Who holds it; empty for nobody.
    pub(super) holder: String,
    /// Its version; none for a lease that isn't there.
    pub(super) version: Option<String>,
    /// How often it has changed hands.
    pub(super) transitions: i32,
    /// Since when its holder has it.
    pub(super) acquired: Option<MicroTime>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Wait for an event, and no longer than until then.
    Wait(Option<Instant>),
    /// Take or renew the lease, if it is still as it was seen.
    Take(Record),
}

/// A candidate's view of the lease.
#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    lease: Duration,
    renew: Duration,
    /// What was seen last, and when it was seen to change.
    seen: Option<(Record, Instant)>,
    /// When the lease was taken or renewed last.
    taken: Option<Instant>,
    /// Nothing is tried before this.
    not_before: Option<Instant>,
    /// Whether the watch has told of a lease since it began.
    told: bool,
}

impl Election {
    pub(super) fn new(identity: String, lease: Duration, renew: Duration) -> Self {
        Self { identity, lease, renew, seen: None, taken: None, not_before: None, told: false }
    }

    /// The watch begins anew: a lease that it doesn't tell of isn't there.
    pub(super) fn begin(&mut self) {
        self.told = false;
    }

    /// The watch has told everything.
    pub(super) fn listed(&mut self, now: Instant) {
        if !self.told {
            self.gone(now);
        }
    }

    /// The lease is gone: whoever held it holds nothing.
    pub(super) fn gone(&mut self, now: Instant) {
        self.taken = None;
        self.seen = Some((Record::default(), now));
    }

    /// The watch has told of a lease. News of what was written before may come after the answer to
    /// a later write of ours.
    pub(super) fn see(&mut self, record: Record, now: Instant) {
        self.told = true;
        let number = |record: &Record| record.version.as_ref()?.parse::<u64>().ok();
        let old = self.seen.as_ref().is_some_and(|(known, _)| {
            matches!((number(&record), number(known)), (Some(new), Some(known)) if new < known)
        });
        if !old {
            self.know(record, now);
        }
    }

    /// The server has answered with this lease: so it is, whatever was known. Versions go back
    /// where a backup was put in place.
    pub(super) fn know(&mut self, record: Record, now: Instant) {
        self.told = true;
        if record.holder != self.identity {
            self.taken = None;
        }
        // Being told the same again is no sign of life.
        if self.seen.as_ref().is_none_or(|(known, _)| known.version != record.version) {
            self.seen = Some((record, now));
        }
    }

    /// The lease was taken or renewed by a request that was sent then.
    pub(super) fn taken(&mut self, sent: Instant) {
        self.taken = Some(sent);
        self.not_before = None;
    }

    /// Taking or renewing it failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + Duration::from_secs(1));
    }

    /// Whether this candidate holds the lease, as far as it knows.
    pub(super) fn leads(&self) -> bool {
        self.taken.is_some()
    }

    /// What to give back at the end.
    pub(super) fn release(&mut self) -> Option<Record> {
        self.taken.take()?;
        self.seen.clone().map(|(record, _)| record)
    }

    pub(super) fn next(&self, now: Instant) -> Step {
        let Some((record, since)) = &self.seen else { return Step::Wait(None) };
        let due = if let Some(taken) = self.taken {
            taken + self.renew
        } else if record.holder.is_empty() || record.holder == self.identity {
            now
        } else {
            *since + self.lease
        };
        let due = self.not_before.map_or(due, |not_before| due.max(not_before));
        if due <= now { Step::Take(record.clone()) } else { Step::Wait(Some(due)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const RENEW: Duration = Duration::from_secs(5);

    fn held_by(holder: &str, version: &str) -> Record {
        Record { holder: holder.to_owned(), version: Some(version.to_owned()), ..Record::default() }
    }

    fn candidate() -> (Election, Instant) {
        (Election::new("me".to_owned(), LEASE, RENEW), Instant::now())
    }

    #[test]
    fn nothing_is_taken_before_anything_is_seen() {
        let (election, now) = candidate();
        assert_eq!(election.next(now), Step::Wait(None));
    }

    #[test]
    fn a_lease_that_is_not_there_or_free_is_taken_at_once() {
        let (mut election, now) = candidate();
        election.listed(now);
        assert_eq!(election.next(now), Step::Take(Record::default()));
        election.see(held_by("", "7"), now);
        assert_eq!(election.next(now), Step::Take(held_by("", "7")));
    }

    #[test]
    fn a_lease_of_somebody_else_is_taken_when_it_has_not_changed_for_its_time() {
        let (mut election, now) = candidate();
        election.see(held_by("other", "1"), now);
        assert_eq!(election.next(now), Step::Wait(Some(now + LEASE)));
        let later = now + Duration::from_secs(10);
        election.see(held_by("other", "2"), later);
        assert_eq!(election.next(now + LEASE), Step::Wait(Some(later + LEASE)));
        // Being told the same again is no sign of life.
        election.see(held_by("other", "2"), later + Duration::from_secs(5));
        assert_eq!(election.next(later + LEASE), Step::Take(held_by("other", "2")));
    }

    #[test]
    fn a_lease_of_ours_is_renewed_in_time_and_lost_when_somebody_else_has_it() {
        let (mut election, now) = candidate();
        election.see(held_by("me", "3"), now);
        election.taken(now);
        assert!(election.leads());
        assert_eq!(election.next(now), Step::Wait(Some(now + RENEW)));
        assert_eq!(election.next(now + RENEW), Step::Take(held_by("me", "3")));
        election.see(held_by("other", "4"), now + RENEW);
        assert!(!election.leads());
        assert_eq!(election.release(), None);
    }

    #[test]
    fn old_news_take_nothing_from_who_leads() {
        let (mut election, now) = candidate();
        election.see(held_by("me", "7"), now);
        election.taken(now);
        election.see(held_by("other", "6"), now);
        assert!(election.leads());
        assert_eq!(election.next(now), Step::Wait(Some(now + RENEW)));
    }

    #[test]
    fn an_answer_is_believed_though_its_version_is_older() {
        let (mut election, now) = candidate();
        election.see(held_by("me", "7"), now);
        election.taken(now);
        election.know(held_by("other", "6"), now);
        assert!(!election.leads());
        assert_eq!(election.next(now + LEASE), Step::Take(held_by("other", "6")));
    }

    #[test]
    fn a_failure_is_not_repeated_at_once() {
        let (mut election, now) = candidate();
        election.listed(now);
        election.failed(now);
        assert_eq!(election.next(now), Step::Wait(Some(now + Duration::from_secs(1))));
    }
}
