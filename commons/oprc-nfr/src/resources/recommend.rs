//! Recommended requests and limits.

use serde::Serialize;

use super::{
    growth::Growth,
    histogram::{Histogram, UsageSample, covered, known},
    units::{DAY, MIB, Resource, Span, is_known},
};

/// Percentile of the usage that the target is based on.
const TARGET_PERCENTILE: f64 = 0.9;
/// Percentiles between which a value isn't changed.
const RANGE_PERCENTILES: [f64; 2] = [0.5, 0.95];
/// Added to every percentile and prediction.
const MARGIN: f64 = 1.15;
/// A smaller change isn't worth replacing an instance.
pub(super) const MIN_CHANGE: f64 = 0.1;
/// Samples without which nothing is changed, unless it is urgent.
pub const MIN_SAMPLES: usize = 10;
/// A shorter history counts as this many seconds, so that the bounds are finite.
const MIN_HISTORY: f64 = 60.0;
/// Memory after an out-of-memory kill: the larger of this factor ...
const OOM_FACTOR: f64 = 1.2;
/// ... and this many bytes more.
const OOM_BYTES: f64 = 100.0 * MIB;
/// Kills are taken into account for this many seconds. Usage shows by then whether they recur.
const OOM_MEMORY: f64 = 7.0 * DAY;

/// Request and limit of a container. None if it isn't set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Allocation {
    pub request: Option<f64>,
    pub limit: Option<f64>,
}

impl Allocation {
    pub(super) fn is_valid(&self) -> bool {
        [self.request, self.limit].into_iter().flatten().all(is_known)
    }

    /// Zero is the same as nothing.
    pub(super) fn without_zeros(self) -> Self {
        let positive = |value: &f64| *value > 0.0;
        Self { request: self.request.filter(positive), limit: self.limit.filter(positive) }
    }
}

/// The allowed values of a request. They bound the limit as well, unless the user wrote a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ResourceBounds {
    pub min: f64,
    /// May be infinite.
    pub max: f64,
}

impl ResourceBounds {
    fn clamp(&self, value: f64) -> f64 {
        value.min(self.max).max(self.min)
    }
}

/// What is known about one resource of a component.
#[derive(Clone, Copy, Debug)]
pub struct ResourceInput<'a> {
    /// In any order. Of memory, the peaks of the working set.
    pub samples: &'a [UsageSample],
    /// Seconds for which the component has been measured. What the samples cover counts if it is less.
    pub history: f64,
    /// What the instances have, or get once a change that has been applied is rolled out.
    pub current: Allocation,
    /// What the user wrote. It is never lowered; that is only advised.
    pub specified: Allocation,
    /// Limit of memory divided by its request, as the user or the platform chose it. Without it, that
    /// of `current` counts.
    pub limit_ratio: Option<f64>,
    pub bounds: ResourceBounds,
}

/// Containers that were killed because they were out of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OomKills {
    pub count: u32,
    /// The highest limit at which it happened in bytes, or the peak if there was no limit.
    pub at: f64,
    /// Seconds since the last one.
    pub age: f64,
}

/// How often the CPU limit slows down a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttling {
    /// Share of periods that are throttled, from 0 to 1.
    pub share: f64,
    /// Share above which the limit is raised.
    pub threshold: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResourceRecommendation {
    pub resource: Resource,
    /// The recommended request.
    pub target: f64,
    /// A request between `lower` and `upper` isn't worth a change. The target is between them.
    pub lower: f64,
    pub upper: f64,
    /// The limit that goes with the target. None if there is no limit now: none is added.
    pub limit: Option<f64>,
    /// From 0 to 1: d/(d + 1) after d days of history, the inverse of the factor that widens `upper`.
    pub confidence: f64,
    /// How the target follows from the measurements, in one line.
    pub basis: String,
    /// Whether the container was killed or is about to be.
    pub urgent: bool,
    /// Whether the present request or limit is worth a change.
    pub actionable: bool,
    /// Whether the user wrote a higher request, so that the target is only advice.
    pub advisory: bool,
    /// The highest usage in the window.
    pub peak: f64,
    pub samples: usize,
    /// Seconds that the samples cover.
    pub history: f64,
    pub current: Allocation,
    pub specified: Allocation,
    pub bounds: ResourceBounds,
    limits: Option<LimitRule>,
}

impl ResourceRecommendation {
    /// The limit that goes with a request. None if there is no limit.
    pub fn limit_for(&self, request: f64) -> Option<f64> {
        let rule = self.limits?;
        let limit = rule.lowest.max(request * rule.ratio);
        let limit = match self.resource {
            // Either the present limit or the request.
            Resource::Cpu => limit,
            Resource::Memory => self.resource.round_up(limit),
        };
        Some(limit.min(rule.highest).max(request))
    }

    /// Whether a request is outside of the range, and far enough from what it should be.
    pub(super) fn is_off(&self, request: f64, goal: f64) -> bool {
        let is_outside = request < self.lower || request > self.upper;
        is_outside && (goal / request - 1.0).abs() >= MIN_CHANGE
    }

    /// Whether throttling asks for a higher limit than this one.
    pub(super) fn raises_limit(&self, limit: Option<f64>) -> bool {
        let wanted = self.limits.filter(|_| self.resource == Resource::Cpu).map(|it| it.lowest);
        wanted.zip(limit).is_some_and(|(wanted, limit)| wanted >= limit * (1.0 + MIN_CHANGE))
    }

    pub(super) fn has_samples(&self) -> bool {
        self.samples >= MIN_SAMPLES
    }
}

/// How a limit follows from a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct LimitRule {
    ratio: f64,
    lowest: f64,
    /// Not below `lowest`.
    highest: f64,
}

/// Recommends a CPU request. A limit is neither recommended nor lowered, because limits harm latency.
/// One that throttles too often is raised by the share of throttled periods; the request never
/// exceeds it. None if nothing is known.
pub fn recommend_cpu(
    input: &ResourceInput<'_>,
    throttling: Option<Throttling>,
) -> Option<ResourceRecommendation> {
    let input = &validated(input)?;
    let usage = Usage::of(Resource::Cpu, input)?;
    let mut note = String::new();
    let limits = input.current.limit.map(|limit| {
        let harmful =
            |it: &Throttling| is_known(it.share) && it.share <= 1.0 && it.share > it.threshold;
        let share = throttling.filter(harmful).map_or(0.0, |it| it.share);
        let highest = limit.max(input.bounds.max);
        let raised = Resource::Cpu.round_up(limit * (1.0 + share)).min(highest);
        let lowest = if share > 0.0 { raised.max(limit) } else { limit };
        if lowest > limit {
            let (from, to) = (Resource::Cpu.show(limit), Resource::Cpu.show(lowest));
            note = format!("; throttled in {:.0} % of periods, limit {from} → {to}", share * 100.0);
        }
        LimitRule { ratio: 1.0, lowest, highest }
    });
    let mut found = usage.recommend(input, &usage.target(), limits)?;
    found.basis.push_str(&note);
    Some(found)
}

/// Recommends a memory request, and a limit if there is one now.
///
/// The limit keeps its ratio to the request, but leaves a margin above the highest peak. `horizon` is
/// the number of seconds in which a value can be raised before a container is killed. None if nothing
/// is known.
pub fn recommend_memory(
    input: &ResourceInput<'_>,
    kills: Option<OomKills>,
    horizon: f64,
) -> Option<ResourceRecommendation> {
    let input = &validated(input)?;
    let kills = kills.filter(|it| {
        it.count > 0 && is_known(it.age) && it.age <= OOM_MEMORY && is_known(it.at) && it.at > 0.0
    });
    let samples = known(input.samples);
    let usage = Usage::of(Resource::Memory, input);
    // A container that is killed at its start is never measured.
    let usage = usage.or_else(|| kills.map(|_| Usage::unmeasured(Resource::Memory)))?;
    let limit = input.current.limit;
    let mut target = usage.target();
    if let Some(growth) = Growth::of(&samples, horizon) {
        target.raise(Target::of_growth(&growth, horizon, limit));
    }
    if let Some(kills) = kills {
        target.raise(Target::of_kills(&kills, limit.or(input.current.request)));
    }
    let limits = limit.map(|limit| {
        let ratio = input.limit_ratio.or(input.current.request.map(|request| limit / request));
        let specified = input.specified.limit.unwrap_or_default();
        let highest = input.bounds.max.max(specified);
        let lowest = (usage.peak * MARGIN).max(specified).min(highest);
        LimitRule { ratio: ratio.unwrap_or(1.0).max(1.0), lowest, highest }
    });
    usage.recommend(input, &target, limits)
}

/// None if a setting is invalid.
fn validated<'a>(input: &ResourceInput<'a>) -> Option<ResourceInput<'a>> {
    let ResourceInput { history, current, specified, bounds, limit_ratio, .. } = *input;
    let are_bounds_valid = is_known(bounds.min) && bounds.max >= 0.0;
    let is_valid = is_known(history) && current.is_valid() && specified.is_valid();
    (are_bounds_valid && is_valid && limit_ratio.is_none_or(is_known)).then(|| ResourceInput {
        current: current.without_zeros(),
        specified: specified.without_zeros(),
        bounds: ResourceBounds { max: bounds.max.max(bounds.min), ..bounds },
        ..*input
    })
}

/// A value that something asks for, and why.
struct Target {
    value: f64,
    basis: String,
    urgent: bool,
}

impl Target {
    fn of_growth(growth: &Growth, horizon: f64, limit: Option<f64>) -> Self {
        let show = |value| Resource::Memory.show(value);
        let reached = limit.filter(|limit| growth.predicted >= *limit);
        let reaches = reached.map_or_else(String::new, |limit| {
            let left = Span(growth.seconds_until(limit).min(horizon));
            format!(" and reaches the limit of {} in {left}", show(limit))
        });
        let Growth { slope, predicted, .. } = *growth;
        let (speed, predicted_text) = (show(slope * 60.0), show(predicted));
        let basis =
            format!("grows by {speed}/min{reaches}; {predicted_text} in {} + 15 %", Span(horizon));
        Self { value: predicted * MARGIN, basis, urgent: reached.is_some() }
    }

    /// `available` is the memory that an instance has now.
    fn of_kills(kills: &OomKills, available: Option<f64>) -> Self {
        let OomKills { count, at, age } = *kills;
        let value = (at * OOM_FACTOR).max(at + OOM_BYTES);
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let (at, age) = (Resource::Memory.show(at), Span(age));
        let basis = format!("out of memory {times} at {at}, {age} ago; + 20 % or 100 MiB");
        Self { value, basis, urgent: available.is_none_or(|it| it < value) }
    }

    fn explain(&self, resource: Resource, wanted: f64, value: f64) -> String {
        let (basis, shown) = (&self.basis, resource.show(wanted));
        let limited = resource.show(value);
        match value {
            value if value < wanted => format!("{basis} → {shown}, limited to {limited}"),
            value if value > wanted => format!("{basis} → {shown}, at least {limited} allowed"),
            _ => format!("{basis} → {shown}"),
        }
    }

    /// The higher one counts; what is urgent stays so.
    fn raise(&mut self, other: Self) {
        let urgent = self.urgent || other.urgent;
        if other.value > self.value {
            *self = other;
        }
        self.urgent = urgent;
    }
}

/// The distribution of what a component used.
#[derive(Clone, Copy, Debug)]
struct Usage {
    resource: Resource,
    percentile: f64,
    range: [f64; 2],
    peak: f64,
    samples: usize,
    /// Values in the histogram.
    values: usize,
    covered: f64,
}

impl Usage {
    /// None if nothing is known.
    fn of(resource: Resource, input: &ResourceInput<'_>) -> Option<Self> {
        let samples = known(input.samples);
        let histogram = Histogram::of(resource, &samples);
        let [low, high] = RANGE_PERCENTILES.map(|share| histogram.percentile(share));
        Some(Self {
            resource,
            percentile: histogram.percentile(TARGET_PERCENTILE)?,
            range: [low?, high?],
            peak: samples.iter().map(|it| it.value).fold(0.0, f64::max),
            samples: samples.len(),
            values: histogram.values,
            covered: covered(&samples, input.history),
        })
    }

    fn unmeasured(resource: Resource) -> Self {
        let (percentile, range, peak, covered) = (0.0, [0.0; 2], 0.0, 0.0);
        Self { resource, percentile, range, peak, samples: 0, values: 0, covered }
    }

    fn target(&self) -> Target {
        let noun = match self.resource {
            Resource::Cpu => "samples",
            Resource::Memory => "peaks",
        };
        let (values, covered) = (self.values, Span(self.covered));
        let percentile = self.resource.show(self.percentile);
        let basis = format!("p90 of {values} {noun} in {covered} is {percentile} + 15 %");
        Target { value: self.percentile * MARGIN, basis, urgent: false }
    }

    fn recommend(
        &self,
        input: &ResourceInput<'_>,
        target: &Target,
        limits: Option<LimitRule>,
    ) -> Option<ResourceRecommendation> {
        let ResourceInput { current, specified, bounds, .. } = *input;
        let wanted = self.resource.round_up(target.value);
        let allowed = match (self.resource, limits) {
            // The limit of CPU doesn't follow the request.
            (Resource::Cpu, Some(rule)) => {
                ResourceBounds { max: bounds.max.min(rule.lowest).max(bounds.min), ..bounds }
            }
            _ => bounds,
        };
        let value = allowed.clamp(wanted);
        let days = self.covered.max(MIN_HISTORY) / DAY;
        let [low, high] = self.range;
        let lower = low * MARGIN * (1.0 + 0.001 / days).powi(-2);
        let upper = high * MARGIN * (1.0 + 1.0 / days);
        let mut found = ResourceRecommendation {
            resource: self.resource,
            target: value,
            lower: allowed.clamp(lower).min(value),
            upper: allowed.clamp(upper).max(value),
            limit: None,
            confidence: self.covered / (self.covered + DAY),
            basis: target.explain(self.resource, wanted, value),
            urgent: target.urgent,
            actionable: false,
            advisory: specified.request.is_some_and(|it| it > value),
            peak: self.peak,
            samples: self.samples,
            history: self.covered,
            current,
            specified,
            bounds,
            limits,
        };
        found.limit = found.limit_for(value);
        let is_off = current.request.is_none_or(|it| found.is_off(it, value));
        let is_late = found.urgent && current.request.is_none_or(|it| it < value);
        let is_throttled = found.raises_limit(current.limit);
        found.actionable = is_late || found.has_samples() && (is_off || is_throttled);
        let is_finite =
            [found.target, found.lower, found.upper, found.peak].iter().all(|it| is_known(*it));
        is_finite.then_some(found)
    }
}
