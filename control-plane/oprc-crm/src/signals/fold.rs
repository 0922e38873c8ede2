//! From answers about pods to signals of components.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    collect::QueryResults,
    observed::{ComponentSignals, Observed, Signal, StartUpTime},
    pods::{ComponentId, PodIndex, PodRef},
    quantile::bucket_quantile,
    query::Query,
    rows::{Dimension, PodRows, Row},
    window::Window,
};
use crate::provider::Point;

/// Steps after which the latest value is stale.
const STALE_STEPS: i32 = 3;
/// Scrapes after which a pod that is ready must have values.
const SCRAPES_UNTIL_KNOWN: i32 = 2;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// Every component of the index, be its signals known or not.
    pub components: BTreeMap<ComponentId, ComponentSignals>,
    /// Series of pods that aren't in the index.
    pub ignored_series: usize,
}

/// The signals of all components.
///
/// A value of a component is known where every pod has one that is ready and was scraped twice since,
/// or had a value before. Of several sources, the first with a current value counts.
pub fn fold(
    results: &QueryResults,
    index: &PodIndex,
    scrape_interval: Duration,
    now: Timestamp,
) -> Folded {
    let folding = Folding::new(results, index, scrape_interval, now);
    let components = index.components().map(|(id, pods)| (id.clone(), folding.fold(pods)));
    let ignored = results.answers.values().flatten().map(|rows| rows.ignored);
    Folded { components: components.collect(), ignored_series: ignored.sum() }
}
/// As [`fold`], for one component at a time: the signals of all take more memory than the answers.
pub struct Folding<'a> {
    results: &'a QueryResults,
    index: &'a PodIndex,
    /// An earlier value is stale.
    oldest: Timestamp,
    /// How long a pod may be ready without having values.
    warm_up: SignedDuration,
}

impl<'a> Folding<'a> {
    pub fn new(
        results: &'a QueryResults,
        index: &'a PodIndex,
        scrape_interval: Duration,
        now: Timestamp,
    ) -> Self {
        let oldest = before(now, scale(results.window.step(), STALE_STEPS));
        let warm_up = scale(scrape_interval, SCRAPES_UNTIL_KNOWN);
        Self { results, index, oldest, warm_up }
    }

    /// None if the component has no pods.
    pub fn component(&self, id: &ComponentId) -> Option<ComponentSignals> {
        self.index.pods_of(id).map(|pods| self.fold(pods))
    }

    fn fold(&self, pods: &[usize]) -> ComponentSignals {
        let Self { results, index, oldest, warm_up } = *self;
        let pods = pods.iter().filter_map(|number| Some((*number, index.get(*number)?))).collect();
        Folder { results, window: results.window, oldest, warm_up, pods }.signals()
    }
}

fn scale(duration: Duration, factor: i32) -> SignedDuration {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    duration.checked_mul(factor).unwrap_or(SignedDuration::MAX)
}

fn before(at: Timestamp, age: SignedDuration) -> Timestamp {
    at.checked_sub(age).unwrap_or(Timestamp::MIN)
}

fn after(at: Timestamp, age: SignedDuration) -> Timestamp {
    at.checked_add(age).unwrap_or(Timestamp::MAX)
}

#[derive(Clone, Copy)]
enum Over {
    Sum,
    Max,
}

/// What is needed to fold one component.
struct Folder<'a> {
    results: &'a QueryResults,
    window: Window,
    oldest: Timestamp,
    warm_up: SignedDuration,
    pods: Vec<(usize, &'a PodRef)>,
}

impl<'a> Folder<'a> {
    fn signals(&self) -> ComponentSignals {
        let mut found = ComponentSignals {
            start_up: self.start_up(),
            ready: self.ready(),
            ..ComponentSignals::default()
        };
        for query in Query::ALL {
            for (signal, row) in self.rows_of(query) {
                if let Some(observed) = self.observed(query, row) {
                    // Queries are in the order of their sources.
                    found.signals.entry(signal).or_insert(observed);
                }
            }
        }
        found
    }

    fn rows_of(&self, query: Query) -> Vec<(Signal, Row)> {
        let of_pods = |over: Over| self.combine(query, over, single);
        match query {
            Query::ProxyRequests | Query::KnativeRequests | Query::OwnRequests => {
                self.requests(query)
            }
            Query::ProxyLatency | Query::KnativeLatency | Query::OwnLatency => {
                self.latencies(query)
            }
            Query::ProxyInFlight | Query::KnativeInFlight => {
                vec![(Signal::InFlight, of_pods(Over::Sum))]
            }
            Query::ProxyQueueLength | Query::KnativeQueueLength => {
                vec![(Signal::QueueLength, of_pods(Over::Sum))]
            }
            Query::ProxyRejected => vec![(Signal::RejectedRate, of_pods(Over::Sum))],
            Query::ProxyHardLatencyBreaches => {
                vec![(Signal::HardLatencyBreaches, of_pods(Over::Sum))]
            }
            Query::Cpu => {
                vec![(Signal::Cpu, of_pods(Over::Sum)), (Signal::CpuMax, of_pods(Over::Max))]
            }
            Query::Memory => vec![(Signal::MemoryMax, of_pods(Over::Max))],
            Query::CpuThrottling => vec![(Signal::CpuThrottling, of_pods(Over::Max))],
            Query::OomEvents => vec![(Signal::OomEvents, of_pods(Over::Sum))],
        }
    }

    fn requests(&self, query: Query) -> Vec<(Signal, Row)> {
        let total = self.combine(query, Over::Sum, |rows, at| sum(rows, at, |_| true));
        let errors = self.combine(query, Over::Sum, |rows, at| {
            // Requests without an outcome may be errors.
            let unlabelled = sum(rows, at, str::is_empty).unwrap_or_default();
            let all = sum(rows, at, |_| true).filter(|_| unlabelled <= 0.0)?;
            Some(sum(rows, at, |outcome| query.is_error(outcome)).unwrap_or_default().min(all))
        });
        let ratio = total.iter().zip(&errors).map(|(total, errors)| {
            let total = total.filter(|total| *total > 0.0)?;
            Some((errors.as_ref()? / total).min(1.0))
        });
        let ratio = ratio.collect();
        vec![(Signal::Rate, total), (Signal::ErrorRatio, ratio)]
    }

    fn latencies(&self, query: Query) -> Vec<(Signal, Row)> {
        // Whether each pod is known is the same for every bucket.
        let known = self.combine(query, Over::Sum, total_of_buckets);
        let histogram = |(at, known): (usize, &Option<f64>)| known.map(|_| self.buckets(query, at));
        let histograms: Vec<_> = known.iter().enumerate().map(histogram).collect();
        let quantile = |q: f64| -> Row {
            let each = histograms.iter().map(|it| bucket_quantile(q, it.as_deref()?));
            self.spread(&each.collect::<Row>())
        };
        vec![
            (Signal::LatencyP50, quantile(0.5)),
            (Signal::LatencyP95, quantile(0.95)),
            (Signal::LatencyP99, quantile(0.99)),
        ]
    }

    /// The sum of the histograms of all pods that had requests, over the bounds that all of them have:
    /// versions of a function may differ in their bounds.
    fn buckets(&self, query: Query, at: usize) -> Vec<(f64, f64)> {
        let mut sums: BTreeMap<u64, (usize, f64)> = BTreeMap::new();
        let mut pods = 0;
        for (number, _) in &self.pods {
            let Some(rows) = self.rows(query, *number) else { continue };
            if total_of_buckets(rows, at).is_none_or(|total| total <= 0.0) {
                continue;
            }
            pods += 1;
            for (dimension, row) in rows.iter() {
                let (Dimension::UpperBound(bound), Some(count)) = (dimension, row.get(at)) else {
                    continue;
                };
                let (pods, sum) = sums.entry(*bound).or_default();
                *pods += 1;
                *sum += count;
            }
        }
        let common = sums.into_iter().filter(|(_, (of, _))| *of == pods);
        common.map(|(bound, (_, sum))| (f64::from_bits(bound), sum)).collect()
    }

    /// From the times of histograms to all. A value is measured over the rate window, so it holds for
    /// the times since the one before. If it is unknown, that one holds for these until it is stale.
    fn spread(&self, row: &[Option<f64>]) -> Row {
        let histograms = self.results.histogram_window;
        let stale_after = scale(self.window.step(), STALE_STEPS);
        let known = |index: usize| row.get(index).copied().flatten();
        let value = |at: Timestamp| {
            let next = histograms.first_from(at);
            let before = next.checked_sub(1).filter(|_| histograms.index(at).is_none());
            let before = before.filter(|it| at.duration_since(histograms.at(*it)) <= stale_after);
            known(next).or_else(|| known(before?))
        };
        (0..self.window.len()).map(|index| value(self.window.at(index))).collect()
    }

    fn rows(&self, query: Query, pod: usize) -> Option<&'a PodRows> {
        self.results.answers.get(&query)?.as_ref().ok()?.get(pod)
    }

    /// Combines the values of all pods at each time of the query.
    fn combine(
        &self,
        query: Query,
        over: Over,
        value: impl Fn(&PodRows, usize) -> Option<f64>,
    ) -> Row {
        let histograms = self.results.histogram_window;
        let window = if query.is_histogram() { histograms } else { self.window };
        let times = 0..window.len();
        let mut combined: Row = vec![None; times.len()];
        let mut missing = vec![false; times.len()];
        for (number, pod) in &self.pods {
            let rows = self.rows(query, *number);
            // The latest scrapes of a pod that was deleted say nothing about the present.
            let end = pod.deleted_at.filter(|_| query.is_recent());
            let end = end.map_or(usize::MAX, |deleted| window.first_from(deleted));
            let value = |at: usize| rows.filter(|_| at < end).and_then(|rows| value(rows, at));
            let row: Row = times.clone().map(value).collect();
            let required_from = self.required_from(pod, &row, window);
            let cells = combined.iter_mut().zip(&mut missing);
            for (at, (of_pod, (cell, missing))) in row.into_iter().zip(cells).enumerate() {
                match (of_pod, *cell) {
                    (None, _) => *missing |= at >= required_from,
                    (Some(value), None) => *cell = Some(value),
                    (Some(value), Some(others)) => {
                        *cell = Some(match over {
                            Over::Sum => others + value,
                            Over::Max => others.max(value),
                        });
                    }
                }
            }
        }
        let complete = combined.into_iter().zip(missing);
        complete.map(|(value, missing)| value.filter(|_| !missing)).collect()
    }

    /// The first time from which the component is unknown without this pod.
    fn required_from(&self, pod: &PodRef, row: &Row, window: Window) -> usize {
        if !pod.ready || pod.deleted_at.is_some() {
            return usize::MAX;
        }
        let since = pod.ready_at.map_or(pod.created, |ready| ready.max(pod.created));
        let scraped = window.first_from(after(since, self.warm_up));
        row.iter().position(Option::is_some).map_or(scraped, |first| first.min(scraped))
    }

    fn observed(&self, query: Query, row: Row) -> Option<Observed> {
        let points = row.into_iter().enumerate();
        let points: Vec<_> = points
            .filter_map(|(at, value)| Some(Point { at: self.window.at(at), value: value? }))
            .collect();
        let Point { at, value } = *points.last().filter(|latest| latest.at >= self.oldest)?;
        Some(Observed { points, latest: value, at, source: query.source() })
    }

    fn ready(&self) -> Vec<u32> {
        let at_time = |index: usize| {
            let at = self.window.at(index);
            let was_ready = |pod: &PodRef| {
                pod.ready_at.is_some_and(|ready| ready <= at)
                    && pod.deleted_at.is_none_or(|deleted| deleted > at)
            };
            self.pods.iter().fold(0, |sum, (_, pod)| sum + u32::from(was_ready(pod)))
        };
        (0..self.window.len()).map(at_time).collect()
    }

    fn start_up(&self) -> Option<StartUpTime> {
        let time = |pod: &PodRef| {
            let time = pod.ready_at?.duration_since(pod.created).as_secs_f64();
            (time >= 0.0).then_some(time)
        };
        let mut times: Vec<f64> = self.pods.iter().filter_map(|(_, pod)| time(pod)).collect();
        times.sort_by(f64::total_cmp);
        // The nearest rank.
        let rank = (times.len() * 9).div_ceil(10);
        let p90 = *times.get(rank.checked_sub(1)?)?;
        Some(StartUpTime { p90, pods: times.len() })
    }
}

fn single(rows: &PodRows, at: usize) -> Option<f64> {
    rows.get(&Dimension::Label("".into())).and_then(|row| row.get(at))
}

/// None if there is no value at all.
fn sum(rows: &PodRows, at: usize, include: impl Fn(&str) -> bool) -> Option<f64> {
    let values = rows.iter().filter_map(|(dimension, row)| match dimension {
        Dimension::Label(label) if include(label) => row.get(at),
        _ => None,
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or_default() + value))
}

fn total_of_buckets(rows: &PodRows, at: usize) -> Option<f64> {
    let infinite = Dimension::UpperBound(f64::INFINITY.to_bits());
    rows.get(&infinite).and_then(|row| row.get(at))
}
