//! The load that has to be served when an instance that is started now is ready.
//!
//! The forecast is the present rate plus its trend. The margin for what the trend doesn't explain is
//! learned from the load itself: from its deviation around the trend, and from how far it exceeded
//! earlier forecasts. A jump of the load is neither a trend nor a deviation.

use serde::Serialize;

use crate::convert::{ceil_items, count};

/// Samples that the trend is fitted to: two minutes at intervals of 15 s.
const TREND_SAMPLES: usize = 8;
/// Samples whose forecasts are compared with the actual rates: ten minutes at intervals of 15 s.
const MEMORY: usize = 40;
/// Fewer comparisons say nothing: a single jump affects up to four of them.
const MIN_COMPARISONS: usize = 16;
/// The share of earlier forecasts that were exceeded by less than [`Forecast::surprise`].
const SURPRISE_QUANTILE: f64 = 0.7;
/// A step from sample to sample is a jump if it differs from the median by this many deviations.
const JUMP: f64 = 3.0;
/// The growth that a trend may predict, as a fraction of the present rate. A burst that takes some samples
/// looks like a steep trend, which doesn't continue.
const MAX_GROWTH: f64 = 0.2;
/// Deviations added to the forecast.
const DEVIATIONS: f64 = 2.0;
/// The standard deviation of normally distributed values with a median absolute deviation of 1.
const NORMAL: f64 = 1.482_6;

/// Samples at equal intervals.
#[derive(Clone, Copy, Debug, Default)]
pub struct History<'a> {
    /// Seconds between two samples.
    pub interval: f64,
    /// Requests per second, the oldest first.
    pub samples: &'a [f64],
}

impl<'a> History<'a> {
    /// The history as it was some samples ago.
    pub(crate) fn before(&self, samples: usize) -> Self {
        let end = self.samples.len().saturating_sub(samples);
        Self { samples: self.samples.get(..end).unwrap_or_default(), ..*self }
    }

    pub(crate) fn last(&self, samples: usize) -> &'a [f64] {
        let start = self.samples.len().saturating_sub(samples);
        self.samples.get(start..).unwrap_or_default()
    }

    /// The highest rate of the last samples.
    pub(crate) fn peak(&self, samples: usize) -> f64 {
        self.last(samples).iter().copied().fold(0.0, f64::max)
    }
}

/// An expected rate and what it consists of, in requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Forecast {
    /// The present rate.
    pub level: f64,
    /// Expected growth until the horizon; never negative.
    pub growth: f64,
    /// Standard deviation of the rate around the trend.
    pub deviation: f64,
    /// How far the load exceeded most earlier forecasts.
    pub surprise: f64,
}

impl Forecast {
    pub fn expected(&self) -> f64 {
        self.level + self.growth
    }

    /// The present rate alone.
    pub(crate) fn without_precaution(&self) -> Self {
        Self { level: self.level, growth: 0.0, deviation: 0.0, surprise: 0.0 }
    }

    /// What is added to the expected rate as a precaution.
    pub fn margin(&self) -> f64 {
        (DEVIATIONS * self.deviation).max(self.surprise)
    }
}

/// Forecasts the rate after `horizon` seconds. None without a sample.
pub fn forecast(history: &History<'_>, horizon: f64) -> Option<Forecast> {
    let recent = &without_jumps(history.last(TREND_SAMPLES));
    let line = Line::fit(recent);
    let (level, growth) = line.follow(recent, horizon / history.interval)?;
    let surprise = surprise(history, horizon) * (level + growth);
    Some(Forecast { level, growth, deviation: line.deviation(recent), surprise })
}

/// A least-squares line through samples.
struct Line {
    mean: f64,
    /// Per sample.
    slope: f64,
    /// Half of the distance between the first and the last sample.
    middle: f64,
}

impl Line {
    fn fit(samples: &[f64]) -> Self {
        let number = count(samples.len());
        let mean = samples.iter().sum::<f64>() / number;
        let middle = (number - 1.0) / 2.0;
        if samples.len() < 3 {
            return Self { mean, slope: 0.0, middle };
        }
        let (mut covariance, mut variance) = (0.0, 0.0);
        for (at, rate) in samples.iter().enumerate() {
            let x = count(at) - middle;
            covariance += x * (rate - mean);
            variance += x * x;
        }
        Self { mean, slope: covariance / variance, middle }
    }

    /// The present rate, and its growth until some samples later.
    fn follow(&self, samples: &[f64], later: f64) -> Option<(f64, f64)> {
        let level = samples.last()?.max(self.mean + self.slope * self.middle);
        Some((level, (self.slope.max(0.0) * later).min(level * MAX_GROWTH)))
    }

    /// The standard deviation, estimated by the median, which one jump doesn't change.
    fn deviation(&self, samples: &[f64]) -> f64 {
        if samples.len() < 3 {
            return 0.0;
        }
        let distance = |(at, rate): (usize, &f64)| {
            (rate - self.mean - self.slope * (count(at) - self.middle)).abs()
        };
        let mut distances: Vec<f64> = samples.iter().enumerate().map(distance).collect();
        quantile(&mut distances, 0.5) * NORMAL
    }
}

/// The samples as they would have been before the present one, if the load hadn't jumped.
fn without_jumps(samples: &[f64]) -> Vec<f64> {
    let Some(present) = samples.last() else { return Vec::new() };
    let steps: Vec<f64> = samples.iter().zip(samples.iter().skip(1)).map(|(a, b)| b - a).collect();
    let middle = quantile(&mut steps.clone(), 0.5);
    let mut distances: Vec<f64> = steps.iter().map(|step| (step - middle).abs()).collect();
    let limit = JUMP * NORMAL * quantile(&mut distances, 0.5);
    let mut rate = *present;
    let earlier = steps.iter().rev().map(|step| {
        rate = (rate - step.max(middle - limit).min(middle + limit)).max(0.0);
        rate
    });
    let mut rates: Vec<f64> = std::iter::once(*present).chain(earlier).collect();
    rates.reverse();
    rates
}

/// How far the load exceeded earlier forecasts, as a fraction of them. 0 if there are too few.
fn surprise(history: &History<'_>, horizon: f64) -> f64 {
    let steps = ceil_items(horizon / history.interval).max(1);
    let history = History { samples: history.last(MEMORY), ..*history };
    let compare = |ago: usize| {
        let known = history.before(ago);
        let known = &without_jumps(known.last(TREND_SAMPLES));
        let (level, growth) = Line::fit(known).follow(known, horizon / history.interval)?;
        let forecast = level + growth;
        let actual = history.before(ago - steps).samples.last()?;
        // Relative errors of rates below 1/s mean nothing.
        Some((actual - forecast) / forecast.max(1.0))
    };
    let mut errors: Vec<f64> = (steps..history.samples.len()).filter_map(compare).collect();
    if errors.len() < MIN_COMPARISONS {
        return 0.0;
    }
    quantile(&mut errors, SURPRISE_QUANTILE).max(0.0)
}

fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ceil_items(count(values.len().saturating_sub(1)) * quantile);
    values.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(rates: &[f64], horizon: f64) -> Forecast {
        forecast(&History { interval: 15.0, samples: rates }, horizon).unwrap()
    }

    #[test]
    fn a_constant_load_is_expected_to_stay() {
        let forecast = of(&[40.0; 100], 30.0);
        assert_eq!(forecast, Forecast { level: 40.0, ..Forecast::default() });
    }

    #[test]
    fn a_ramp_is_continued_to_the_horizon() {
        let rates: Vec<f64> = (0..20_u32).map(|at| 100.0 + f64::from(at)).collect();
        let forecast = of(&rates, 45.0);
        assert!((forecast.level - 119.0).abs() < 1e-9, "{forecast:?}");
        assert!((forecast.growth - 3.0).abs() < 1e-9, "{forecast:?}");
        assert!(forecast.margin() < 1e-9, "{forecast:?}");
    }

    #[test]
    fn a_falling_load_is_not_expected_to_fall_further() {
        let rates: Vec<f64> = (0..20_u32).map(|at| 100.0 - f64::from(at)).collect();
        assert!(of(&rates, 45.0).growth.abs() < 1e-9);
    }

    #[test]
    fn a_jump_is_not_continued() {
        for jump in [&[60.0, 60.0] as &[f64], &[20.0, 58.0, 60.0], &[25.0, 60.0, 60.0, 60.0]] {
            let mut rates: Vec<f64> = (0..8_u32).map(|at| 8.0 + f64::from(at % 2) / 10.0).collect();
            rates.extend(jump);
            let forecast = of(&rates, 30.0);
            let most = forecast.expected() + forecast.margin();
            assert!((60.0..63.0).contains(&most), "{forecast:?}");
        }
    }

    #[test]
    fn repeated_bursts_are_remembered() {
        let rates: Vec<f64> =
            (0..120_u32).map(|at| if at % 4 == 3 { 60.0 } else { 20.0 }).collect();
        let quiet = rates.get(..117).unwrap();
        assert!(of(quiet, 15.0).margin() >= 20.0, "{:?}", of(quiet, 15.0));
    }

    #[test]
    fn nothing_is_expected_without_a_sample() {
        assert_eq!(forecast(&History { interval: 15.0, samples: &[] }, 15.0), None);
        assert_eq!(of(&[7.0], 15.0), Forecast { level: 7.0, ..Forecast::default() });
    }

    proptest! {
        #[test]
        fn it_is_finite_and_no_less_than_the_present_rate(
            rates in proptest::collection::vec(0.0..1e6_f64, 1..60), horizon in 1.0..300.0_f64,
        ) {
            let forecast = of(&rates, horizon);
            prop_assert!(forecast.expected() >= *rates.last().unwrap());
            prop_assert!(forecast.growth >= 0.0 && forecast.margin() >= 0.0);
            prop_assert!(forecast.expected().is_finite() && forecast.margin().is_finite());
        }
    }
}
