//! Whether and how enforcement changes the number of instances of a function: the model's
//! [decision](crate::decide), within safeguards that follow from what earlier changes achieved.

use std::cmp::Ordering;

use crate::{
    capacity::{Capacity, InstanceLimits, Learned, LoadSample, learn},
    forecast::History,
    replicas::{Bounds, Change, Input, Needs, Safeguards, Wait, decide},
    stopped::Stopped,
};

/// Start-up time while none was measured, in seconds.
const DEFAULT_STARTUP: f64 = 15.0;
/// Longer start-up times don't predict the next one: the cluster had no room, or the image was pulled.
const MAX_STARTUP: f64 = 120.0;
/// Start-up times after which instances count as missing.
const STARTUPS_UNTIL_MISSING: f64 = 2.0;
/// Seconds in addition to that.
const MISSING_AFTER: f64 = 30.0;
/// Intervals after the start of new instances until their effect is measured.
const SETTLE_INTERVALS: f64 = 3.0;
/// A change has an effect only if the load per instance fell to this fraction.
const RELIEVED: f64 = 0.9;
/// The latency must fall to this fraction ...
const IMPROVED: f64 = 0.95;
/// ... and must not rise to this one.
const WORSENED: f64 = 1.2;
/// Seconds in which a backlog is served. In less time, instances would be added that are soon unused.
const CATCH_UP: f64 = 120.0;
/// Consecutive changes without effect after which the number isn't raised any more.
const MAX_INEFFECTIVE: u32 = 2;

/// What is known about a function and its instances.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// At equal intervals without a gap, the oldest first; the last is the present load.
    pub samples: &'a [LoadSample],
    /// Seconds between two samples.
    pub interval: f64,
    /// Bound on the 95th percentile of latency, in seconds.
    pub latency_bound: Option<f64>,
    /// Whether a requirement on load is violated now.
    pub violated: bool,
    pub limits: InstanceLimits,
    /// Seconds from the creation of an instance until it serves, as measured.
    pub startup: Option<f64>,
    /// Instances that are ready.
    pub ready: u32,
    pub bounds: Bounds,
    pub safeguards: Safeguards,
    /// Whether an autoscaler adds instances within seconds of a rising load. The floor needs no precaution
    /// then.
    pub has_fast_autoscaler: bool,
}

/// The lowest number of instances that enforcement set earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Floor {
    /// None if enforcement has set none.
    pub instances: Option<u32>,
    /// Whether it is applied. Otherwise it is only recommended.
    pub applied: bool,
    /// Seconds since it was set.
    pub since_change: Option<f64>,
    /// What was learned about the same version of the function.
    pub learned: Option<Learned>,
    pub effect: Effect,
}

/// Whether raising the number of instances helps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effect {
    /// What was measured before the latest raise, until its effect is known.
    pub before: Option<Baseline>,
    /// Consecutive raises without effect.
    pub ineffective: u32,
    /// Set if the number isn't raised any more.
    pub stopped: Option<Stopped>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baseline {
    /// The 95th percentile of latency, in seconds.
    pub latency: f64,
    /// Requests per second and instance.
    pub load: f64,
}

/// What the next change waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hold {
    /// The model's own safeguards.
    Safeguard(Wait),
    /// The effect of earlier changes.
    Stopped(Stopped),
    /// Instances that the cluster hasn't started.
    MissingInstances(u32),
    /// The number isn't lowered while a requirement is violated.
    Violated,
}

impl std::fmt::Display for Hold {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Safeguard(wait) => wait.fmt(formatter),
            Self::Stopped(stopped) => stopped.fmt(formatter),
            Self::MissingInstances(number) => {
                write!(formatter, "{number} instances that aren't ready")
            }
            Self::Violated => formatter.write_str("the requirement to be met"),
        }
    }
}

/// The number of instances from now on, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The lowest number of instances; the present one if nothing changes.
    pub floor: u32,
    pub change: Change,
    pub capacity: Capacity,
    pub effect: Effect,
    /// Why the floor isn't what is recommended.
    pub hold: Option<Hold>,
    /// Instances of the floor that should have become ready by now.
    pub missing: u32,
    /// The decision in one line, with its numbers.
    pub basis: String,
}

/// Decides on the lowest number of instances. None if the load or the capacity is unknown: nothing
/// changes then.
pub fn decide_floor(situation: &Situation<'_>, floor: &Floor) -> Option<Decision> {
    let Situation { samples, interval, latency_bound, limits, bounds, .. } = *situation;
    let present = samples.last()?;
    let capacity = learn(samples, interval, &limits, latency_bound, floor.learned)?;
    let startup = situation.startup.unwrap_or(DEFAULT_STARTUP).clamp(0.0, MAX_STARTUP);
    let offered = offered(samples, interval);
    let current =
        floor.instances.unwrap_or(bounds.min).clamp(bounds.min, bounds.max.max(bounds.min));
    // Samples are up to an interval old.
    let serves_after = startup + interval;
    let Capacity { service_time, wait, .. } = capacity;
    let needs = Needs { service_time, wait, startup: serves_after };
    let change = decide(&Input {
        history: History { interval, samples: &offered },
        catch_up: catch_up(situation, startup),
        precaution: !situation.has_fast_autoscaler,
        needs,
        current,
        running: situation.ready,
        bounds,
        safeguards: situation.safeguards,
        since_change: floor.since_change,
    })?;
    let missing = missing(situation, floor, startup);
    let effect = assess(situation, floor, startup, missing > 0);
    let hold = match change.instances.cmp(&current) {
        Ordering::Greater if missing > 0 => Some(Hold::MissingInstances(missing)),
        Ordering::Greater => effect.stopped.map(Hold::Stopped),
        Ordering::Less if situation.violated => Some(Hold::Violated),
        Ordering::Less | Ordering::Equal => change.wait.map(Hold::Safeguard),
    };
    let raises = change.instances > current && hold.is_none();
    let floor = if hold.is_some() { current } else { change.instances };
    let effect = if raises { with_baseline(effect, situation, present) } else { effect };
    let basis =
        format!("{} ({})", change.explain(&needs, latency_bound), capacity.evidence.as_str());
    Some(Decision { floor, change, capacity, effect, hold, missing, basis })
}

/// The rates at which requests arrived: those that ended, and those that were added to the ones in
/// progress.
fn offered(samples: &[LoadSample], interval: f64) -> Vec<f64> {
    let mut before: Option<f64> = None;
    samples
        .iter()
        .map(|sample| {
            let now = waiting(sample);
            let added = now.zip(before).map_or(0.0, |(now, before)| (now - before) / interval);
            before = now;
            (sample.rate + sample.rejected + added).max(0.0)
        })
        .collect()
}

/// Requests per second that are to be served in addition to those that arrive, so that the backlog is
/// served in time.
fn catch_up(situation: &Situation<'_>, startup: f64) -> f64 {
    let Situation { samples, interval, latency_bound, .. } = *situation;
    let Some((present, bound)) = samples.last().zip(latency_bound) else { return 0.0 };
    let Some(waiting) = waiting(present) else { return 0.0 };
    // By Little's law, as many are in progress if none takes longer than the bound.
    let backlog = (waiting - present.rate * bound).max(0.0);
    backlog / (startup + interval).max(CATCH_UP)
}

/// Requests that wait or are in progress.
fn waiting(sample: &LoadSample) -> Option<f64> {
    sample.in_flight.map(|in_flight| in_flight + sample.queued.unwrap_or(0.0))
}

fn missing(situation: &Situation<'_>, floor: &Floor, startup: f64) -> u32 {
    let expected = floor.instances.filter(|_| floor.applied).unwrap_or(0);
    let expected = expected.min(situation.bounds.max);
    let settled = STARTUPS_UNTIL_MISSING * startup + MISSING_AFTER;
    let is_due = floor.since_change.is_none_or(|seconds| seconds > settled);
    if is_due { expected.saturating_sub(situation.ready) } else { 0 }
}

/// Compares the latency with that before the latest raise, once its instances serve.
fn assess(situation: &Situation<'_>, floor: &Floor, startup: f64, is_missing: bool) -> Effect {
    let effect = floor.effect;
    if !situation.violated || !floor.applied {
        return Effect::default();
    }
    let (Some(before), Some(present)) = (effect.before, situation.samples.last()) else {
        return effect;
    };
    let settled = startup + SETTLE_INTERVALS * situation.interval;
    let is_settled = floor.since_change.is_some_and(|seconds| seconds >= settled)
        && floor.instances.is_some_and(|it| situation.ready >= it);
    let Some(latency) = present.latency.filter(|_| is_settled && !is_missing) else {
        return effect;
    };
    let load = present.rate / f64::from(situation.ready.max(1));
    let effect = Effect { before: None, ..effect };
    if load > before.load * RELIEVED {
        return effect;
    }
    if latency >= before.latency * WORSENED {
        return Effect { stopped: Some(Stopped::Worse), ..effect };
    }
    if latency <= before.latency * IMPROVED {
        return Effect { ineffective: 0, ..effect };
    }
    let ineffective = effect.ineffective + 1;
    let stopped = (ineffective >= MAX_INEFFECTIVE).then_some(Stopped::NoEffect);
    Effect { ineffective, stopped, ..effect }
}

/// Remembers what a raise is to improve. A raise before the effect of the last is known continues it.
fn with_baseline(effect: Effect, situation: &Situation<'_>, present: &LoadSample) -> Effect {
    let load = present.rate / f64::from(situation.ready.max(1));
    let baseline = present.latency.filter(|_| situation.violated);
    let before = baseline.map(|latency| Baseline { latency, load });
    Effect { before: effect.before.or(before), ..effect }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: InstanceLimits = InstanceLimits { cpu: 0.1, concurrency: None };

    fn sample(rate: f64, instances: f64, latency: f64) -> LoadSample {
        LoadSample {
            rate,
            rejected: 0.0,
            instances,
            latency: Some(latency),
            cpu: Some(rate * 0.005),
            in_flight: Some(rate * latency),
            queued: None,
        }
    }

    fn situation(samples: &[LoadSample], ready: u32) -> Situation<'_> {
        let violated = samples.last().is_some_and(|it| it.latency > Some(0.2));
        Situation {
            samples,
            interval: 15.0,
            latency_bound: Some(0.2),
            violated,
            limits: LIMITS,
            startup: Some(5.0),
            ready,
            bounds: Bounds { min: 1, max: 20 },
            safeguards: Safeguards::default(),
            has_fast_autoscaler: false,
        }
    }

    fn floor(instances: u32, seconds: f64) -> Floor {
        let (instances, since_change) = (Some(instances), Some(seconds));
        Floor { instances, since_change, applied: true, ..Floor::default() }
    }

    #[test]
    fn overload_raises_the_floor_at_once() {
        let mut samples = vec![sample(5.0, 1.0, 0.02); 10];
        // One instance serves 20/s, and 60/s arrive.
        samples.push(LoadSample { in_flight: Some(600.0), ..sample(20.0, 1.0, 2.0) });
        let decision = decide_floor(&situation(&samples, 1), &Floor::default()).unwrap();
        assert_eq!((decision.floor, decision.change.needed), (4, 4), "{decision:?}");
        let before = decision.effect.before.unwrap();
        assert!((before.latency - 2.0).abs() < 1e-9 && (before.load - 20.0).abs() < 1e-9);
        assert!(decision.basis.ends_with("(by its CPU)"), "{}", decision.basis);
    }

    #[test]
    fn missing_instances_hold_further_raises() {
        let samples = [sample(90.0, 3.0, 2.0); 12];
        let decision = decide_floor(&situation(&samples, 3), &floor(5, 300.0)).unwrap();
        assert_eq!((decision.floor, decision.missing), (5, 2));
        assert_eq!(decision.hold, Some(Hold::MissingInstances(2)));
        let starting = decide_floor(&situation(&samples, 3), &floor(5, 20.0)).unwrap();
        assert!(starting.floor > 5 && starting.missing == 0, "{starting:?}");
    }

    #[test]
    fn raises_without_effect_stop() {
        let samples = [sample(60.0, 6.0, 2.0); 12];
        let situation = situation(&samples, 6);
        let before = Some(Baseline { latency: 2.0, load: 20.0 });
        let once = Floor { effect: Effect { before, ..Effect::default() }, ..floor(6, 300.0) };
        let decision = decide_floor(&situation, &once).unwrap();
        assert_eq!((decision.effect.ineffective, decision.effect.stopped), (1, None));
        assert!(decision.floor > 6, "another try: {decision:?}");
        let twice = Floor { effect: Effect { ineffective: 1, before, stopped: None }, ..once };
        let decision = decide_floor(&situation, &twice).unwrap();
        assert_eq!(decision.effect.stopped, Some(Stopped::NoEffect));
        assert_eq!((decision.floor, decision.hold), (6, Some(Hold::Stopped(Stopped::NoEffect))));
        let later = Floor { effect: decision.effect, ..floor(6, 600.0) };
        assert_eq!(decide_floor(&situation, &later).unwrap().floor, 6, "it stays stopped");
        let recovered = Situation { violated: false, ..situation };
        assert_eq!(decide_floor(&recovered, &later).unwrap().effect, Effect::default());
    }

    #[test]
    fn a_raise_that_made_it_worse_stops_at_once() {
        let samples = [sample(60.0, 6.0, 3.0); 12];
        let before = Some(Baseline { latency: 2.0, load: 20.0 });
        let raised = Floor { effect: Effect { before, ..Effect::default() }, ..floor(6, 300.0) };
        let decision = decide_floor(&situation(&samples, 6), &raised).unwrap();
        assert_eq!(decision.effect.stopped, Some(Stopped::Worse));
        // A higher load explains it.
        let loaded = [sample(119.0, 6.0, 3.0); 12];
        let decision = decide_floor(&situation(&loaded, 6), &raised).unwrap();
        assert_eq!(decision.effect.stopped, None);
    }

    #[test]
    fn nothing_is_lowered_while_a_requirement_is_violated() {
        // By the model, 2 of 15 instances would be enough.
        let samples = [sample(10.0, 15.0, 2.0); 41];
        let violated = situation(&samples, 15);
        let decision = decide_floor(&violated, &floor(15, 900.0)).unwrap();
        assert_eq!((decision.floor, decision.hold), (15, Some(Hold::Violated)));
        let met = Situation { violated: false, ..violated };
        assert_eq!(decide_floor(&met, &floor(15, 900.0)).unwrap().floor, 10);
    }

    fn load() -> impl Strategy<Value = Vec<LoadSample>> {
        let sample = (0.0..500.0_f64, 0..30_u32, 0.001..5.0_f64, 0.0..3.0_f64, 0.0..300.0_f64);
        let sample = sample.prop_map(|(rate, instances, latency, cpu, in_flight)| LoadSample {
            rate,
            rejected: 0.0,
            instances: f64::from(instances),
            latency: Some(latency),
            cpu: Some(cpu),
            in_flight: Some(in_flight),
            queued: None,
        });
        proptest::collection::vec(sample, 0..45)
    }

    proptest! {
        #[test]
        fn bounds_and_steps_are_never_broken(
            samples in load(), ready in 0..40_u32, min in 0..10_u32, max in 0..40_u32,
            instances in proptest::option::of(0..60_u32),
            since_change in proptest::option::of(0.0..1000.0_f64),
        ) {
            let situation = Situation { bounds: Bounds { min, max }, ..situation(&samples, ready) };
            let floor = Floor { instances, since_change, ..Floor::default() };
            if let Some(decision) = decide_floor(&situation, &floor) {
                let max = max.max(min);
                prop_assert!(decision.floor >= min && decision.floor <= max);
                let before = instances.unwrap_or(min).clamp(min, max);
                let from = before.max(ready);
                prop_assert!(decision.floor <= (2 * from).max(from + 4));
                prop_assert!(f64::from(decision.floor) >= f64::from(before) * 0.7 - 1.0);
                prop_assert_eq!(Some(decision), decide_floor(&situation, &floor));
            } else {
                prop_assert!(samples.is_empty() || samples.iter().all(|it| it.rate < 0.2 || it.cpu <= Some(0.0)));
            }
        }

        #[test]
        fn a_constant_load_ends_at_one_floor(rate in 0.3..200.0_f64, start in 1..20_u32) {
            let mut floor = floor(start, 200.0);
            let mut floors = Vec::new();
            for _ in 0..30 {
                let instances = floor.instances.unwrap();
                // A function with one instance too few is slow.
                let capacity = f64::from(instances) * 20.0;
                let latency = if rate < capacity * 0.8 { 0.05 } else { 1.0 };
                let samples = vec![sample(rate.min(capacity), f64::from(instances), latency); 41];
                let decision = decide_floor(&situation(&samples, instances), &floor).unwrap();
                floors.push(decision.floor);
                floor = Floor {
                    instances: Some(decision.floor),
                    learned: Some(Learned {
                        service_time: decision.capacity.service_time,
                        correction: decision.capacity.correction,
                        age: 200.0,
                    }),
                    effect: decision.effect,
                    ..floor
                };
            }
            let settled = &floors[20..];
            prop_assert!(settled.iter().all(|it| *it == settled[0]), "{:?}", floors);
        }

        #[test]
        fn unknown_data_changes_nothing(instances in 1..20_u32) {
            let unknown = LoadSample { rate: f64::NAN, ..LoadSample::default() };
            let floor = floor(instances, 500.0);
            prop_assert_eq!(decide_floor(&situation(&[], 5), &floor), None);
            prop_assert_eq!(decide_floor(&situation(&[unknown; 41], 5), &floor), None);
        }
    }
}
