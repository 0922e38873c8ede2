//! Requests to the API server, by CRM's metrics and by the proxy.

use std::time::{Duration, Instant};

use oprc_sandbox::{
    proxy::{ApiProxy, Counts},
    within,
};
use oprc_tests::http::get_ok;

async fn metric(url: &str, is_counted: impl Fn(&str) -> bool) -> u64 {
    let text = get_ok(&format!("{url}/metrics")).await.unwrap();
    let lines = text.lines().filter(|line| line.starts_with("crm_api_requests_total"));
    let values = lines.filter(|line| is_counted(line)).filter_map(|line| line.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

/// Requests so far, by CRM's metrics.
pub(crate) async fn requests_of(url: &str) -> u64 {
    metric(url, |_| true).await
}

/// Writes so far, by CRM's metrics.
pub(crate) async fn writes_of(url: &str) -> u64 {
    metric(url, |line| !line.contains("verb=\"GET\"")).await
}

/// Number of a client's requests; an empty string matches everything.
pub(crate) fn count(counts: &Counts, client: &str, verb: &str, resource: &str) -> u64 {
    let matches = |filter: &str, found: &str| filter.is_empty() || filter == found;
    let is_counted = |(by, its_verb, its_resource): &(String, String, String)| {
        by == client && matches(verb, its_verb) && matches(resource, its_resource)
    };
    counts.iter().filter(|(key, _)| is_counted(key)).map(|(_, count)| count).sum()
}

/// Resources that a client has listed and watched. Events are only watched.
pub(crate) fn watched(counts: &Counts, client: &str) -> Vec<String> {
    let of = |(by, verb, resource): &&(String, String, String)| {
        by == client && verb == "watch" && count(counts, client, "list", resource) > 0
    };
    counts.keys().filter(of).map(|(_, _, resource)| resource.clone()).collect()
}

/// Waits until the counts match, and returns when that was.
pub(crate) async fn wait_for_counts(
    proxy: &ApiProxy,
    what: &str,
    limit: Duration,
    enough: impl Fn(&Counts) -> bool,
) -> Instant {
    let waiting = async {
        proxy.wait_for(enough).await;
        Ok::<_, String>(Instant::now())
    };
    within(what, limit, waiting).await.unwrap()
}
