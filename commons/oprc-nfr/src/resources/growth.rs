//! Memory that grows towards its limit.

use super::{histogram::UsageSample, units::is_known};
use crate::convert::count;

/// The growth is measured over as long a time as it is predicted for, but at least over this many
/// seconds.
const MIN_WINDOW: f64 = 300.0;
/// Fewer samples say nothing about growth.
const MIN_GROWTH_SAMPLES: usize = 8;
/// Share of the variance that a line must explain. Noise that looks like a line of eight samples is
/// rarer than 1 in 300, and a single jump is explained by 75 % at most.
const MIN_EXPLAINED: f64 = 0.8;
/// Growth until the horizon that counts, as a fraction of the present value. A slow leak takes a week
/// to double it.
const MIN_GROWTH: f64 = 0.001;

/// Significant growth of recent samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Growth {
    /// The present value, in bytes.
    pub(super) level: f64,
    /// Bytes per second.
    pub(super) slope: f64,
    /// The value at the horizon, in bytes.
    pub(super) predicted: f64,
}

impl Growth {
    /// Predicts the value after `horizon` seconds. None if there is no significant growth, or if the
    /// component has used as much before: then it may go down again, as garbage-collected heaps do.
    pub(super) fn of(samples: &[UsageSample], horizon: f64) -> Option<Self> {
        if !is_known(horizon) {
            return None;
        }
        let window = horizon.max(MIN_WINDOW);
        let (mut recent, earlier): (Vec<_>, Vec<_>) =
            samples.iter().copied().partition(|it| it.age <= window);
        recent.sort_by(|a, b| b.age.total_cmp(&a.age).then(a.value.total_cmp(&b.value)));
        let covered = recent.first()?.age - recent.last()?.age;
        let used_before = highest(&earlier) >= highest(&recent);
        if recent.len() < MIN_GROWTH_SAMPLES || covered < window / 2.0 || used_before {
            return None;
        }
        let trend = Trend::fit(&recent).filter(|it| it.slope > 0.0)?;
        if trend.explained < MIN_EXPLAINED {
            return None;
        }
        let (older, newer) = recent.split_at(recent.len() / 2);
        let newer = Trend::fit(newer).filter(|it| it.slope > 0.0)?;
        let older = Trend::fit(older)?;
        // A warm-up becomes slower by the same factor from half to half, so it ends at some level.
        // A leak keeps its speed.
        let slowdown = if older.slope > newer.slope { newer.slope / older.slope } else { 1.0 };
        let half = covered / 2.0;
        let growth = newer.slope * half * geometric_sum(slowdown, horizon / half);
        let (level, predicted) = (newer.present, newer.present + growth);
        let is_significant = growth >= level * MIN_GROWTH;
        (is_significant && is_known(level) && is_known(predicted)).then_some(Self {
            level,
            slope: newer.slope,
            predicted,
        })
    }

    /// Seconds until the value reaches `limit`, if it keeps its speed.
    pub(super) fn seconds_until(&self, limit: f64) -> f64 {
        ((limit - self.level) / self.slope).max(0.0)
    }
}

fn highest(samples: &[UsageSample]) -> f64 {
    samples.iter().map(|it| it.value).fold(0.0, f64::max)
}

/// q + q² + … + qⁿ, for any n.
fn geometric_sum(q: f64, n: f64) -> f64 {
    if q > 0.999 { n } else { q * (1.0 - q.powf(n)) / (1.0 - q) }
}

/// A least-squares line through samples.
struct Trend {
    /// Per second.
    slope: f64,
    /// The value of the line now.
    present: f64,
    /// Share of the variance that the line explains, from 0 to 1.
    explained: f64,
}

impl Trend {
    /// None if all samples have the same age or the same value.
    fn fit(samples: &[UsageSample]) -> Option<Self> {
        let number = count(samples.len());
        let mean_age = samples.iter().map(|it| it.age).sum::<f64>() / number;
        let mean = samples.iter().map(|it| it.value).sum::<f64>() / number;
        let (mut of_ages, mut of_values, mut covariance) = (0.0, 0.0, 0.0);
        for sample in samples {
            let (x, y) = (mean_age - sample.age, sample.value - mean);
            of_ages += x * x;
            of_values += y * y;
            covariance += x * y;
        }
        if of_ages <= 0.0 || of_values <= 0.0 {
            return None;
        }
        let slope = covariance / of_ages;
        let explained = slope * covariance / of_values;
        Some(Self { slope, present: mean + slope * mean_age, explained })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A sample every 30 s, the oldest first.
    fn samples(values: impl IntoIterator<Item = f64>) -> Vec<UsageSample> {
        let values: Vec<_> = values.into_iter().collect();
        let age = |at| count(values.len() - 1 - at) * 30.0;
        values.iter().enumerate().map(|(at, &value)| UsageSample { age: age(at), value }).collect()
    }

    fn minutes(number: u32) -> impl Iterator<Item = f64> {
        (0..number * 2).map(|at| f64::from(at) / 2.0)
    }

    #[test]
    fn leak_is_predicted() {
        let growth = Growth::of(&samples(minutes(15).map(|at| 1e8 + 1e7 * at)), 600.0).unwrap();
        assert!((growth.level - 2.45e8).abs() < 1e3, "{growth:?}");
        assert!((growth.predicted - 3.45e8).abs() < 1e3, "{growth:?}");
        assert!((growth.seconds_until(3.05e8) - 360.0).abs() < 1.0, "{growth:?}");
    }

    #[test]
    fn warm_up_is_predicted_to_flatten() {
        let warm_up = |at: f64| 2e8 * (1.0 - (-at / 4.0).exp());
        for length in [6, 8, 10, 12, 15, 20, 30] {
            let found = Growth::of(&samples(minutes(length).map(warm_up)), 600.0);
            assert!(found.is_none_or(|it| it.predicted < 2.1e8), "{length} {found:?}");
        }
        assert_eq!(Growth::of(&samples(minutes(30).map(warm_up)), 600.0), None);
    }

    #[test]
    fn jump_is_no_growth() {
        for at in 1..39 {
            let values = (0..40).map(|it| if it < at { 1e8 } else { 2e8 });
            assert_eq!(Growth::of(&samples(values), 600.0), None, "{at}");
        }
    }

    #[test]
    fn heap_that_is_collected_is_no_growth() {
        let heap = minutes(120).map(|at| 1e8 + 1e7 * (at % 11.0));
        let all = samples(heap);
        for end in 120..all.len() {
            let now = all[end].age;
            let seen: Vec<_> =
                all[..=end].iter().map(|it| UsageSample { age: it.age - now, ..*it }).collect();
            assert_eq!(Growth::of(&seen, 600.0), None, "{end}");
        }
    }

    #[test]
    fn few_or_old_samples_are_no_growth() {
        let all = samples(minutes(15).map(|at| 1e8 + 1e7 * at));
        assert_eq!(Growth::of(&all[..7], 600.0), None);
        let short: Vec<_> = all.iter().map(|it| UsageSample { age: it.age / 3.0, ..*it }).collect();
        assert_eq!(Growth::of(&short, 600.0), None, "they cover too short a time");
        let old: Vec<_> =
            all.iter().map(|it| UsageSample { age: it.age + 3600.0, ..*it }).collect();
        assert_eq!(Growth::of(&old, 600.0), None);
        assert_eq!(Growth::of(&all, f64::NAN), None);
    }

    proptest! {
        #[test]
        fn noise_is_no_growth(noise in prop::collection::vec(0.0..1.0_f64, 21), size in 0.0..1e8_f64) {
            let all = samples(noise.iter().map(|it| 1e8 + size * it));
            prop_assert_eq!(Growth::of(&all, 600.0), None);
        }
    }
}
