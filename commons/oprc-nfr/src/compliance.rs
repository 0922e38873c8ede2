//! Whether a function meets its requirements, and since when.
//!
//! Nothing here keeps state: the time of a transition is found in the measured window. Only if the
//! window is too short for it, the time that was stored earlier counts.

/// A requirement on a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requirement {
    /// Requests per second that must be served if clients send that many.
    Throughput(f64),
    /// Upper bound on the 95th percentile of latency, in milliseconds.
    Latency(f64),
    /// Lower bound on the share of requests of the window that are served, from 0 to 1.
    Availability(f64),
    /// No request may exceed the hard latency bound, whatever it is.
    HardLatency,
}

impl Requirement {
    pub fn kind(&self) -> RequirementKind {
        match self {
            Self::Throughput(_) => RequirementKind::Throughput,
            Self::Latency(_) => RequirementKind::Latency,
            Self::Availability(_) => RequirementKind::Availability,
            Self::HardLatency => RequirementKind::HardLatency,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequirementKind {
    Throughput,
    Latency,
    Availability,
    HardLatency,
}

impl RequirementKind {
    pub const ALL: [Self; 4] =
        [Self::Throughput, Self::Latency, Self::Availability, Self::HardLatency];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Availability => "availability",
            Self::HardLatency => "hard_latency",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What is known about the requests of a function at one time. `None` is unknown, never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadPoint {
    /// In milliseconds since the epoch.
    pub at: i64,
    /// Requests per second, including those that fail or are rejected.
    pub rate: Option<f64>,
    /// The 95th percentile of latency in milliseconds. Without requests it is unknown.
    pub latency: Option<f64>,
    /// Share of requests that failed on the server's side, without rejected ones. Without requests it
    /// is unknown.
    pub error_ratio: Option<f64>,
    /// Rejected requests per second.
    pub rejected: Option<f64>,
    /// Requests that wait for a free slot.
    pub queued: Option<f64>,
    /// Requests per second that exceeded the hard latency bound.
    pub breaches: Option<f64>,
}

/// The points of a window of time.
#[derive(Clone, Copy, Debug)]
pub struct LoadWindow<'a> {
    /// In order of time.
    pub points: &'a [LoadPoint],
    /// In milliseconds since the epoch.
    pub start: i64,
    /// In milliseconds since the epoch.
    pub end: i64,
    /// Milliseconds without a known point after which nothing is known.
    pub max_gap: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Met,
    Violated,
    Unknown(UnknownReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownReason {
    /// There are no current metrics of the requests of this function.
    NoData,
    /// There are, but not the ones that this requirement needs.
    MissingSignal,
}

impl UnknownReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoData => "NoData",
            Self::MissingSignal => "MissingSignal",
        }
    }
}

/// The result of an earlier evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredState {
    pub state: State,
    /// In milliseconds since the epoch.
    pub since: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    pub state: State,
    /// In milliseconds since the epoch.
    pub since: i64,
    /// The latest value, in the unit of the requirement; for [`Requirement::HardLatency`] requests per
    /// second that exceeded it. None if it is unknown or there were no requests.
    pub observed: Option<f64>,
}

/// Share of the offered requests that may be lost before the demand counts as not served.
const LOSS_TOLERANCE: f64 = 0.01;

/// Evaluates a requirement. `stored` is what an earlier evaluation of the same requirement found.
pub fn evaluate(
    requirement: Requirement,
    window: &LoadWindow<'_>,
    stored: Option<StoredState>,
) -> Verdict {
    let mut totals = Totals::default();
    let mut run: Option<Run> = None;
    for point in window.points {
        totals.add(point);
        let Some(Judgement { violated, observed }) = judge(requirement, point, totals) else {
            continue;
        };
        let before = run.filter(|run| {
            run.violated == violated && point.at.saturating_sub(run.last) <= window.max_gap
        });
        let (first, is_first) =
            before.map_or((point.at, run.is_none()), |it| (it.first, it.is_first));
        run = Some(Run { violated, first, is_first, last: point.at, observed });
    }
    match run.filter(|run| window.end.saturating_sub(run.last) <= window.max_gap) {
        Some(run) => Verdict {
            state: if run.violated { State::Violated } else { State::Met },
            since: run.since(window, stored),
            observed: run.observed,
        },
        None => unknown(window, stored),
    }
}

/// Consecutive points with the same judgement, without a gap.
#[derive(Clone, Copy)]
struct Run {
    violated: bool,
    first: i64,
    /// Whether no other run precedes it in the window.
    is_first: bool,
    last: i64,
    observed: Option<f64>,
}

impl Run {
    fn since(&self, window: &LoadWindow<'_>, stored: Option<StoredState>) -> i64 {
        let state = if self.violated { State::Violated } else { State::Met };
        let stored = stored.filter(|it| it.state == state && it.since <= window.end);
        let covers_window =
            self.is_first && self.first.saturating_sub(window.start) <= window.max_gap;
        // The times of two windows differ by up to a step.
        let earliest = self.first.saturating_sub(window.max_gap);
        stored
            .map(|it| it.since)
            .filter(|it| covers_window || *it >= earliest)
            .unwrap_or(self.first)
    }
}

fn unknown(window: &LoadWindow<'_>, stored: Option<StoredState>) -> Verdict {
    let current = window.points.iter().rev().find(|it| it.rate.is_some());
    let is_current = current.is_some_and(|it| window.end.saturating_sub(it.at) <= window.max_gap);
    let reason = if is_current { UnknownReason::MissingSignal } else { UnknownReason::NoData };
    let stored = stored.filter(|it| matches!(it.state, State::Unknown(_)));
    let since = stored.map_or(window.end, |it| it.since.min(window.end));
    Verdict { state: State::Unknown(reason), since, observed: None }
}

struct Judgement {
    violated: bool,
    observed: Option<f64>,
}

/// None if it can't be told at this time. `totals` are those of the window up to this point.
fn judge(requirement: Requirement, point: &LoadPoint, totals: Totals) -> Option<Judgement> {
    let rate = point.rate?;
    match requirement {
        Requirement::Throughput(required) => throughput(required, rate, point),
        Requirement::Latency(bound) => match point.latency {
            Some(latency) => Some(Judgement { violated: latency > bound, observed: Some(latency) }),
            // Without requests there are no late ones.
            None => (rate <= 0.0).then_some(Judgement { violated: false, observed: None }),
        },
        Requirement::Availability(required) => {
            if rate > 0.0 && point.error_ratio.is_none() {
                return None;
            }
            let observed = totals.availability();
            Some(Judgement { violated: observed.is_some_and(|it| it < required), observed })
        }
        Requirement::HardLatency => {
            let breaches = point.breaches?;
            Some(Judgement { violated: breaches > 0.0, observed: Some(breaches) })
        }
    }
}

/// A low rate alone violates nothing: clients may not send more.
fn throughput(required: f64, rate: f64, point: &LoadPoint) -> Option<Judgement> {
    if rate <= 0.0 {
        return Some(Judgement { violated: false, observed: Some(0.0) });
    }
    let lost = lost(rate, point);
    let served = (rate - lost.unwrap_or_default()).max(0.0);
    let observed = Some(served);
    if served >= required {
        return Some(Judgement { violated: false, observed });
    }
    let waiting = point.queued.map(|queued| queued >= 1.0);
    if lost.is_none() && waiting.is_none() {
        return None;
    }
    let loses = lost.is_some_and(|lost| lost > rate * LOSS_TOLERANCE);
    Some(Judgement { violated: loses || waiting == Some(true), observed })
}

/// Requests per second that aren't served, or None if neither errors nor rejections are known.
fn lost(rate: f64, point: &LoadPoint) -> Option<f64> {
    let failed = point.error_ratio.map(|ratio| ratio * rate);
    match (failed, point.rejected) {
        (None, None) => None,
        (failed, rejected) => {
            Some((failed.unwrap_or_default() + rejected.unwrap_or_default()).min(rate))
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Totals {
    offered: f64,
    lost: f64,
}

impl Totals {
    fn add(&mut self, point: &LoadPoint) {
        let Some((rate, lost)) = point.rate.and_then(|rate| Some((rate, lost(rate, point)?)))
        else {
            return;
        };
        self.offered += rate;
        self.lost += lost;
    }

    fn availability(&self) -> Option<f64> {
        (self.offered > 0.0).then(|| (1.0 - self.lost / self.offered).clamp(0.0, 1.0))
    }
}

/// The share of requests of the window that were served. None without requests.
pub fn availability(points: &[LoadPoint]) -> Option<f64> {
    let mut totals = Totals::default();
    for point in points {
        totals.add(point);
    }
    totals.availability()
}

#[cfg(test)]
mod tests;
