//! How many instances a function gets, and when that number changes.
//!
//! There are two speeds. Too few instances are urgent: the number is raised at once. Too many are
//! not: it is lowered only if the higher number hasn't been needed for a while, some time after the
//! last change, and by a limited step.
//!
//! Nothing here keeps state: what was needed earlier is computed from the history again, so that a
//! restart neither forgets nor repeats a decision.

use std::cmp::Ordering;

use serde::Serialize;

use crate::{
    convert::{ceil, ceil_items, floor},
    forecast::{Forecast, History, forecast},
    queueing::instances_for,
};

/// Capacity that is kept free, as a fraction of the load.
const HEADROOM: f64 = 0.08;
/// The precaution never costs more than an autoscaler with this CPU target, or one instance more than the
/// expected load needs.
const REFERENCE_UTILISATION: f64 = 0.7;
/// The precaution follows the highest rate of this time, in seconds.
const PRECAUTION_SECONDS: f64 = 180.0;
/// Bound on the reported need.
const NEEDED_MAX: u32 = 10_000;
/// Seconds between two raises.
const RAISE_INTERVAL: f64 = 15.0;
/// The number isn't lowered by less than this fraction.
const TOLERANCE: f64 = 0.1;

/// What a function needs to meet its latency requirement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Needs {
    /// Seconds that an instance is busy with one call: the inverse of its capacity.
    pub service_time: f64,
    /// Seconds that a call may wait for an instance.
    pub wait: f64,
    /// Seconds from a decision until a new instance serves.
    pub startup: f64,
}

impl Needs {
    fn instances(&self, rate: f64, max: u32) -> u32 {
        instances_for(rate * self.service_time, self.wait / self.service_time, max)
    }
}

/// The allowed number of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub min: u32,
    pub max: u32,
}

/// Limits on how fast the number of instances changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Safeguards {
    /// Seconds for which fewer instances must have been enough before the number is lowered.
    pub stability: f64,
    /// Seconds between the last change and lowering the number.
    pub cooldown: f64,
    /// The largest step down, as a fraction of the number.
    pub max_step_down: f64,
}

impl Default for Safeguards {
    fn default() -> Self {
        Self { stability: 180.0, cooldown: 120.0, max_step_down: 0.3 }
    }
}

/// What a decision follows from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub history: History<'a>,
    /// Requests per second that are to be served in addition to those that arrive, until none waits any
    /// more from the past.
    pub catch_up: f64,
    /// Whether instances are kept for growth and variation of the load.
    pub precaution: bool,
    pub needs: Needs,
    /// The number that was decided last.
    pub current: u32,
    /// Instances that serve; more than `current` if an autoscaler added some.
    pub running: u32,
    pub bounds: Bounds,
    pub safeguards: Safeguards,
    /// Seconds since the number was last changed; none if it never was.
    pub since_change: Option<f64>,
}

/// A decision about the number of instances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The number of instances from now on; the present one if nothing changes.
    pub instances: u32,
    /// What the expected load needs, without precaution.
    pub needed: u32,
    /// What is recommended: the need with precaution, within the bounds.
    pub recommended: u32,
    pub forecast: Forecast,
    /// Requests per second of a backlog, if it needs more instances than the expected load.
    pub catch_up: Option<f64>,
    /// Why the number isn't what is recommended.
    #[serde(skip)]
    pub wait: Option<Wait>,
}

/// A safeguard that keeps the number from changing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wait {
    /// Seconds until the next raise.
    RaiseInterval(f64),
    /// Seconds until the number may be lowered.
    Cooldown(f64),
    /// The higher number was needed within the last seconds.
    Stability(f64),
    /// The difference is too small.
    Tolerance,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RaiseInterval(seconds) => write!(formatter, "the next step in {seconds:.0} s"),
            Self::Cooldown(seconds) => {
                write!(formatter, "the end of the cooldown in {seconds:.0} s")
            }
            Self::Stability(seconds) => {
                write!(formatter, "{seconds:.0} s in which fewer instances are enough")
            }
            Self::Tolerance => formatter.write_str("a larger difference"),
        }
    }
}

impl Change {
    /// The decision in one line, with its numbers. `bound` is that of the latency in seconds.
    pub fn explain(&self, needs: &Needs, bound: Option<f64>) -> String {
        let Forecast { level, growth, .. } = self.forecast;
        let (margin, capacity) = (self.forecast.margin(), 1.0 / needs.service_time);
        let reserve = match self.catch_up {
            Some(catch_up) => format!("backlog {catch_up:.1}"),
            None => format!("margin {margin:.1}"),
        };
        let load = format!("{level:.1} req/s + trend {growth:.1} + {reserve}");
        let capacity = format!("one instance serves {capacity:.1}/s");
        if self.needed > self.recommended {
            let (needed, max) = (self.needed, self.recommended);
            return format!("{load}; {capacity} → {needed} instances needed, limited to {max}");
        }
        let instances = self.recommended;
        let purpose = bound.filter(|_| self.catch_up.is_none()).map_or_else(
            || "serve it".to_owned(),
            |bound| format!("keep p95 ≤ {:.0} ms", bound * 1000.0),
        );
        format!("{load}; {capacity} → {instances} instances {purpose}")
    }
}

/// Decides on the number of instances. None if there is no data: nothing changes then.
pub fn decide(input: &Input<'_>) -> Option<Change> {
    let max = input.bounds.max.max(input.bounds.min);
    let input = &Input { bounds: Bounds { max, ..input.bounds }, ..*input };
    let recommended = recommend(input, &input.history, input.catch_up)?;
    let current = input.current.clamp(input.bounds.min, max);
    let changed = match recommended.recommended.cmp(&current) {
        Ordering::Equal => Ok(current),
        Ordering::Greater => raise(input, recommended.recommended, current),
        Ordering::Less => lower(input, recommended.recommended, current),
    };
    let (instances, wait) = changed.map_or_else(|wait| (current, Some(wait)), |it| (it, None));
    Some(Change { instances, wait, ..recommended })
}

/// What the load of a history needs, regardless of the present number.
fn recommend(input: &Input<'_>, history: &History<'_>, catch_up: f64) -> Option<Change> {
    let Input { needs, bounds, .. } = input;
    let horizon = needs.startup + history.interval;
    let forecast =
        forecast(history, horizon).filter(|it| (it.expected() + catch_up).is_finite())?;
    let forecast = if input.precaution { forecast } else { forecast.without_precaution() };
    let needed = needs.instances(forecast.expected(), NEEDED_MAX);
    let with_margin = (forecast.expected() + forecast.margin()) * (1.0 + HEADROOM);
    let cautious = needs.instances(with_margin, bounds.max);
    let peak = history.peak(ceil_items(PRECAUTION_SECONDS / history.interval));
    let reference = ceil(peak * needs.service_time / REFERENCE_UTILISATION);
    let affordable = reference.max(needed.saturating_add(1));
    // Instances that catch up are always busy: the capacity that is free for other reasons serves it first.
    let busy = ceil((forecast.expected() + catch_up) * needs.service_time);
    let needed = needed.max(busy).min(NEEDED_MAX);
    let for_load = cautious.min(affordable);
    let recommended = for_load.max(busy).clamp(bounds.min, bounds.max);
    let catch_up = (busy > for_load).then_some(catch_up);
    Some(Change { instances: recommended, needed, recommended, forecast, catch_up, wait: None })
}

/// At most the larger of twice the number and four more, as an autoscaler does it.
fn raise(input: &Input<'_>, recommended: u32, current: u32) -> Result<u32, Wait> {
    let left = input.since_change.map_or(0.0, |seconds| RAISE_INTERVAL - seconds);
    if left > 0.0 {
        return Err(Wait::RaiseInterval(left));
    }
    let from = current.max(input.running);
    Ok(recommended.min(from.saturating_mul(2).max(from.saturating_add(4))))
}

fn lower(input: &Input<'_>, recommended: u32, current: u32) -> Result<u32, Wait> {
    let Safeguards { stability, cooldown, max_step_down } = input.safeguards;
    let is_close = |number: u32| f64::from(number) > f64::from(current) * (1.0 - TOLERANCE);
    if is_close(recommended) {
        return Err(Wait::Tolerance);
    }
    let left = input.since_change.map_or(0.0, |seconds| cooldown - seconds);
    if left > 0.0 {
        return Err(Wait::Cooldown(left));
    }
    let samples = ceil_items(stability / input.history.interval);
    // Without data for the whole time, more may have been needed.
    if input.history.samples.len() <= samples {
        return Err(Wait::Stability(stability));
    }
    let mut highest = recommended;
    for ago in 1..=samples {
        let earlier = recommend(input, &input.history.before(ago), 0.0);
        highest = highest.max(earlier.map_or(current, |it| it.recommended));
        if is_close(highest) {
            return Err(Wait::Stability(stability));
        }
    }
    let lowest = floor(f64::from(current) * (1.0 - max_step_down)).min(current.saturating_sub(1));
    Ok(highest.max(lowest).clamp(input.bounds.min, current))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEEDS: Needs = Needs { service_time: 0.1, wait: 0.2, startup: 20.0 };

    fn input(samples: &[f64], current: u32, since_change: Option<f64>) -> Input<'_> {
        Input {
            history: History { interval: 15.0, samples },
            catch_up: 0.0,
            precaution: true,
            needs: NEEDS,
            current,
            running: 0,
            bounds: Bounds { min: 2, max: 30 },
            safeguards: Safeguards::default(),
            since_change,
        }
    }

    #[test]
    fn too_few_instances_are_raised_at_once_and_too_many_only_later() {
        let busy = [100.0; 40];
        let change = decide(&input(&busy, 5, None)).unwrap();
        assert_eq!((change.instances, change.needed), (10, 12));
        assert_eq!(decide(&input(&busy, 5, Some(14.0))).unwrap().instances, 5);
        assert_eq!(decide(&input(&busy, 10, Some(15.0))).unwrap().instances, change.recommended);
        let mut calmer = busy.to_vec();
        calmer.extend([20.0; 12]);
        assert_eq!(decide(&input(&calmer, 14, None)).unwrap().instances, 14, "not stable yet");
        calmer.extend([20.0; 9]);
        assert_eq!(decide(&input(&calmer, 14, Some(119.0))).unwrap().instances, 14, "cooldown");
        assert_eq!(decide(&input(&calmer, 14, Some(120.0))).unwrap().instances, 9);
    }

    #[test]
    fn a_decision_explains_itself() {
        let change = decide(&input(&[100.0; 40], 5, None)).unwrap();
        let expected = "100.0 req/s + trend 0.0 + margin 0.0; one instance serves 10.0/s → 13 \
                        instances keep p95 ≤ 300 ms";
        assert_eq!(change.explain(&NEEDS, Some(0.3)), expected);
        assert!(change.explain(&NEEDS, None).ends_with("13 instances serve it"));
        let change = decide(&input(&[1000.0; 40], 30, None)).unwrap();
        assert!(change.explain(&NEEDS, None).ends_with("instances needed, limited to 30"));
    }

    #[test]
    fn a_backlog_is_served_by_free_capacity_first() {
        let with = |catch_up| decide(&Input { catch_up, ..input(&[100.0; 40], 13, None) }).unwrap();
        let enough = with(29.0);
        assert_eq!((enough.recommended, enough.catch_up), (13, None));
        let more = with(45.0);
        assert_eq!((more.recommended, more.needed), (15, 15));
        let expected = "100.0 req/s + trend 0.0 + backlog 45.0; one instance serves 10.0/s → 15 \
                        instances serve it";
        assert_eq!(more.explain(&NEEDS, Some(0.3)), expected);
        assert_eq!(
            decide(&Input { catch_up: f64::INFINITY, ..input(&[100.0; 40], 13, None) }),
            None
        );
    }

    #[test]
    fn without_precaution_the_present_load_decides() {
        let growing: Vec<_> = (0..40).map(|number| 100.0 + 4.0 * f64::from(number)).collect();
        let cautious = decide(&input(&growing, 5, None)).unwrap();
        let other = decide(&Input { precaution: false, ..input(&growing, 5, None) }).unwrap();
        assert!(other.recommended < cautious.recommended, "{other:?} {cautious:?}");
        let steady = decide(&input(&[other.forecast.level; 40], 5, None)).unwrap();
        assert_eq!(other.recommended, steady.recommended);
    }

    #[test]
    fn nothing_changes_without_data() {
        assert_eq!(decide(&input(&[], 5, None)), None);
        assert_eq!(decide(&input(&[f64::INFINITY; 40], 5, None)), None);
        assert_eq!(decide(&input(&[f64::NAN; 40], 5, None)), None);
    }

    proptest! {
        #[test]
        fn bounds_and_steps_are_kept(
            samples in proptest::collection::vec(0.0..1e5_f64, 0..60),
            current in 0..100_u32, min in 0..50_u32, max in 0..50_u32,
            since_change in proptest::option::of(0.0..1e4_f64),
        ) {
            let bounds = Bounds { min, max };
            let input = Input { bounds, ..input(&samples, current, since_change) };
            if let Some(change) = decide(&input) {
                prop_assert!(change.instances >= min && change.instances <= max.max(min));
                let before = current.clamp(min, max.max(min));
                prop_assert!(change.instances <= (2 * before).max(before + 4));
                let lowest = f64::from(before) * 0.7 - 1.0;
                prop_assert!(f64::from(change.instances) >= lowest);
                prop_assert_eq!(Some(change), decide(&input));
            }
        }

        #[test]
        fn a_constant_load_ends_at_one_number(rate in 0.0..200.0_f64, start in 2..30_u32) {
            let samples = [rate; 60];
            let mut current = start;
            for _ in 0..20 {
                current = decide(&input(&samples, current, Some(200.0))).unwrap().instances;
            }
            let settled = decide(&input(&samples, current, Some(200.0))).unwrap();
            prop_assert_eq!(settled.instances, current);
            prop_assert!(settled.needed <= current || current == 30);
        }
    }
}
