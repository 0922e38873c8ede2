//! Circuit breaker: sheds calls while most calls take longer than the hard latency.
//!
//! | state | calls | next state |
//! | --- | --- | --- |
//! | closed | all admitted | open, if at least 20 calls ended in the last 10 s and more than half of them breached |
//! | open | none admitted | half-open after 5 s |
//! | half-open | 10 probes admitted | closed if at most half of the probes breach, otherwise open |
//!
//! Calls are measured to the end of their responses, so that long-lived streams breach when they end.
//! Calls to upgrade a connection are measured to the upgrade.
//!
//! The state machine is pure: callers pass the time, which must not decrease.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The window slides in steps of one second.
const WINDOW_SECONDS: u64 = 10;
const MIN_CALLS: u32 = 20;
const OPEN_DURATION: Duration = Duration::from_secs(5);
const PROBES: u32 = 10;
/// Clients retry after this time if the end of the half-open state isn't known yet.
const PROBE_RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallResult {
    InTime,
    /// The call exceeded the hard latency or timed out.
    Breach,
    /// The call ended early for another reason: it doesn't count.
    Unknown,
}

/// Given to each admitted call. Calls that were admitted in an earlier state are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admission {
    epoch: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shed {
    pub(crate) retry_after: Duration,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    /// Number of state changes so far.
    epoch: u64,
    hard_latency: Duration,
    created: Instant,
}

#[derive(Debug)]
enum State {
    Closed(Window),
    Open { until: Instant },
    HalfOpen(Probes),
}

impl Breaker {
    pub(crate) fn new(hard_latency: Duration, now: Instant) -> Self {
        let state = State::Closed(Window::default());
        Self { state, epoch: 0, hard_latency, created: now }
    }

    pub(crate) fn admit(&mut self, now: Instant) -> Result<Admission, Shed> {
        if let State::Open { until } = self.state
            && now >= until
        {
            self.enter(State::HalfOpen(Probes::new(now)));
        }
        match &mut self.state {
            State::Closed(_) => {}
            State::Open { until } => return Err(Shed { retry_after: *until - now }),
            State::HalfOpen(probes) if probes.admitted < PROBES => {
                probes.admitted += 1;
                probes.last_admitted = now;
            }
            // All probes are older than the hard latency and most did not end: they breach.
            State::HalfOpen(probes) if now > probes.last_admitted + self.hard_latency => {
                self.open(now);
                return Err(Shed { retry_after: OPEN_DURATION });
            }
            State::HalfOpen(_) => return Err(Shed { retry_after: PROBE_RETRY_AFTER }),
        }
        Ok(Admission { epoch: self.epoch })
    }

    /// Call once for each admission, when the call ends.
    pub(crate) fn record(&mut self, admission: Admission, result: CallResult, now: Instant) {
        if admission.epoch != self.epoch {
            return;
        }
        let second = now.saturating_duration_since(self.created).as_secs();
        match &mut self.state {
            State::Open { .. } => {}
            State::Closed(window) => {
                if result != CallResult::Unknown {
                    window.record(second, result == CallResult::Breach);
                }
                if window.is_breached() {
                    self.open(now);
                }
            }
            State::HalfOpen(probes) => {
                match result {
                    CallResult::InTime => probes.in_time += 1,
                    CallResult::Breach => probes.breached += 1,
                    // Another call takes its place.
                    CallResult::Unknown => probes.admitted = probes.admitted.saturating_sub(1),
                }
                // The rest of the probes can't change the decision.
                if probes.breached > PROBES / 2 {
                    self.open(now);
                } else if probes.in_time >= PROBES - PROBES / 2 {
                    self.enter(State::Closed(Window::default()));
                }
            }
        }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Closed(_) => "closed",
            State::Open { .. } => "open",
            State::HalfOpen(_) => "half-open",
        }
    }

    fn open(&mut self, now: Instant) {
        self.enter(State::Open { until: now + OPEN_DURATION });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.epoch += 1;
    }
}

#[derive(Debug)]
struct Probes {
    admitted: u32,
    in_time: u32,
    breached: u32,
    last_admitted: Instant,
}

impl Probes {
    fn new(now: Instant) -> Self {
        Self { admitted: 0, in_time: 0, breached: 0, last_admitted: now }
    }
}

/// Ended calls of the last seconds, oldest first. Holds at most `WINDOW_SECONDS` entries.
#[derive(Debug, Default)]
struct Window {
    seconds: VecDeque<SecondCounts>,
}

#[derive(Debug)]
struct SecondCounts {
    second: u64,
    ended: u32,
    breached: u32,
}

impl Window {
    fn record(&mut self, second: u64, breached: bool) {
        while self.seconds.front().is_some_and(|oldest| oldest.second + WINDOW_SECONDS <= second) {
            self.seconds.pop_front();
        }
        if self.seconds.back().is_none_or(|latest| latest.second != second) {
            self.seconds.push_back(SecondCounts { second, ended: 0, breached: 0 });
        }
        if let Some(latest) = self.seconds.back_mut() {
            latest.ended = latest.ended.saturating_add(1);
            latest.breached = latest.breached.saturating_add(u32::from(breached));
        }
    }

    fn is_breached(&self) -> bool {
        let ended: u64 = self.seconds.iter().map(|counts| u64::from(counts.ended)).sum();
        let breached: u64 = self.seconds.iter().map(|counts| u64::from(counts.breached)).sum();
        ended >= u64::from(MIN_CALLS) && breached * 2 > ended
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HARD_LATENCY: Duration = Duration::from_millis(100);

    fn breaker() -> (Breaker, Instant) {
        let now = Instant::now();
        (Breaker::new(HARD_LATENCY, now), now)
    }

    fn call(breaker: &mut Breaker, result: CallResult, now: Instant) {
        let admission = breaker.admit(now).unwrap();
        breaker.record(admission, result, now);
    }

    fn open_breaker() -> (Breaker, Instant) {
        let (mut breaker, now) = breaker();
        for _ in 0..MIN_CALLS {
            call(&mut breaker, CallResult::Breach, now);
        }
        assert_eq!(breaker.state_name(), "open");
        (breaker, now)
    }

    #[test]
    fn opens_when_more_than_half_of_twenty_calls_breach() {
        let (mut breaker, now) = breaker();
        for _ in 0..10 {
            call(&mut breaker, CallResult::InTime, now);
            call(&mut breaker, CallResult::Breach, now);
        }
        assert_eq!(breaker.state_name(), "closed");
        call(&mut breaker, CallResult::Breach, now);
        assert_eq!(breaker.state_name(), "open");
        assert_eq!(breaker.admit(now), Err(Shed { retry_after: OPEN_DURATION }));
    }

    #[test]
    fn stays_closed_below_twenty_calls() {
        let (mut breaker, now) = breaker();
        for _ in 0..19 {
            call(&mut breaker, CallResult::Breach, now);
        }
        assert_eq!(breaker.state_name(), "closed");
        // The first calls have left the window.
        let later = now + Duration::from_secs(WINDOW_SECONDS);
        call(&mut breaker, CallResult::Breach, later);
        assert_eq!(breaker.state_name(), "closed");
    }

    #[test]
    fn closes_when_half_of_the_probes_are_in_time() {
        let (mut breaker, now) = open_breaker();
        let now = now + OPEN_DURATION;
        let probes: Vec<_> = (0..PROBES).map(|_| breaker.admit(now).unwrap()).collect();
        assert_eq!(breaker.admit(now), Err(Shed { retry_after: PROBE_RETRY_AFTER }));
        for (index, probe) in probes.into_iter().enumerate() {
            let result = if index % 2 == 0 { CallResult::Breach } else { CallResult::InTime };
            breaker.record(probe, result, now);
        }
        assert_eq!(breaker.state_name(), "closed");
    }

    #[test]
    fn opens_again_when_most_probes_breach() {
        let (mut breaker, now) = open_breaker();
        let now = now + OPEN_DURATION;
        for _ in 0..=PROBES / 2 {
            call(&mut breaker, CallResult::Breach, now);
        }
        assert_eq!(breaker.state_name(), "open");
        assert!(breaker.admit(now + OPEN_DURATION / 2).is_err());
        assert!(breaker.admit(now + OPEN_DURATION).is_ok());
    }

    #[test]
    fn opens_again_when_probes_do_not_end() {
        let (mut breaker, now) = open_breaker();
        let now = now + OPEN_DURATION;
        for _ in 0..PROBES {
            breaker.admit(now).unwrap();
        }
        assert!(breaker.admit(now + HARD_LATENCY).is_err());
        assert_eq!(breaker.state_name(), "half-open");
        assert!(breaker.admit(now + HARD_LATENCY * 2).is_err());
        assert_eq!(breaker.state_name(), "open");
    }

    #[test]
    fn canceled_probe_is_replaced() {
        let (mut breaker, now) = open_breaker();
        let now = now + OPEN_DURATION;
        for _ in 0..100 {
            call(&mut breaker, CallResult::Unknown, now);
        }
        assert_eq!(breaker.state_name(), "half-open");
    }

    #[test]
    fn calls_admitted_before_a_state_change_are_not_probes() {
        let (mut breaker, now) = breaker();
        let early: Vec<_> = (0..100).map(|_| breaker.admit(now).unwrap()).collect();
        for _ in 0..MIN_CALLS {
            call(&mut breaker, CallResult::Breach, now);
        }
        let now = now + OPEN_DURATION;
        let probe = breaker.admit(now).unwrap();
        for admission in early {
            breaker.record(admission, CallResult::Breach, now);
        }
        assert_eq!(breaker.state_name(), "half-open");
        breaker.record(probe, CallResult::InTime, now);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Advance(u64),
        Admit,
        End(prop::sample::Index, CallResult),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let result = prop_oneof![
            4 => Just(CallResult::Breach),
            2 => Just(CallResult::InTime),
            1 => Just(CallResult::Unknown),
        ];
        let step = prop_oneof![
            1 => (0..3000_u64).prop_map(Step::Advance),
            6 => Just(Step::Admit),
            6 => (any::<prop::sample::Index>(), result)
                .prop_map(|(index, result)| Step::End(index, result)),
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        /// Compares the breaker with a list of all results, and bounds the probes.
        #[test]
        fn opens_exactly_when_the_window_is_breached(steps in steps()) {
            let (mut breaker, created) = breaker();
            let mut now = created;
            let mut running: Vec<Admission> = Vec::new();
            let mut ended: Vec<(u64, bool)> = Vec::new();
            let mut opened = created;
            for step in steps {
                let before = breaker.state_name();
                let epoch = breaker.epoch;
                match step {
                    Step::Advance(milliseconds) => now += Duration::from_millis(milliseconds),
                    Step::Admit => match breaker.admit(now) {
                        Ok(admission) => {
                            running.push(admission);
                            prop_assert!(before != "open" || now >= opened + OPEN_DURATION);
                        }
                        Err(shed) => {
                            prop_assert!(before != "closed");
                            prop_assert!(shed.retry_after <= OPEN_DURATION);
                        }
                    },
                    Step::End(index, result) if !running.is_empty() => {
                        let admission = running.swap_remove(index.index(running.len()));
                        breaker.record(admission, result, now);
                        if before == "closed" && admission.epoch == epoch {
                            let second = (now - created).as_secs();
                            if result != CallResult::Unknown {
                                ended.push((second, result == CallResult::Breach));
                            }
                            let recent: Vec<_> =
                                ended.iter().filter(|(at, _)| at + WINDOW_SECONDS > second).collect();
                            let breached = recent.iter().filter(|(_, breach)| *breach).count();
                            let opens = result != CallResult::Unknown
                                && recent.len() >= 20
                                && breached * 2 > recent.len();
                            prop_assert_eq!(breaker.state_name() == "open", opens);
                        }
                    }
                    Step::End(..) => {}
                }
                if breaker.epoch != epoch {
                    ended.clear();
                    if breaker.state_name() == "open" {
                        opened = now;
                    }
                }
                if let State::HalfOpen(probes) = &breaker.state {
                    let probing =
                        running.iter().filter(|admission| admission.epoch == breaker.epoch).count();
                    prop_assert!(probing <= PROBES as usize);
                    prop_assert!(probes.admitted <= PROBES);
                }
            }
        }
    }
}
