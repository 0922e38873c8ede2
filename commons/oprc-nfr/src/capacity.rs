//! What one instance serves, learned from the load of a function.
//!
//! The time that an instance is busy with one request follows from the CPU and the concurrency that
//! requests use. Where a latency bound was exceeded at a lower load than that allows, something else
//! limits the instance, and the time is corrected by what was observed.

use crate::{
    convert::{ceil_items, count},
    queueing::wait_quantile,
};

/// Fewer requests per second say nothing about the cost of one.
const MIN_RATE: f64 = 0.2;
/// Growth of the requests in progress, as a fraction of those that end, above which the resources in use
/// are mostly those of requests that haven't ended.
const STEADY_GROWTH: f64 = 0.1;
/// Waiting time that a bound leaves at least, as a fraction of it. The latency of an overloaded
/// function says nothing about that of an idle one.
const MIN_WAIT: f64 = 0.1;
/// Waiting time without a latency bound, in service times: a utilisation of about 80 %.
const DEFAULT_WAIT: f64 = 4.0;
/// The largest correction by observed violations.
const MAX_CORRECTION: f64 = 4.0;
/// Of the loads at which the bound was exceeded, those above this quantile count: a backlog exceeds it
/// at any load.
const SATURATION_QUANTILE: f64 = 0.9;
/// A load is steady if its highest rate is at most this multiple of the lowest.
const STEADY_LOAD: f64 = 1.2;
/// Latencies are measured over as many samples at most, and hold for as many.
const LATENCY_SAMPLES: usize = 4;
/// The fraction of a load that exceeded the bound which is expected to keep it.
const SATURATION_MARGIN: f64 = 0.95;
/// Seconds for which a correction is kept, and after which half of the rest is forgotten each: what
/// limits an instance may be gone.
const CORRECTION_MEMORY: f64 = 24.0 * 3600.0;
/// A correction that exceeds the remembered one by this factor replaces it.
const NEW_CORRECTION: f64 = 1.02;
/// Points after which half of the confidence is reached.
const HALF_CONFIDENCE: f64 = 5.0;

/// The load of a function at one time. `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadSample {
    /// Requests that instances served per second.
    pub rate: f64,
    /// Requests per second that weren't served.
    pub rejected: f64,
    /// Instances that were ready.
    pub instances: f64,
    /// The 95th percentile of latency, in seconds.
    pub latency: Option<f64>,
    /// CPU cores in use, of all instances.
    pub cpu: Option<f64>,
    /// Requests in progress, of all instances.
    pub in_flight: Option<f64>,
    /// Requests that wait for a free slot.
    pub queued: Option<f64>,
}

impl LoadSample {
    /// By how much the requests in progress grew since the sample before, per second and as a fraction of
    /// those that ended. None if it is unknown.
    fn growth(&self, before: &Self, interval: f64) -> Option<f64> {
        Some((self.in_flight? - before.in_flight?) / interval / self.rate)
    }

    fn load_per_instance(&self) -> Option<f64> {
        (self.instances >= 1.0).then(|| self.rate / self.instances)
    }
}

/// What one instance may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstanceLimits {
    /// CPU cores.
    pub cpu: f64,
    /// Concurrent requests; none if they aren't limited.
    pub concurrency: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    Cpu,
    Concurrency,
    /// The latency bound was exceeded at a load that CPU and concurrency would allow.
    Saturation,
    /// An earlier value: there are too few requests now.
    Earlier,
}

impl Evidence {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "by its CPU",
            Self::Concurrency => "by its concurrency",
            Self::Saturation => "by observed saturation",
            Self::Earlier => "as learned earlier",
        }
    }
}

/// What was learned before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// In seconds.
    pub service_time: f64,
    /// The factor by which observed violations lengthened it; at least 1.
    pub correction: f64,
    /// Seconds since the violations.
    pub age: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Seconds that an instance is busy with one request.
    pub service_time: f64,
    /// The factor by which observed violations lengthened it; at least 1.
    pub correction: f64,
    /// Seconds that a request may wait for an instance.
    pub wait: f64,
    pub evidence: Evidence,
    /// From 0 to 1.
    pub confidence: f64,
}

impl Capacity {
    /// The correction by violations that are observed now. None if the remembered one covers it.
    pub fn new_correction(&self, earlier: Option<Learned>) -> Option<f64> {
        let remembered = earlier.map_or(1.0, remembered_correction);
        Some(self.correction).filter(|it| *it > remembered * NEW_CORRECTION)
    }
}

/// Learns the capacity from samples at equal intervals in seconds. `bound` is that of the latency. None if nothing
/// is known.
pub fn learn(
    samples: &[LoadSample],
    interval: f64,
    limits: &InstanceLimits,
    bound: Option<f64>,
    earlier: Option<Learned>,
) -> Option<Capacity> {
    let used: Vec<_> = samples.iter().filter(|it| it.rate >= MIN_RATE).copied().collect();
    let steady: Vec<_> = samples
        .iter()
        .zip(samples.iter().skip(1))
        .filter(|(_, it)| it.rate >= MIN_RATE)
        .filter(|(before, it)| it.growth(before, interval).is_none_or(|it| it <= STEADY_GROWTH))
        .map(|(_, it)| *it)
        .collect();
    let known = count(used.len());
    let confidence = known / (known + HALF_CONFIDENCE);
    let measured = measure(&steady, limits).or_else(|| measure(&used, limits));
    let Some((service_time, evidence)) = measured else {
        let service_time = earlier.map(|it| it.service_time).filter(|it| is_valid(*it))?;
        let wait = wait(samples, bound, service_time);
        let evidence = Evidence::Earlier;
        return Some(Capacity { service_time, correction: 1.0, wait, evidence, confidence });
    };
    let wait = wait(samples, bound, service_time);
    let uncorrected = Capacity { service_time, correction: 1.0, wait, evidence, confidence };
    let observed = bound.and_then(|bound| correction(samples, &uncorrected, bound)).unwrap_or(1.0);
    let remembered = earlier.map_or(1.0, remembered_correction);
    let correction = observed.max(remembered);
    if correction <= 1.0 {
        return Some(uncorrected);
    }
    let service_time = service_time * correction;
    Some(Capacity { service_time, correction, evidence: Evidence::Saturation, ..uncorrected })
}

fn is_valid(seconds: f64) -> bool {
    seconds.is_finite() && seconds > 0.0
}

/// The service time by the scarcest resource.
fn measure(samples: &[LoadSample], limits: &InstanceLimits) -> Option<(f64, Evidence)> {
    let busy = |resource: fn(&LoadSample) -> Option<f64>, limit: f64| {
        let known = samples.iter().filter_map(|it| Some((resource(it)?, it.rate)));
        let (amount, rate) = known.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        Some(amount / rate / limit).filter(|it| is_valid(*it))
    };
    let cpu = busy(|it| it.cpu, limits.cpu).map(|it| (it, Evidence::Cpu));
    let concurrency = limits.concurrency.and_then(|limit| {
        busy(|it| it.in_flight, f64::from(limit)).map(|it| (it, Evidence::Concurrency))
    });
    match (cpu, concurrency) {
        (Some(cpu), Some(concurrency)) if concurrency.0 > cpu.0 => Some(concurrency),
        (cpu, concurrency) => cpu.or(concurrency),
    }
}

fn remembered_correction(earlier: Learned) -> f64 {
    let Learned { correction, age, .. } = earlier;
    if !(1.0..=MAX_CORRECTION).contains(&correction) {
        return 1.0;
    }
    1.0 + (correction - 1.0) * 0.5_f64.powf((age / CORRECTION_MEMORY - 1.0).max(0.0))
}

/// What the bound leaves beside the latency of an idle function: the lowest that was observed, without
/// the time that requests waited in it.
fn wait(samples: &[LoadSample], bound: Option<f64>, service_time: f64) -> f64 {
    let Some(bound) = bound else { return DEFAULT_WAIT * service_time };
    let idle = |(at, sample): (usize, &LoadSample)| {
        let latency = sample.latency.filter(|it| *it <= bound && sample.rate >= MIN_RATE)?;
        if !is_steady(samples, at) {
            return Some(latency);
        }
        let instances = crate::convert::ceil(sample.instances);
        let waited = wait_quantile(instances, sample.rate * service_time) * service_time;
        Some((latency - waited).max(latency.min(service_time)))
    };
    let idle = samples.iter().enumerate().filter_map(idle).reduce(f64::min);
    (bound - idle.unwrap_or(service_time)).max(bound * MIN_WAIT)
}

/// By how much longer a request keeps an instance busy than `capacity` says, if the bound was exceeded
/// at loads that it would allow.
fn correction(samples: &[LoadSample], capacity: &Capacity, bound: f64) -> Option<f64> {
    let mut violated = Vec::new();
    let mut met = 0.0_f64;
    let mut instances = 0.0_f64;
    for (at, sample) in samples.iter().enumerate() {
        let (Some(load), Some(latency)) = (sample.load_per_instance(), sample.latency) else {
            continue;
        };
        if sample.rate < MIN_RATE {
            continue;
        }
        if latency <= bound {
            met = met.max(load);
        } else if is_steady(samples, at) {
            violated.push(load);
            instances = instances.max(sample.instances);
        }
    }
    violated.sort_by(f64::total_cmp);
    let at = ceil_items(count(violated.len().checked_sub(1)?) * SATURATION_QUANTILE);
    let saturated = violated.get(at).copied().filter(|it| *it > met && *it > 0.0)?;
    let factor = highest_load(capacity, instances) / (saturated * SATURATION_MARGIN);
    (factor > 1.0).then(|| factor.min(MAX_CORRECTION))
}

/// Whether load and instances were constant while the latency of a sample was measured: otherwise it is
/// that of other loads.
fn is_steady(samples: &[LoadSample], at: usize) -> bool {
    let Some(start) = at.checked_sub(LATENCY_SAMPLES) else { return false };
    let end = samples.len().min(at + LATENCY_SAMPLES);
    let around = samples.get(start..end).unwrap_or_default();
    let range = |value: fn(&LoadSample) -> f64| {
        let values = around.iter().map(value);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
    };
    let (lowest, highest) = range(|it| it.rate);
    let (fewest, most) = range(|it| it.instances);
    highest <= lowest * STEADY_LOAD && most - fewest < 0.5
}

/// The highest load per instance that keeps waiting times within the bound.
fn highest_load(capacity: &Capacity, instances: f64) -> f64 {
    let number = crate::convert::ceil(instances).max(1);
    let wait = capacity.wait / capacity.service_time;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..20 {
        let utilisation = f64::midpoint(low, high);
        if wait_quantile(number, utilisation * f64::from(number)) <= wait {
            low = utilisation;
        } else {
            high = utilisation;
        }
    }
    low / capacity.service_time
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: InstanceLimits = InstanceLimits { cpu: 0.1, concurrency: None };

    /// Requests that take 5 ms of CPU each.
    fn sample(rate: f64, instances: f64, latency: f64) -> LoadSample {
        LoadSample {
            rate,
            instances,
            latency: Some(latency),
            cpu: Some(rate * 0.005),
            ..LoadSample::default()
        }
    }

    #[test]
    fn service_time_follows_from_the_scarcest_resource() {
        let samples = [sample(10.0, 1.0, 0.02); 5];
        let capacity = learn(&samples, 15.0, &LIMITS, Some(0.2), None).unwrap();
        assert!((capacity.service_time - 0.05).abs() < 1e-9, "{capacity:?}");
        assert!((capacity.wait - 0.18).abs() < 1e-9, "{capacity:?}");
        assert_eq!((capacity.evidence, capacity.confidence), (Evidence::Cpu, 0.5));
        // Two requests at a time take 0.2 s each.
        let busy = samples.map(|it| LoadSample { in_flight: Some(it.rate * 0.2), ..it });
        let limits = InstanceLimits { concurrency: Some(2), ..LIMITS };
        let capacity = learn(&busy, 15.0, &limits, None, None).unwrap();
        assert!((capacity.service_time - 0.1).abs() < 1e-9, "{capacity:?}");
        assert_eq!(capacity.evidence, Evidence::Concurrency);
    }

    #[test]
    fn without_requests_the_earlier_value_counts() {
        let idle = [sample(0.0, 1.0, 0.02); 5];
        assert_eq!(learn(&idle, 15.0, &LIMITS, Some(0.2), None), None);
        let earlier = |service_time: f64| Learned { service_time, correction: 1.0, age: 60.0 };
        let capacity = learn(&idle, 15.0, &LIMITS, Some(0.2), Some(earlier(0.07))).unwrap();
        assert!((capacity.service_time - 0.07).abs() < 1e-9);
        assert_eq!((capacity.evidence, capacity.confidence), (Evidence::Earlier, 0.0));
        assert_eq!(learn(&idle, 15.0, &LIMITS, None, Some(earlier(f64::NAN))), None);
    }

    #[test]
    fn saturation_below_the_expected_load_corrects_the_service_time() {
        // By its CPU an instance serves 20/s, but at 4/s it is too slow.
        let mut samples = vec![sample(2.0, 1.0, 0.05); 5];
        samples.extend([sample(4.0, 1.0, 0.9); 5]);
        let capacity = learn(&samples, 15.0, &LIMITS, Some(0.2), None).unwrap();
        assert_eq!(capacity.evidence, Evidence::Saturation);
        assert!(capacity.service_time > 0.05 && capacity.service_time <= 0.2, "{capacity:?}");
        assert!(highest_load(&capacity, 1.0) < 4.0);
    }

    #[test]
    fn requests_that_have_not_ended_cost_nothing_yet() {
        let mut samples = vec![LoadSample { in_flight: Some(1.0), ..sample(10.0, 1.0, 0.02) }; 3];
        // At first few of many requests end, although all use the CPU.
        let busy = LoadSample { rate: 4.0, cpu: Some(0.1), ..samples[0] };
        samples.push(LoadSample { in_flight: Some(300.0), ..busy });
        let capacity = learn(&samples, 15.0, &LIMITS, Some(0.2), None).unwrap();
        assert!((capacity.service_time - 0.05).abs() < 1e-9, "{capacity:?}");
        let capacity = learn(&samples[3..], 15.0, &LIMITS, Some(0.2), None).unwrap();
        assert!(capacity.service_time > 0.2, "the best that is known: {capacity:?}");
    }

    #[test]
    fn a_correction_is_remembered_and_fades() {
        let samples = [sample(10.0, 1.0, 0.02); 5];
        let factor = |age: f64| {
            let earlier = Learned { service_time: 0.1, correction: 2.0, age };
            learn(&samples, 15.0, &LIMITS, Some(0.2), Some(earlier)).unwrap().correction
        };
        assert!((factor(0.0) - 2.0).abs() < 1e-9);
        assert!((factor(CORRECTION_MEMORY) - 2.0).abs() < 1e-9);
        assert!((factor(2.0 * CORRECTION_MEMORY) - 1.5).abs() < 1e-9);
        assert!((factor(-1e9) - 2.0).abs() < 1e-9, "a clock that jumped back");
        assert!(factor(1e9) < 1.001);
    }

    #[test]
    fn only_a_new_correction_replaces_the_remembered_one() {
        let capacity = |correction: f64| {
            let capacity = learn(&[sample(10.0, 1.0, 0.02); 5], 15.0, &LIMITS, None, None);
            Capacity { correction, ..capacity.unwrap() }
        };
        let earlier = |age: f64| Some(Learned { service_time: 0.1, correction: 2.0, age });
        assert_eq!(capacity(1.01).new_correction(None), None);
        assert_eq!(capacity(1.5).new_correction(None), Some(1.5));
        assert_eq!(capacity(2.03).new_correction(earlier(0.0)), None);
        assert_eq!(capacity(2.5).new_correction(earlier(0.0)), Some(2.5));
        // It has faded, and is observed again.
        assert_eq!(capacity(2.0).new_correction(earlier(3.0 * CORRECTION_MEMORY)), Some(2.0));
    }

    #[test]
    fn a_burst_is_no_saturation() {
        // The latency is that of the burst, for all samples that it is measured over.
        let mut samples = vec![sample(4.0, 1.0, 0.02); 8];
        samples.extend([sample(4.0, 1.0, 0.9), sample(16.0, 1.0, 0.9), sample(20.0, 1.0, 0.9)]);
        samples.extend([sample(12.0, 2.0, 0.9); 4]);
        for known in 8..=samples.len() {
            let capacity = learn(&samples[..known], 15.0, &LIMITS, Some(0.2), None).unwrap();
            assert_eq!(capacity.evidence, Evidence::Cpu, "{known}: {capacity:?}");
        }
    }

    #[test]
    fn load_after_a_pause_is_not_steady() {
        let mut samples = vec![sample(10.0, 1.0, 0.02); 6];
        samples.extend([sample(0.0, 1.0, 0.0); 8]);
        samples.extend([sample(11.0, 1.0, 0.9); 3]);
        let capacity = learn(&samples, 15.0, &LIMITS, Some(0.2), None).unwrap();
        assert_eq!(capacity.evidence, Evidence::Cpu, "{capacity:?}");
    }

    #[test]
    fn a_backlog_is_no_saturation() {
        // At full load an instance serves 20/s; later, others have taken over and it works off its queue.
        let mut samples = vec![sample(20.0, 1.0, 2.0); 4];
        samples.extend([sample(22.0, 4.0, 1.0); 3]);
        samples.extend([sample(40.0, 4.0, 0.1); 3]);
        let capacity = learn(&samples, 15.0, &LIMITS, Some(0.2), None).unwrap();
        assert_eq!(capacity.evidence, Evidence::Cpu);
    }

    proptest! {
        #[test]
        fn it_is_positive_and_finite(
            samples in proptest::collection::vec(
                (0.0..1e4_f64, 0..50_u32, 0.0..10.0_f64, 0.0..100.0_f64), 0..45),
            bound in proptest::option::of(0.001..10.0_f64),
            earlier in proptest::option::of((1e-4..1.0_f64, 0.0..10.0_f64, -1e6..1e6_f64)),
        ) {
            let samples: Vec<_> = samples
                .into_iter()
                .map(|(rate, instances, latency, cpu)| LoadSample {
                    cpu: Some(cpu),
                    ..sample(rate, f64::from(instances), latency)
                })
                .collect();
            let earlier = earlier.map(|(service_time, correction, age)| Learned {
                service_time, correction, age,
            });
            if let Some(capacity) = learn(&samples, 15.0, &LIMITS, bound, earlier) {
                prop_assert!(capacity.service_time > 0.0 && capacity.service_time.is_finite());
                prop_assert!(capacity.wait > 0.0 && capacity.wait.is_finite());
                prop_assert!((0.0..=1.0).contains(&capacity.confidence));
            }
        }
    }
}
