//! The election as a pure state machine: what a candidate does next, given what it has observed.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// A Lease as it was observed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// Empty for none.
    pub(super) holder: String,
    /// None for a Lease that doesn't exist.
    pub(super) version: Option<String>,
    pub(super) transitions: i32,
    pub(super) acquired: Option<MicroTime>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Wait for an event until this time at most.
    Wait(Option<Instant>),
    /// Acquire or renew the Lease unless it has changed.
    Take(Record),
}

#[derive(Debug)]
pub(super) struct Election {
    identity: String,
    lease_duration: Duration,
    retry_period: Duration,
    /// The last observation, and when it changed.
    observed: Option<(Record, Instant)>,
    /// When the Lease was acquired or renewed last.
    renewed: Option<Instant>,
    /// The next attempt isn't made before this.
    not_before: Option<Instant>,
    /// Whether the watch has reported the Lease since its last relist.
    listed: bool,
}

impl Election {
    pub(super) fn new(identity: String, lease_duration: Duration, retry_period: Duration) -> Self {
        Self {
            identity,
            lease_duration,
            retry_period,
            observed: None,
            renewed: None,
            not_before: None,
            listed: false,
        }
    }

    /// The watch lists again: a Lease that it doesn't report doesn't exist.
    pub(super) fn relist(&mut self) {
        self.listed = false;
    }

    /// The list is complete.
    pub(super) fn listed(&mut self, now: Instant) {
        if !self.listed {
            self.deleted(now);
        }
    }

    pub(super) fn deleted(&mut self, now: Instant) {
        self.renewed = None;
        self.observed = Some((Record::default(), now));
    }

    /// The watch reported the Lease. Events of earlier writes may arrive after the response of a later
    /// one.
    pub(super) fn on_event(&mut self, record: Record, now: Instant) {
        self.listed = true;
        let number = |record: &Record| record.version.as_ref()?.parse::<u64>().ok();
        let old = self.observed.as_ref().is_some_and(|(known, _)| {
            matches!((number(&record), number(known)), (Some(new), Some(known)) if new < known)
        });
        if !old {
            self.on_response(record, now);
        }
    }

    /// The API server responded with this Lease, which is current whatever was observed before.
    /// Versions go back when a backup is restored.
    pub(super) fn on_response(&mut self, record: Record, now: Instant) {
        self.listed = true;
        if record.holder != self.identity {
            self.renewed = None;
        }
        // The same version again doesn't show that its holder is alive.
        if self.observed.as_ref().is_none_or(|(known, _)| known.version != record.version) {
            self.observed = Some((record, now));
        }
    }

    /// The Lease was acquired or renewed by a request that was sent at this time.
    pub(super) fn renewed(&mut self, sent: Instant) {
        self.renewed = Some(sent);
        self.not_before = None;
    }

    /// Acquiring or renewing failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + Duration::from_secs(1));
    }

    pub(super) fn is_leader(&self) -> bool {
        self.renewed.is_some()
    }

    /// The Lease to release at shutdown.
    pub(super) fn release(&mut self) -> Option<Record> {
        self.renewed.take()?;
        self.observed.clone().map(|(record, _)| record)
    }

    pub(super) fn next(&self, now: Instant) -> Step {
        let Some((record, since)) = &self.observed else { return Step::Wait(None) };
        let due = if let Some(renewed) = self.renewed {
            renewed + self.retry_period
        } else if record.holder.is_empty() || record.holder == self.identity {
            now
        } else {
            *since + self.lease_duration
        };
        let due = self.not_before.map_or(due, |not_before| due.max(not_before));
        if due <= now { Step::Take(record.clone()) } else { Step::Wait(Some(due)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_DURATION: Duration = Duration::from_secs(15);
    const RETRY_PERIOD: Duration = Duration::from_secs(5);

    fn held_by(holder: &str, version: &str) -> Record {
        Record { holder: holder.to_owned(), version: Some(version.to_owned()), ..Record::default() }
    }

    fn candidate() -> (Election, Instant) {
        (Election::new("me".to_owned(), LEASE_DURATION, RETRY_PERIOD), Instant::now())
    }

    #[test]
    fn waits_before_the_first_observation() {
        let (election, now) = candidate();
        assert_eq!(election.next(now), Step::Wait(None));
    }

    #[test]
    fn acquires_missing_or_released_lease_at_once() {
        let (mut election, now) = candidate();
        election.listed(now);
        assert_eq!(election.next(now), Step::Take(Record::default()));
        election.on_event(held_by("", "7"), now);
        assert_eq!(election.next(now), Step::Take(held_by("", "7")));
    }

    #[test]
    fn acquires_foreign_lease_after_its_duration_without_change() {
        let (mut election, now) = candidate();
        election.on_event(held_by("other", "1"), now);
        assert_eq!(election.next(now), Step::Wait(Some(now + LEASE_DURATION)));
        let later = now + Duration::from_secs(10);
        election.on_event(held_by("other", "2"), later);
        assert_eq!(election.next(now + LEASE_DURATION), Step::Wait(Some(later + LEASE_DURATION)));
        // The same version again doesn't show that its holder is alive.
        election.on_event(held_by("other", "2"), later + Duration::from_secs(5));
        assert_eq!(election.next(later + LEASE_DURATION), Step::Take(held_by("other", "2")));
    }

    #[test]
    fn renews_own_lease_and_loses_it_to_another_holder() {
        let (mut election, now) = candidate();
        election.on_event(held_by("me", "3"), now);
        election.renewed(now);
        assert!(election.is_leader());
        assert_eq!(election.next(now), Step::Wait(Some(now + RETRY_PERIOD)));
        assert_eq!(election.next(now + RETRY_PERIOD), Step::Take(held_by("me", "3")));
        election.on_event(held_by("other", "4"), now + RETRY_PERIOD);
        assert!(!election.is_leader());
        assert_eq!(election.release(), None);
    }

    #[test]
    fn stale_event_does_not_depose_the_leader() {
        let (mut election, now) = candidate();
        election.on_event(held_by("me", "7"), now);
        election.renewed(now);
        election.on_event(held_by("other", "6"), now);
        assert!(election.is_leader());
        assert_eq!(election.next(now), Step::Wait(Some(now + RETRY_PERIOD)));
    }

    #[test]
    fn response_is_current_though_its_version_is_older() {
        let (mut election, now) = candidate();
        election.on_event(held_by("me", "7"), now);
        election.renewed(now);
        election.on_response(held_by("other", "6"), now);
        assert!(!election.is_leader());
        assert_eq!(election.next(now + LEASE_DURATION), Step::Take(held_by("other", "6")));
    }

    #[test]
    fn waits_before_retrying_a_failure() {
        let (mut election, now) = candidate();
        election.listed(now);
        election.failed(now);
        assert_eq!(election.next(now), Step::Wait(Some(now + Duration::from_secs(1))));
    }
}
