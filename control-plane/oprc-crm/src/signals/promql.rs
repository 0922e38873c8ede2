//! The default queries.
//!
//! - A target that is scraped by two jobs counts once: values are summed for each target (`job`,
//!   `instance`), of which the largest counts.
//! - CRM's proxy exports all of its series from its start. A counter or histogram of others has no series
//!   before its first event: a pod without them counts as zero only if another metric shows that the same
//!   target was scraped at least twice in the rate window. Without that it is unknown.
//! - What decisions must know soon is the rate of the latest scrapes, or of the rate window if one of them
//!   failed. The requests in progress are those at the latest scrape, so that together with the requests that
//!   ended since the one before they tell how many arrived.
//! - The buckets of histograms aren't filtered: dropping those that carry no information takes Prometheus
//!   more time than evaluating and sending them.

/// Of Knative's programs, only queue-proxy belongs to a revision.
macro_rules! queue_proxy {
    () => {
        r#"target_info{kn_revision_name!="",$namespace_matcher}"#
    };
}

macro_rules! queue_proxy_was_scraped {
    () => {
        concat!("(max by (namespace, pod) (count_over_time(", queue_proxy!(), "[$window])) > 1)")
    };
}

/// The aggregate of a vector by `$labels`, without counting a target twice.
macro_rules! by {
    ($labels:literal, $($vector:expr),+) => {
        concat!(
            "max by (", $labels, ") (sum by (", $labels, ", job, instance) (", $($vector),+, "))"
        )
    };
}

/// The rate of the latest scrapes.
macro_rules! recent_rate {
    ($metric:literal) => {
        concat!(
            "rate(",
            $metric,
            "{$namespace_matcher}[$recent]) or rate(",
            $metric,
            "{$namespace_matcher}[$window])"
        )
    };
}

/// A metric of OpenTelemetry's HTTP server instrumentation, which functions may export as well: only
/// targets that are a queue-proxy count.
macro_rules! of_queue_proxy {
    ($labels:literal, $metric:literal) => {
        of_queue_proxy!($labels, "rate(", $metric, "{$namespace_matcher}[$window])")
    };
    ($labels:literal, $($rate:expr),+) => {
        by!($labels, $($rate),+, " and on (job, instance) ", queue_proxy!())
    };
}

/// Containers, without the pod's sandbox and the cgroup of the pod.
macro_rules! container {
    ($metric:literal) => {
        concat!($metric, r#"{container!="",container!="POD",$namespace_matcher}[$window]"#)
    };
}

pub(super) const PROXY_REQUESTS: &str =
    by!("namespace, pod, outcome", recent_rate!("oprc_proxy_requests_total"));
pub(super) const PROXY_LATENCY: &str = by!(
    "namespace, pod, le",
    "rate(oprc_proxy_request_duration_seconds_bucket{$namespace_matcher}[$window])"
);
pub(super) const PROXY_IN_FLIGHT: &str = by!(
    "namespace, pod",
    "last_over_time(oprc_proxy_requests_in_flight{$namespace_matcher}[$window])"
);
pub(super) const PROXY_QUEUE_LENGTH: &str =
    by!("namespace, pod", "max_over_time(oprc_proxy_queue_length{$namespace_matcher}[$recent])");
pub(super) const PROXY_REJECTED: &str =
    by!("namespace, pod", recent_rate!("oprc_proxy_rejected_total"));
pub(super) const PROXY_HARD_LATENCY_BREACHES: &str = by!(
    "namespace, pod",
    "rate(oprc_proxy_hard_latency_breaches_total{$namespace_matcher}[$window])"
);
pub(super) const KNATIVE_REQUESTS: &str = concat!(
    of_queue_proxy!(
        "namespace, pod, http_response_status_code",
        "(",
        recent_rate!("http_server_request_duration_seconds_count"),
        ")"
    ),
    " or 0 * ",
    queue_proxy_was_scraped!()
);
pub(super) const KNATIVE_LATENCY: &str = concat!(
    of_queue_proxy!("namespace, pod, le", "http_server_request_duration_seconds_bucket"),
    " or label_replace(0 * ",
    queue_proxy_was_scraped!(),
    r#", "le", "+Inf", "", "")"#
);
/// Little's law: the seconds that requests spent in the function in each second. queue-proxy has no gauge
/// of its requests: `kn_serving_queue_depth` is only set when one arrives.
pub(super) const KNATIVE_IN_FLIGHT: &str = concat!(
    of_queue_proxy!(
        "namespace, pod",
        "(",
        recent_rate!("kn_serving_invocation_duration_seconds_sum"),
        ")"
    ),
    " or 0 * ",
    queue_proxy_was_scraped!()
);
/// The seconds that requests spent in queue-proxy and not in the function.
pub(super) const KNATIVE_QUEUE_LENGTH: &str = concat!(
    "clamp_min(",
    of_queue_proxy!("namespace, pod", "http_server_request_duration_seconds_sum"),
    " - ",
    by!(
        "namespace, pod",
        "rate(kn_serving_invocation_duration_seconds_sum{$namespace_matcher}[$window])"
    ),
    ", 0) or 0 * ",
    queue_proxy_was_scraped!()
);
pub(super) const OWN_REQUESTS: &str =
    by!("namespace, pod, status", recent_rate!("http_server_requests_seconds_count"));
pub(super) const OWN_LATENCY: &str = by!(
    "namespace, pod, le",
    "rate(http_server_requests_seconds_bucket{$namespace_matcher}[$window])"
);
pub(super) const CPU: &str =
    by!("namespace, pod, container", "rate(", container!("container_cpu_usage_seconds_total"), ")");
/// A container that was restarted has two series for a while.
pub(super) const MEMORY: &str = concat!(
    "max by (namespace, pod, container) (max_over_time(",
    container!("container_memory_working_set_bytes"),
    "))"
);
pub(super) const CPU_THROTTLING: &str = concat!(
    "max by (namespace, pod, container) (rate(",
    container!("container_cpu_cfs_throttled_periods_total"),
    ") / rate(",
    container!("container_cpu_cfs_periods_total"),
    "))"
);
pub(super) const OOM_EVENTS: &str =
    by!("namespace, pod, container", "increase(", container!("container_oom_events_total"), ")");
