//! CPU and memory of each component over hours, which recommendations are based on.
//!
//! The queries are those of a pass, over longer steps. They are sent far less often, because their
//! answers change slowly.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::{
    collect::{QueryResults, collect},
    fold::fold,
    observed::Signal,
    pods::{ComponentId, PodIndex, PodRef},
    query::{Query, QueryTable},
    window::Window,
};
use crate::provider::{MetricsProvider, Point};

/// Time between two values, and the time that each of them is about.
pub const USAGE_STEP: Duration = Duration::from_mins(15);

const QUERIES: [Query; 2] = [Query::Cpu, Query::Memory];

/// The matchers of containers in the default queries.
const ALL_CONTAINERS: &str = r#"container!="",container!="POD""#;

/// The queries of usage: peaks of memory and average CPU in each step. Without sidecars, because the
/// size of an answer is bounded.
pub fn usage_queries(
    replaced: &BTreeMap<Query, String>,
    namespace: Option<&str>,
    containers: &[&str],
) -> QueryTable {
    let without_sidecars = format!(r#"container=~"{}""#, containers.join("|"));
    let texts = QUERIES.map(|query| {
        let text = replaced.get(&query).map_or_else(|| query.default_promql(), String::as_str);
        (query, text.replace(ALL_CONTAINERS, &without_sidecars))
    });
    QueryTable::new(&texts.into(), USAGE_STEP, namespace).only(&QUERIES)
}

/// What components used. What isn't in here is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub components: BTreeMap<ComponentId, ComponentUsage>,
}

/// Usage of the instance that used most, in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComponentUsage {
    /// The image of the pods. What others used says little about this one.
    pub image: String,
    /// Cores; none if the query failed.
    pub cpu: Option<Vec<Point>>,
    /// Bytes; none if the query failed.
    pub memory: Option<Vec<Point>>,
}

/// The pods with the image of the newest one of their component: only these count.
pub struct UsagePods {
    index: Arc<PodIndex>,
    images: BTreeMap<ComponentId, String>,
}

impl UsagePods {
    pub fn new(pods: Vec<PodRef>) -> Self {
        let mut newest: BTreeMap<ComponentId, (Timestamp, String)> = BTreeMap::new();
        for pod in &pods {
            let found = newest.entry(pod.component_id()).or_default();
            if found.1.is_empty() || pod.created > found.0 {
                *found = (pod.created, pod.image.clone());
            }
        }
        let images: BTreeMap<_, _> =
            newest.into_iter().map(|(id, (_, image))| (id, image)).collect();
        let is_newest = |pod: &PodRef| images.get(&pod.component_id()) == Some(&pod.image);
        let index = PodIndex::new(pods.into_iter().filter(is_newest));
        Self { index: Arc::new(index), images }
    }
}

pub async fn collect_usage(
    provider: &dyn MetricsProvider,
    queries: &QueryTable,
    pods: &UsagePods,
    now: Timestamp,
    range: Duration,
    limit: Duration,
) -> QueryResults {
    let window = Window::ending_at(now, range, USAGE_STEP);
    collect(provider, queries, window, &pods.index, limit).await
}

pub fn fold_usage(results: &QueryResults, pods: &UsagePods, now: Timestamp) -> Usage {
    let is_known = |query: Query| {
        let answer = results.answers.get(&query);
        answer.is_some_and(|it| it.as_ref().is_ok_and(|set| !set.partial))
    };
    let components = fold(results, &pods.index, USAGE_STEP, now).components.into_iter();
    let usage = components.map(|(id, signals)| {
        let points = |query: Query, signal: Signal| {
            let points = || signals.get(signal).map(|it| it.points.clone()).unwrap_or_default();
            is_known(query).then(points)
        };
        let usage = ComponentUsage {
            cpu: points(Query::Cpu, Signal::CpuMax),
            memory: points(Query::Memory, Signal::MemoryMax),
            image: pods.images.get(&id).cloned().unwrap_or_default(),
        };
        (id, usage)
    });
    Usage { components: usage.collect() }
}

/// Whether a pod runs an image of a specification. Admission may replace the registry, and Knative
/// replaces the tag by a digest.
pub fn is_same_image(of_pod: &str, specified: &str) -> bool {
    let short = |image: &str| image.rsplit('/').next().unwrap_or(image).to_owned();
    let (pod, specified) = (short(of_pod), short(specified));
    let repository = |image: &str| image.split(['@', ':']).next().unwrap_or(image).to_owned();
    pod == specified
        || pod.contains('@')
            && !specified.contains('@')
            && repository(&pod) == repository(&specified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_the_same_but_for_registry_and_digest() {
        for (pod, specified, same) in [
            ("r/a/f:1", "r/a/f:1", true),
            ("mirror/a/f:1", "r/a/f:1", true),
            ("r/a/f:2", "r/a/f:1", false),
            ("r/a/f@sha256:12", "r/a/f:1", true),
            ("r/a/g@sha256:12", "r/a/f:1", false),
            ("r/a/f@sha256:12", "r/a/f@sha256:34", false),
            ("", "f:1", false),
        ] {
            assert_eq!(is_same_image(pod, specified), same, "{pod} {specified}");
        }
    }

    #[test]
    fn queries_are_those_of_a_pass_over_a_longer_step() {
        let replaced = BTreeMap::from([(Query::Cpu, "my_cpu[$window]".to_owned())]);
        let table = usage_queries(&replaced, Some("n"), &["function", "odgm"]);
        let texts: Vec<_> = table.iter().collect();
        assert_eq!(texts.len() + Query::ALL.len(), 18, "at most 20 in all");
        assert_eq!(texts[0], (Query::Cpu, "my_cpu[900000ms]"));
        assert!(texts[1].1.contains("max_over_time(container_memory_working_set_bytes{"));
        assert!(
            texts[1].1.contains(r#"{container=~"function|odgm",namespace="n"}[900000ms]"#),
            "{}",
            texts[1].1
        );
    }
}
