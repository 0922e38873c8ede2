//! The queries of a pass. Their number doesn't depend on the number of classes: each returns a signal
//! of all pods, and CRM knows which pods belong to a component.

use std::{collections::BTreeMap, time::Duration};

use super::{promql, window::Window};

/// Where a signal comes from, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// CRM's proxy in front of a function.
    Proxy,
    /// Knative's queue-proxy.
    Knative,
    /// The histogram that a function itself exports.
    OwnHistogram,
    /// The kubelet's metrics of containers.
    CAdvisor,
}

/// A query of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    ProxyRequests,
    ProxyLatency,
    ProxyInFlight,
    ProxyQueueLength,
    ProxyRejected,
    ProxyHardLatencyBreaches,
    KnativeRequests,
    KnativeLatency,
    KnativeInFlight,
    KnativeQueueLength,
    OwnRequests,
    OwnLatency,
    Cpu,
    Memory,
    CpuThrottling,
    OomEvents,
}

/// Bound on a query that replaces a default.
pub const MAX_QUERY_LENGTH: usize = 4096;

/// Scrapes in a rate window: `rate` needs two, and one or two may fail.
const SCRAPES: u32 = 4;

impl Query {
    pub const ALL: [Self; 16] = [
        Self::ProxyRequests,
        Self::ProxyLatency,
        Self::ProxyInFlight,
        Self::ProxyQueueLength,
        Self::ProxyRejected,
        Self::ProxyHardLatencyBreaches,
        Self::KnativeRequests,
        Self::KnativeLatency,
        Self::KnativeInFlight,
        Self::KnativeQueueLength,
        Self::OwnRequests,
        Self::OwnLatency,
        Self::Cpu,
        Self::Memory,
        Self::CpuThrottling,
        Self::OomEvents,
    ];

    /// The last part of its setting, `prometheus.queries.NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProxyRequests => "proxy_requests",
            Self::ProxyLatency => "proxy_latency",
            Self::ProxyInFlight => "proxy_in_flight",
            Self::ProxyQueueLength => "proxy_queue_length",
            Self::ProxyRejected => "proxy_rejected",
            Self::ProxyHardLatencyBreaches => "proxy_hard_latency_breaches",
            Self::KnativeRequests => "knative_requests",
            Self::KnativeLatency => "knative_latency",
            Self::KnativeInFlight => "knative_in_flight",
            Self::KnativeQueueLength => "knative_queue_length",
            Self::OwnRequests => "own_requests",
            Self::OwnLatency => "own_latency",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::CpuThrottling => "cpu_throttling",
            Self::OomEvents => "oom_events",
        }
    }

    pub fn source(self) -> Source {
        match self {
            Self::ProxyRequests
            | Self::ProxyLatency
            | Self::ProxyInFlight
            | Self::ProxyQueueLength
            | Self::ProxyRejected
            | Self::ProxyHardLatencyBreaches => Source::Proxy,
            Self::KnativeRequests
            | Self::KnativeLatency
            | Self::KnativeInFlight
            | Self::KnativeQueueLength => Source::Knative,
            Self::OwnRequests | Self::OwnLatency => Source::OwnHistogram,
            Self::Cpu | Self::Memory | Self::CpuThrottling | Self::OomEvents => Source::CAdvisor,
        }
    }

    /// With the placeholders `$window` and `$recent`, see [`RateWindows`], and `$namespace_matcher`, which
    /// is empty or a label matcher.
    pub fn default_promql(self) -> &'static str {
        match self {
            Self::ProxyRequests => promql::PROXY_REQUESTS,
            Self::ProxyLatency => promql::PROXY_LATENCY,
            Self::ProxyInFlight => promql::PROXY_IN_FLIGHT,
            Self::ProxyQueueLength => promql::PROXY_QUEUE_LENGTH,
            Self::ProxyRejected => promql::PROXY_REJECTED,
            Self::ProxyHardLatencyBreaches => promql::PROXY_HARD_LATENCY_BREACHES,
            Self::KnativeRequests => promql::KNATIVE_REQUESTS,
            Self::KnativeLatency => promql::KNATIVE_LATENCY,
            Self::KnativeInFlight => promql::KNATIVE_IN_FLIGHT,
            Self::KnativeQueueLength => promql::KNATIVE_QUEUE_LENGTH,
            Self::OwnRequests => promql::OWN_REQUESTS,
            Self::OwnLatency => promql::OWN_LATENCY,
            Self::Cpu => promql::CPU,
            Self::Memory => promql::MEMORY,
            Self::CpuThrottling => promql::CPU_THROTTLING,
            Self::OomEvents => promql::OOM_EVENTS,
        }
    }

    /// The label that distinguishes series of a pod.
    pub(super) fn dimension(self) -> Option<&'static str> {
        match self {
            Self::ProxyRequests => Some("outcome"),
            Self::KnativeRequests => Some("http_response_status_code"),
            Self::OwnRequests => Some("status"),
            Self::ProxyLatency | Self::KnativeLatency | Self::OwnLatency => Some("le"),
            _ => None,
        }
    }

    pub(super) fn is_histogram(self) -> bool {
        self.dimension() == Some("le")
    }

    /// Whether its values are those of the latest scrapes rather than of the whole rate window.
    pub(super) fn is_recent(self) -> bool {
        matches!(
            self,
            Self::ProxyRequests
                | Self::ProxyInFlight
                | Self::ProxyQueueLength
                | Self::ProxyRejected
                | Self::KnativeRequests
                | Self::KnativeInFlight
                | Self::OwnRequests
        )
    }

    /// Whether requests with this value of [`Self::dimension`] failed on the server's side.
    pub(super) fn is_error(self, outcome: &str) -> bool {
        match self {
            // HTTP status codes.
            Self::KnativeRequests | Self::OwnRequests => outcome.starts_with('5'),
            _ => matches!(outcome, "server_error" | "timeout" | "unreachable"),
        }
    }
}

/// Steps between two values of a histogram: requirements count as measured over gaps of three steps.
const MAX_HISTOGRAM_STRIDE: u128 = 4;

/// The times over which rates are taken. They leave no gap between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWindows {
    /// Several scrapes.
    pub window: Duration,
    /// The latest scrapes, for what decisions must know soon. One that fails makes it too short.
    pub recent: Duration,
}

impl RateWindows {
    pub fn new(scrape_interval: Duration, step: Duration) -> Self {
        let window = scrape_interval.saturating_mul(SCRAPES).max(step);
        let recent = scrape_interval.saturating_add(step.max(scrape_interval)).min(window);
        Self { window, recent }
    }
}

impl From<Duration> for RateWindows {
    fn from(window: Duration) -> Self {
        Self { window, recent: window }
    }
}

/// The queries of a pass, as they are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryTable {
    queries: Vec<(Query, String)>,
    rate_window: Duration,
}

impl QueryTable {
    /// `replaced` has the texts that differ from the defaults. With `namespace`, only series of that
    /// namespace are read.
    pub fn new(
        replaced: &BTreeMap<Query, String>,
        windows: impl Into<RateWindows>,
        namespace: Option<&str>,
    ) -> Self {
        let RateWindows { window: rate_window, recent } = windows.into();
        let [window, recent] =
            [rate_window, recent].map(|it| format!("{}ms", it.as_millis().max(1)));
        // The name of a namespace needs no escapes.
        let matcher = namespace.map(|name| format!(r#"namespace="{name}""#)).unwrap_or_default();
        let render = |query: Query| {
            let text = replaced.get(&query).map_or_else(|| query.default_promql(), String::as_str);
            let text = text.replace("$window", &window).replace("$recent", &recent);
            (query, text.replace("$namespace_matcher", &matcher))
        };
        Self { queries: Query::ALL.map(render).into(), rate_window }
    }

    /// The times at which histograms are read. They are most of what a pass reads, so they have the
    /// longest steps that leave no request out: those of the rate window.
    pub(super) fn histogram_window(&self, window: Window) -> Window {
        let stride = self.rate_window.as_millis() / window.step().as_millis().max(1);
        window.every(usize::try_from(stride.clamp(1, MAX_HISTOGRAM_STRIDE)).unwrap_or(1))
    }

    /// Without the queries of a source that the cluster doesn't have.
    #[must_use]
    pub fn without(mut self, source: Source) -> Self {
        self.queries.retain(|(query, _)| query.source() != source);
        self
    }

    #[must_use]
    pub fn only(mut self, queries: &[Query]) -> Self {
        self.queries.retain(|(query, _)| queries.contains(query));
        self
    }

    pub fn iter(&self) -> impl Iterator<Item = (Query, &str)> {
        self.queries.iter().map(|(query, text)| (*query, text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn text(table: &QueryTable, query: Query) -> &str {
        table.iter().find(|(it, _)| *it == query).unwrap().1
    }

    #[test]
    fn number_of_queries_is_bounded() {
        let table = QueryTable::new(&BTreeMap::new(), Duration::from_mins(1), None);
        assert!(table.iter().count() <= 20);
        let names: BTreeSet<_> = Query::ALL.iter().map(|query| query.name()).collect();
        assert_eq!(names.len(), Query::ALL.len());
        assert!(Query::ALL.iter().all(|query| query.default_promql().len() <= MAX_QUERY_LENGTH));
    }

    #[test]
    fn placeholders_are_replaced() {
        let none = BTreeMap::new();
        for (namespace, matcher) in [(None, ""), (Some("shop"), r#"namespace="shop""#)] {
            let table = QueryTable::new(&none, Duration::from_mins(1), namespace);
            for (query, text) in table.iter() {
                assert!(!text.contains('$'), "{query:?}: {text}");
                assert!(text.contains("[60000ms]"), "{query:?}: {text}");
                assert!(text.contains(matcher), "{query:?}: {text}");
                assert_eq!(text.matches('(').count(), text.matches(')').count(), "{text}");
            }
            assert_eq!(
                text(&table, Query::ProxyInFlight),
                format!(
                    "max by (namespace, pod) (sum by (namespace, pod, job, instance) \
                     (last_over_time(oprc_proxy_requests_in_flight{{{matcher}}}[60000ms])))"
                )
            );
        }
    }

    #[test]
    fn configured_queries_replace_defaults() {
        let replaced = BTreeMap::from([(Query::Cpu, "my_cpu{$namespace_matcher}[$window]".into())]);
        let table = QueryTable::new(&replaced, Duration::from_secs(30), Some("a"));
        assert_eq!(text(&table, Query::Cpu), r#"my_cpu{namespace="a"}[30000ms]"#);
        assert_eq!(table.iter().count(), Query::ALL.len());
        let table = table.without(Source::Knative);
        assert!(table.iter().all(|(query, _)| query.source() != Source::Knative));
        assert_eq!(table.iter().count(), Query::ALL.len() - 4);
    }

    #[test]
    fn rate_windows_have_several_scrapes_and_cover_a_step() {
        let seconds = Duration::from_secs;
        for (scrape, step, window, recent) in
            [(15, 15, 60, 30), (15, 30, 60, 45), (5, 30, 30, 30), (15, 5, 60, 30)]
        {
            let expected = RateWindows { window: seconds(window), recent: seconds(recent) };
            assert_eq!(RateWindows::new(seconds(scrape), seconds(step)), expected);
        }
        let windows = RateWindows::new(seconds(15), seconds(15));
        let table = QueryTable::new(&BTreeMap::new(), windows, None);
        let text = text(&table, Query::ProxyRequests);
        assert!(text.contains("[30000ms]) or rate(") && text.contains("[60000ms]"), "{text}");
    }

    #[test]
    fn histograms_have_steps_of_the_rate_window() {
        let seconds = Duration::from_secs;
        for (step, rate_window, expected) in
            [(15, 60, 60), (30, 60, 60), (60, 60, 60), (45, 60, 45), (5, 60, 20), (15, 240, 60)]
        {
            let table = QueryTable::new(&BTreeMap::new(), seconds(rate_window), None);
            let window = Window::ending_at(Timestamp::UNIX_EPOCH, seconds(600), seconds(step));
            let histograms = table.histogram_window(window);
            assert_eq!(histograms.step(), seconds(expected), "{step} {rate_window}");
            assert_eq!(histograms.end(), window.end());
        }
    }

    #[test]
    fn errors_of_the_server_are_told_from_those_of_clients() {
        for (query, outcome, error) in [
            (Query::ProxyRequests, "server_error", true),
            (Query::ProxyRequests, "timeout", true),
            (Query::ProxyRequests, "unreachable", true),
            (Query::ProxyRequests, "client_error", false),
            // Counted by themselves.
            (Query::ProxyRequests, "rejected", false),
            (Query::ProxyRequests, "ok", false),
            (Query::KnativeRequests, "503", true),
            (Query::KnativeRequests, "404", false),
            (Query::OwnRequests, "500", true),
            (Query::OwnRequests, "200", false),
        ] {
            assert_eq!(query.is_error(outcome), error, "{query:?} {outcome}");
        }
    }
}
