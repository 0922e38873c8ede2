//! What CRM would measure of the function: the averages and the delays of its metrics.

use std::collections::VecDeque;

use crate::{
    capacity::LoadSample,
    compliance::{LoadPoint, LoadWindow},
    convert::count,
    queueing::{QUANTILE, wait_probability},
};

use super::{INTERVAL, PATIENCE};

/// Samples that CRM reads: ten minutes.
const SAMPLES: usize = 41;
/// Latencies are read once in this many samples: as often as the rate window is long.
const LATENCY_STRIDE: usize = 4;
/// Age of the newest sample, in seconds: passes start shortly after the time of a sample.
const SAMPLE_AGE: usize = 1;
/// Age of the newest scrape at the time of a sample, in seconds: half a scrape interval.
const SCRAPE_AGE: usize = 8;
/// Seconds between the last two scrapes, of which request rates are.
const RECENT_SECONDS: usize = 15;
/// Seconds between the first and the last of the four scrapes of a rate window, for CPU and latency.
const WINDOW_SECONDS: usize = 45;
/// Seconds that are kept.
const KEPT: usize = SAMPLE_AGE + SCRAPE_AGE + WINDOW_SECONDS;

/// One second of the function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Second {
    pub(super) ready: u32,
    /// Calls that arrived.
    pub(super) rate: f64,
    /// Busy instances.
    pub(super) busy: f64,
    /// Calls that gave up.
    pub(super) lost: f64,
    /// Calls that wait since earlier seconds.
    pub(super) backlog: f64,
    /// Of one call.
    pub(super) service_time: f64,
}

impl Second {
    fn ended(&self) -> f64 {
        self.busy / self.service_time + self.lost
    }

    fn offered(&self) -> f64 {
        self.rate * self.service_time
    }

    fn in_flight(&self) -> f64 {
        let Waits { probability, mean, .. } = self.waits();
        self.busy + self.backlog + self.rate * probability * mean
    }

    fn waits(&self) -> Waits {
        let ready = f64::from(self.ready);
        let idle = ready - self.offered();
        let probability =
            if idle > 0.0 { wait_probability(self.ready, self.offered()) } else { 1.0 };
        // A queue doesn't form in less time than it takes to wait in it.
        let mean = if idle > 0.0 { (self.service_time / idle).min(1.0) } else { 1.0 };
        let behind = (self.backlog * self.service_time / ready).min(PATIENCE);
        Waits { behind, probability, mean }
    }
}

/// The waiting times of the calls of a second.
struct Waits {
    /// Seconds that each waits for the calls of earlier seconds.
    behind: f64,
    /// Whether it waits for other calls ...
    probability: f64,
    /// ... and how long on average, exponentially distributed.
    mean: f64,
}

impl Waits {
    /// The share of calls that wait longer than `seconds`.
    fn longer_than(&self, seconds: f64) -> f64 {
        if seconds < self.behind {
            1.0
        } else {
            self.probability * (-(seconds - self.behind) / self.mean).exp()
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Signals {
    seconds: VecDeque<Second>,
    /// One at each interval, the newest last.
    samples: VecDeque<LoadSample>,
}

impl Signals {
    pub(super) fn record(&mut self, second: Second) {
        if self.seconds.len() == KEPT {
            self.seconds.pop_front();
        }
        self.seconds.push_back(second);
    }

    /// Adds the sample of an interval.
    pub(super) fn sample(&mut self) {
        let known = self.seconds.len();
        let Some(end) = known.checked_sub(SAMPLE_AGE + SCRAPE_AGE).filter(|it| *it > 0) else {
            return;
        };
        let Some(present) = self.seconds.get(known - 1 - SAMPLE_AGE) else { return };
        let window: Vec<Second> = self.seconds.range(..end).copied().collect();
        let recent = window.get(end.saturating_sub(RECENT_SECONDS)..).unwrap_or_default();
        let sample = LoadSample {
            rate: mean(recent, Second::ended),
            rejected: 0.0,
            instances: f64::from(present.ready),
            latency: latency(&window),
            cpu: Some(mean(&window, |it| it.busy)),
            in_flight: window.last().map(Second::in_flight),
            queued: None,
        };
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples as a pass reads them. A latency counts for the samples since the one before.
    pub(super) fn read(&self) -> Vec<LoadSample> {
        let last = self.samples.len().saturating_sub(1);
        let latency = |at: usize| {
            self.samples.get(last - (last - at) / LATENCY_STRIDE * LATENCY_STRIDE)?.latency
        };
        let sample = |(at, it): (usize, &LoadSample)| LoadSample { latency: latency(at), ..*it };
        self.samples.iter().enumerate().map(sample).collect()
    }

    pub(super) fn ready(&self) -> u32 {
        self.seconds.back().map_or(0, |it| it.ready)
    }
}

fn mean(seconds: &[Second], value: fn(&Second) -> f64) -> f64 {
    seconds.iter().map(value).sum::<f64>() / count(seconds.len())
}

/// The 95th percentile of latency; none without calls.
fn latency(seconds: &[Second]) -> Option<f64> {
    let calls: f64 = seconds.iter().map(|it| it.rate).sum();
    let service_time = seconds.first()?.service_time;
    let waits: Vec<_> = seconds.iter().map(|it| (it.rate, it.waits())).collect();
    let (mut low, mut high) = (0.0, 2.0 * PATIENCE);
    let longer = |wait: f64| waits.iter().map(|it| it.0 * it.1.longer_than(wait)).sum::<f64>();
    if longer(0.0) <= (1.0 - QUANTILE) * calls {
        return (calls > 0.0).then_some(service_time);
    }
    for _ in 0..16 {
        let middle = f64::midpoint(low, high);
        if longer(middle) <= (1.0 - QUANTILE) * calls { high = middle } else { low = middle }
    }
    Some(service_time + high)
}

/// The points of the samples, which CRM compares with the requirement.
pub(super) fn points(samples: &[LoadSample], now: u32) -> Vec<LoadPoint> {
    let last = samples.len().saturating_sub(1);
    let step = i64::from(INTERVAL) * 1000;
    let point = |(at, it): (usize, &LoadSample)| LoadPoint {
        at: i64::from(now) * 1000 - i64::try_from(last - at).unwrap_or_default() * step,
        rate: Some(it.rate),
        latency: it.latency.map(|it| it * 1000.0),
        ..LoadPoint::default()
    };
    samples.iter().enumerate().map(point).collect()
}

/// A window of points up to the present.
pub(super) fn window(points: &[LoadPoint], now: u32) -> LoadWindow<'_> {
    let end = i64::from(now) * 1000;
    let max_gap = i64::from(INTERVAL) * 3000;
    LoadWindow { points, start: points.first().map_or(end, |it| it.at), end, max_gap }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        capacity::{InstanceLimits, learn},
        queueing::wait_quantile,
    };

    const SERVICE_TIME: f64 = 0.1;

    fn second(rate: f64, ready: u32) -> Second {
        let busy = rate * SERVICE_TIME;
        Second { ready, rate, busy, lost: 0.0, backlog: 0.0, service_time: SERVICE_TIME }
    }

    /// The samples after as many seconds.
    fn samples(seconds: impl IntoIterator<Item = Second>) -> Vec<LoadSample> {
        let mut signals = Signals::default();
        for (now, second) in (0_u32..).zip(seconds) {
            signals.record(second);
            if now > 0 && now % INTERVAL == 0 {
                signals.sample();
            }
        }
        signals.read()
    }

    #[test]
    fn capacity_is_learned_from_the_signals() {
        let samples = samples(vec![second(80.0, 12); 601]);
        let limits = InstanceLimits { cpu: 1.0, concurrency: None };
        let capacity = learn(&samples, f64::from(INTERVAL), &limits, Some(0.3), None).unwrap();
        assert!((capacity.service_time - SERVICE_TIME).abs() < 1e-9, "{capacity:?}");
        assert!(capacity.wait <= 0.2 && capacity.wait > 0.1, "{capacity:?}");
        let latency = samples.last().unwrap().latency.unwrap();
        let expected = SERVICE_TIME * (1.0 + wait_quantile(12, 8.0));
        assert!((latency - expected).abs() < 0.001, "{latency} {expected}");
    }

    #[test]
    fn nothing_is_known_at_first() {
        assert_eq!(samples([second(80.0, 12); 15]), []);
        let none = samples([second(0.0, 1); 46]);
        assert!(none.iter().all(|it| it.latency.is_none() && it.rate.abs() < 1e-9), "{none:?}");
    }

    #[test]
    fn rates_are_late_and_latencies_are_later() {
        let step = |now: u32| second(if now < 300 { 40.0 } else { 80.0 }, 9);
        let after = |seconds: u32| *samples((0..=300 + seconds).map(step)).last().unwrap();
        assert!((after(0).rate - 40.0).abs() < 1e-9);
        // Half of the scrapes' time was before the step.
        assert!((after(15).rate - 60.0).abs() < 3.0, "{:?}", after(15));
        assert!((after(30).rate - 80.0).abs() < 3.0, "{:?}", after(30));
        // CPU is an average over a longer time.
        assert!(after(30).cpu.unwrap() < 6.0, "{:?}", after(30));
        assert!((after(60).cpu.unwrap() - 8.0).abs() < 1e-9);
    }
}
