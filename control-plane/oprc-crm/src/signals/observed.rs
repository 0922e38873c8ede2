use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::query::Source;
use crate::provider::Point;

/// A measured property of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Requests per second, of all pods.
    Rate,
    /// Latencies in seconds, over the requests of all pods. Without requests they are unknown.
    LatencyP50,
    LatencyP95,
    LatencyP99,
    /// Share of requests that failed on the server's side, from 0 to 1. Without requests it is unknown.
    ErrorRatio,
    /// Rejected requests per second, of all pods.
    RejectedRate,
    /// Requests in progress at the latest scrape, of all pods.
    InFlight,
    /// Requests that wait for a free slot, of all pods.
    QueueLength,
    /// Requests per second that exceeded the hard latency bound, of all pods.
    HardLatencyBreaches,
    /// CPU cores in use, of all pods.
    Cpu,
    /// CPU cores in use by the busiest pod.
    CpuMax,
    /// Working set in bytes of the largest pod.
    MemoryMax,
    /// Share of CPU periods in which the most throttled pod was throttled, from 0 to 1.
    CpuThrottling,
    /// Out-of-memory kills within the rate window, of all pods. cAdvisor starts a new series when a
    /// container restarts, so it can miss some.
    OomEvents,
}

impl Signal {
    pub const ALL: [Self; 14] = [
        Self::Rate,
        Self::LatencyP50,
        Self::LatencyP95,
        Self::LatencyP99,
        Self::ErrorRatio,
        Self::RejectedRate,
        Self::InFlight,
        Self::QueueLength,
        Self::HardLatencyBreaches,
        Self::Cpu,
        Self::CpuMax,
        Self::MemoryMax,
        Self::CpuThrottling,
        Self::OomEvents,
    ];
}

/// The known values of a signal within the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// In order of time, at times of the window; not empty. A gap is unknown. Latencies are read at
    /// fewer times; the others have the values next to them.
    pub points: Vec<Point>,
    pub latest: f64,
    /// When `latest` was measured: at most three steps ago.
    pub at: Timestamp,
    pub source: Source,
}

/// The time from the creation of a pod until it is ready.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartUpTime {
    /// The 90th percentile, in seconds.
    pub p90: f64,
    pub pods: usize,
}

/// What is known about a component; a missing signal is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComponentSignals {
    pub signals: BTreeMap<Signal, Observed>,
    pub start_up: Option<StartUpTime>,
    /// Pods that were ready, at each time of the window.
    pub ready: Vec<u32>,
}

impl ComponentSignals {
    pub fn get(&self, signal: Signal) -> Option<&Observed> {
        self.signals.get(&signal)
    }
}
