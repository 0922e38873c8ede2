//! Whether a function meets its requirements, and since when.
//!
//! Nothing here keeps state: a transition and its time are found in the measured window. What was
//! stored earlier is the state that the window starts with, or continues from that time on.
//!
//! One point is often noise, so a transition needs several consecutive points: [`VIOLATED_AFTER`] or
//! [`MET_AFTER`]. Fewer of them change neither the state nor its time.

use crate::convert::milliseconds;

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
    /// second that exceeded it. None if it is unknown or there were no requests. It may contradict
    /// the state until enough points confirm a transition.
    pub observed: Option<f64>,
}

/// Consecutive points that a transition to [`State::Violated`] needs. For [`Requirement::HardLatency`]
/// one is enough: a counted breach is no noise, and with a short rate window it shows in one point.
pub const VIOLATED_AFTER: u32 = 2;
/// Consecutive points that a transition from [`State::Violated`] to [`State::Met`] needs.
pub const MET_AFTER: u32 = 3;
/// Share of the known time of a window in which latency or throughput may be violated.
pub const TIME_BUDGET: f64 = 0.05;

/// Share of the offered requests that may be lost before the demand counts as not served.
const LOSS_TOLERANCE: f64 = 0.01;

/// Evaluates a requirement. `stored` is what an earlier evaluation of the same requirement found.
///
/// Without a stored state, and with a window that confirms none, the latest point alone decides.
pub fn evaluate(
    requirement: Requirement,
    window: &LoadWindow<'_>,
    stored: Option<StoredState>,
) -> Verdict {
    let held = stored.filter(|it| it.since <= window.end).and_then(Held::of);
    // The points before the stored transition have been taken into account by it.
    let start = held.map_or(window.start, |it| it.since.max(window.start));
    let mut tracker = Tracker { requirement, max_gap: window.max_gap, held, run: None };
    let mut latest: Option<(i64, Option<f64>)> = None;
    for (at, Judgement { violated, observed }) in judged(requirement, window) {
        if at >= start {
            let before = latest.map(|(at, _)| at).max(held.map(|_| start));
            tracker.push(at, violated, before);
        }
        latest = Some((at, observed));
    }
    let current = latest.filter(|(at, _)| window.end.saturating_sub(*at) <= window.max_gap);
    match current.zip(tracker.state()) {
        Some(((_, observed), Held { violated, since, .. })) => {
            let state = if violated { State::Violated } else { State::Met };
            Verdict { state, since, observed }
        }
        None => unknown(window, stored),
    }
}

/// The state that counts until a transition is confirmed.
#[derive(Clone, Copy)]
struct Held {
    violated: bool,
    since: i64,
    /// Whether there was a long gap after the last point with this state.
    is_interrupted: bool,
}

impl Held {
    /// None if the state is unknown.
    fn of(stored: StoredState) -> Option<Self> {
        let violated = match stored.state {
            State::Violated => true,
            State::Met => false,
            State::Unknown(_) => return None,
        };
        Some(Self { violated, since: stored.since, is_interrupted: false })
    }
}

/// Consecutive points with the same judgement, without a gap.
#[derive(Clone, Copy)]
struct Run {
    violated: bool,
    first: i64,
    points: u32,
}

/// Finds transitions in a sequence of points.
struct Tracker {
    requirement: Requirement,
    max_gap: i64,
    held: Option<Held>,
    run: Option<Run>,
}

impl Tracker {
    /// `before` is the time of the point before, or the one at which the held state begins to count.
    fn push(&mut self, at: i64, violated: bool, before: Option<i64>) {
        let is_gap = before.is_some_and(|before| at.saturating_sub(before) > self.max_gap);
        let continued = self.run.filter(|run| !is_gap && run.violated == violated);
        let (first, points) = continued.map_or((at, 1), |run| (run.first, run.points + 1));
        self.run = Some(Run { violated, first, points });
        let held = self.held.map(|it| Held { is_interrupted: it.is_interrupted || is_gap, ..it });
        let confirmed = Held { violated, since: first, is_interrupted: false };
        self.held = match held {
            // What happened in a long gap is unknown, so the state is known since the point after it.
            Some(held) if held.violated == violated => {
                Some(if held.is_interrupted { Held { since: at, ..confirmed } } else { held })
            }
            _ if points >= self.points_needed(violated) => Some(confirmed),
            held => held,
        };
    }

    fn points_needed(&self, violated: bool) -> u32 {
        match self.requirement {
            Requirement::HardLatency if violated => 1,
            _ if violated => VIOLATED_AFTER,
            _ => MET_AFTER,
        }
    }

    fn state(&self) -> Option<Held> {
        let latest =
            |run: Run| Held { violated: run.violated, since: run.first, is_interrupted: false };
        self.held.or(self.run.map(latest))
    }
}

/// The share of the error budget of the window that is left, from 0 to 1. None if nothing is known.
///
/// Latency and throughput may be violated for [`TIME_BUDGET`] of the known time. Of the requests, as
/// many may be lost as the required availability leaves. The hard latency has no budget: a single
/// breach uses it up.
pub fn error_budget(requirement: Requirement, window: &LoadWindow<'_>) -> Option<f64> {
    let points: Vec<(i64, bool)> =
        judged(requirement, window).map(|(at, it)| (at, it.violated)).collect();
    let (used, budget) = match requirement {
        Requirement::Throughput(_) | Requirement::Latency(_) => {
            (violated_share(&points, window.max_gap)?, TIME_BUDGET)
        }
        Requirement::Availability(required) => {
            points.first()?;
            (1.0 - availability(window.points).unwrap_or(1.0), 1.0 - required)
        }
        Requirement::HardLatency => {
            points.first()?;
            (if points.iter().any(|(_, violated)| *violated) { 1.0 } else { 0.0 }, 0.0)
        }
    };
    let left = match used {
        used if used <= 0.0 => 1.0,
        _ if budget <= 0.0 => 0.0,
        used => 1.0 - used / budget,
    };
    left.is_finite().then(|| left.clamp(0.0, 1.0))
}

/// The share of the known time that is violated. A point stands for the time since the point before
/// it; after a gap, and at the start, for the shortest such time.
fn violated_share(points: &[(i64, bool)], max_gap: i64) -> Option<f64> {
    let distances = points.iter().zip(points.iter().skip(1)).map(|((a, _), (b, _))| b - a);
    let distances: Vec<i64> = distances.collect();
    let is_covered = |it: &i64| (1..=max_gap).contains(it);
    let step = distances.iter().copied().filter(is_covered).min().unwrap_or(1);
    let weights = std::iter::once(step)
        .chain(distances.iter().map(|it| if is_covered(it) { *it } else { step }));
    let (mut known, mut violated) = (0, 0);
    for ((_, is_violated), weight) in points.iter().zip(weights) {
        known += weight;
        violated += if *is_violated { weight } else { 0 };
    }
    (known > 0).then(|| milliseconds(violated) / milliseconds(known))
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

/// The points at which it is known whether the requirement is violated.
fn judged(
    requirement: Requirement,
    window: &LoadWindow<'_>,
) -> impl Iterator<Item = (i64, Judgement)> {
    let mut totals = Totals::default();
    window.points.iter().filter_map(move |point| {
        totals.add(point);
        Some((point.at, judge(requirement, point, totals)?))
    })
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
