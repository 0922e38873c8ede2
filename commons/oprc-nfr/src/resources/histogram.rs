//! The distribution of usage, in which old samples count less.

use std::collections::BTreeMap;

use super::units::{DAY, Resource, is_known};
use crate::convert::{count, floor};

/// Each bucket is wider than the one before by this factor.
const BUCKET_GROWTH: f64 = 1.05;
/// A sample of this age counts half, in seconds.
const HALF_LIFE: f64 = DAY;
/// Memory counts by its peak in each interval of this length, in seconds. A container is killed for
/// its peak, however short it is.
const PEAK_INTERVAL: f64 = 900.0;

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageSample {
    /// In seconds.
    pub age: f64,
    /// CPU in cores, or memory in bytes, of the instance that used most.
    pub value: f64,
}

impl UsageSample {
    fn is_known(&self) -> bool {
        is_known(self.age) && is_known(self.value)
    }
}

/// The samples that are known.
pub(super) fn known(samples: &[UsageSample]) -> Vec<UsageSample> {
    samples.iter().copied().filter(UsageSample::is_known).collect()
}

/// Weights by exponential buckets.
pub(super) struct Histogram {
    resource: Resource,
    buckets: BTreeMap<u32, f64>,
    /// Values that were added.
    pub(super) values: usize,
}

impl Histogram {
    /// Memory counts by the peak of each interval, CPU by every sample.
    pub(super) fn of(resource: Resource, samples: &[UsageSample]) -> Self {
        let mut histogram = Self { resource, buckets: BTreeMap::new(), values: 0 };
        match resource {
            Resource::Cpu => samples.iter().for_each(|it| histogram.add(it.age, it.value)),
            Resource::Memory => {
                let mut peaks: BTreeMap<u32, f64> = BTreeMap::new();
                for sample in samples {
                    let peak = peaks.entry(floor(sample.age / PEAK_INTERVAL)).or_default();
                    *peak = peak.max(sample.value);
                }
                for (interval, peak) in peaks {
                    // By the age of the interval: which of its samples is the peak changes no weight.
                    histogram.add(f64::from(interval) * PEAK_INTERVAL, peak);
                }
            }
        }
        histogram
    }

    fn add(&mut self, age: f64, value: f64) {
        let buckets = (value * (BUCKET_GROWTH - 1.0) / self.resource.first_bucket()).ln_1p();
        let weight = (-age / HALF_LIFE).exp2();
        *self.buckets.entry(floor(buckets / BUCKET_GROWTH.ln())).or_default() += weight;
        self.values += 1;
    }

    /// The end of the bucket below which the share of all weights lies. None without weights.
    pub(super) fn percentile(&self, share: f64) -> Option<f64> {
        let total: f64 = self.buckets.values().sum();
        if total <= 0.0 {
            return None;
        }
        let mut sum = 0.0;
        let reaches = |(bucket, weight): (&u32, &f64)| {
            sum += weight;
            // The same weights may have a slightly different sum in another order.
            (sum >= share * total * (1.0 - 1e-9)).then_some(*bucket)
        };
        let bucket = self.buckets.iter().find_map(reaches)?;
        let width = BUCKET_GROWTH.powf(f64::from(bucket) + 1.0) - 1.0;
        let end = self.resource.first_bucket() * width / (BUCKET_GROWTH - 1.0);
        end.is_finite().then_some(end)
    }
}

/// Seconds that the samples cover: each stands for the time until the next one. At most `history`.
pub(super) fn covered(samples: &[UsageSample], history: f64) -> f64 {
    let ages = samples.iter().map(|it| it.age);
    let (youngest, oldest) =
        ages.fold((f64::INFINITY, 0.0_f64), |(low, high), age| (low.min(age), high.max(age)));
    if samples.len() < 2 {
        return 0.0;
    }
    let number = count(samples.len());
    ((oldest - youngest) * number / (number - 1.0)).min(history)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(samples: &[(f64, f64)]) -> Histogram {
        let samples: Vec<_> =
            samples.iter().map(|&(age, value)| UsageSample { age, value }).collect();
        Histogram::of(Resource::Cpu, &samples)
    }

    #[test]
    fn percentile_is_at_most_a_bucket_too_high() {
        for value in [0.0, 0.009, 0.05, 0.3, 1.7, 64.0] {
            let found = cpu(&[(0.0, value)]).percentile(0.9).unwrap();
            assert!(found > value && found <= value * 1.05 + 0.011, "{value} {found}");
        }
        assert_eq!(cpu(&[]).percentile(0.9), None);
    }

    #[test]
    fn old_samples_count_less() {
        let days = |days: f64| days * DAY;
        let median = |samples: &[_]| cpu(samples).percentile(0.5).unwrap();
        // Two samples of yesterday weigh as much as one of today.
        assert!(median(&[(0.0, 0.1), (days(1.1), 1.0), (days(1.1), 1.0)]) < 0.12);
        assert!(median(&[(0.0, 0.1), (days(0.9), 1.0), (days(0.9), 1.0)]) > 1.0);
        assert_eq!(cpu(&[(1e9, 1.0)]).percentile(0.5), None, "no weight is left");
    }

    #[test]
    fn memory_counts_by_its_peaks() {
        // In each interval, one sample in thirty is a peak.
        let samples: Vec<_> = (0..960_u32)
            .map(|at| UsageSample {
                age: f64::from(at) * 30.0,
                value: if at % 30 == 7 { 2e8 } else { 1e8 },
            })
            .collect();
        let memory = Histogram::of(Resource::Memory, &samples);
        assert_eq!(memory.values, 32);
        assert!(memory.percentile(0.01).unwrap() > 2e8);
    }

    #[test]
    fn samples_cover_the_time_between_them() {
        let of = |ages: &[f64]| ages.iter().map(|&age| UsageSample { age, value: 1.0 }).collect();
        let samples: Vec<_> = of(&[0.0, 60.0, 120.0]);
        assert!((covered(&samples, 1e6) - 180.0).abs() < 1e-9);
        assert!((covered(&samples, 100.0) - 100.0).abs() < 1e-9);
        let samples: Vec<_> = of(&[5.0]);
        assert!(covered(&samples, 1e6).abs() < 1e-9);
    }
}
