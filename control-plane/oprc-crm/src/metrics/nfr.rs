//! Metrics about the requirements of functions.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use oprc_nfr::compliance::RequirementKind;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::DescriptorEncoder,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{Histograms, Labels, buckets, collector::encode_gauge, environment_of, register};
use crate::{cache::Cache, crd::NfrChange, leader::Leadership, observations::ObservationStore};

/// Bound on the functions that have series of their own.
const MAX_FUNCTIONS: usize = 5000;
/// The function of all further ones.
const OTHER: &str = "other";

type FloatCounter = Counter<f64, AtomicU64>;
type FloatGauge = Gauge<f64, AtomicU64>;

/// The label `function_key`.
fn function_key(class: &str, function: &str) -> String {
    format!("{class}/{function}")
}

pub struct NfrMetrics {
    /// By result.
    passes: Histograms<1>,
    /// By query and result.
    queries: Family<Labels<2>, Counter>,
    /// By function, environment and requirement.
    violations: Family<Labels<3>, Counter>,
    /// By function, environment and constraint.
    breaches: Family<Labels<3>, FloatCounter>,
    /// By function, environment, dimension and direction.
    actions: Family<Labels<4>, Counter>,
    frozen: Gauge,
    /// The functions that have counters.
    counted: Mutex<HashSet<String>>,
}

impl NfrMetrics {
    pub(super) fn new(all: &mut Registry) -> Self {
        let help = "Time spent reading and evaluating the metrics of all functions";
        let family = Histograms::new_with_constructor(|| buckets(0.01, 2.5, 10));
        let passes = register(all, "crm_analyzer_pass_duration_seconds", help, family);
        let help = "Queries sent to Prometheus";
        let queries = register(all, "crm_analyzer_queries", help, Family::default());
        let help = "Requirements that became violated";
        let violations = register(all, "crm_nfr_violations", help, Family::default());
        let help = "Requests that exceeded a hard constraint";
        let breaches = register(all, "crm_constraint_breaches", help, Family::default());
        let help = "Changes that enforcement applied";
        let actions = register(all, "crm_enforcement_actions", help, Family::default());
        let help = "1 if enforcement is frozen, otherwise 0";
        let frozen = register(all, "crm_enforcement_frozen", help, Gauge::default());
        let counted = Mutex::default();
        Self { passes, queries, violations, breaches, actions, frozen, counted }
    }

    pub fn on_pass(&self, result: &str, took: Duration) {
        let labels = [("result", result.to_owned())];
        self.passes.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub fn on_query(&self, query: &str, result: &str) {
        let labels = [("query", query.to_owned()), ("result", result.to_owned())];
        self.queries.get_or_create(&labels).inc();
    }

    pub fn on_violation(
        &self,
        class: &str,
        function: &str,
        environment: &str,
        kind: RequirementKind,
    ) {
        let [function, environment] = self.bounded_labels(class, function, environment);
        let labels = [function, environment, ("type", kind.as_str().to_owned())];
        self.violations.get_or_create(&labels).inc();
    }

    /// `breaches` may be a fraction, because they are computed from a rate.
    pub fn on_breaches(&self, class: &str, function: &str, environment: &str, breaches: f64) {
        let [function, environment] = self.bounded_labels(class, function, environment);
        let constraint = RequirementKind::HardLatency.as_str().to_owned();
        let labels = [function, environment, ("constraint", constraint)];
        self.breaches.get_or_create(&labels).inc_by(breaches);
    }

    pub fn on_applied(&self, class: &str, environment: &str, change: &NfrChange) {
        let [function, environment] = self.bounded_labels(class, &change.component, environment);
        let direction = if change.to > change.from { "up" } else { "down" };
        let dimension = ("dimension", change.dimension.clone());
        let labels = [function, environment, dimension, ("direction", direction.to_owned())];
        self.actions.get_or_create(&labels).inc();
    }

    pub fn set_frozen(&self, frozen: bool) {
        self.frozen.set(i64::from(frozen));
    }

    fn bounded_labels(&self, class: &str, function: &str, environment: &str) -> Labels<2> {
        let key = function_key(class, function);
        let mut counted = self.counted.lock();
        let is_own =
            counted.contains(&key) || counted.len() < MAX_FUNCTIONS && counted.insert(key.clone());
        labels(if is_own { key } else { OTHER.to_owned() }, environment)
    }
}

fn labels(function_key: String, environment: &str) -> Labels<2> {
    [("function_key", function_key), ("environment", environment.to_owned())]
}

/// Gauges of the latest observations, and of what enforcement has applied.
pub(super) struct FunctionCollector {
    pub(super) cache: Arc<Cache>,
    pub(super) observations: Arc<ObservationStore>,
    pub(super) leadership: Leadership,
}

impl fmt::Debug for FunctionCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FunctionCollector")
    }
}

/// Functions with the same labels, such as those of classes in different namespaces.
#[derive(Clone, Copy, Debug, Default)]
struct Aggregate {
    /// The sum.
    throughput: Option<f64>,
    /// The highest of each quantile.
    latencies: [Option<f64>; 3],
}

const QUANTILES: [&str; 3] = ["0.5", "0.95", "0.99"];

impl Collector for FunctionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let aggregates = if self.leadership.holds() { self.aggregates() } else { BTreeMap::new() };
        let throughput = Family::<Labels<2>, FloatGauge>::default();
        let latency = Family::<Labels<3>, FloatGauge>::default();
        for ((function, environment), aggregate) in aggregates {
            let [function, environment] = labels(function, &environment);
            if let Some(value) = aggregate.throughput {
                throughput.get_or_create(&[function.clone(), environment.clone()]).set(value);
            }
            for (quantile, value) in QUANTILES.iter().zip(aggregate.latencies) {
                if let Some(value) = value {
                    let quantile = ("quantile", (*quantile).to_owned());
                    let labels = [function.clone(), environment.clone(), quantile];
                    latency.get_or_create(&labels).set(value);
                }
            }
        }
        let help = "Requests per second of a function.";
        encode_gauge(&mut encoder, "crm_function_throughput", help, &throughput)?;
        let help = "Latency of a function.";
        encode_gauge(&mut encoder, "crm_function_latency_seconds", help, &latency)?;
        self.encode_enforcement(&mut encoder)
    }
}

/// By dimension, and by `function_key` and environment.
type ByDimension = BTreeMap<String, BTreeMap<(String, String), f64>>;

/// Functions with the same labels share the highest value.
fn add(all: &mut ByDimension, dimension: &str, id: (String, &str), value: f64) {
    let of_dimension = all.entry(dimension.to_owned()).or_default();
    let (function, environment) = (id.0, id.1.to_owned());
    let id = (function, environment.clone());
    let is_own = of_dimension.contains_key(&id) || of_dimension.len() < MAX_FUNCTIONS;
    let id = if is_own { id } else { (OTHER.to_owned(), environment) };
    let highest = of_dimension.entry(id).or_insert(value);
    *highest = highest.max(value);
}

fn by_dimension(all: ByDimension) -> Family<Labels<3>, FloatGauge> {
    let family = Family::<Labels<3>, FloatGauge>::default();
    for (dimension, functions) in all {
        for ((function, environment), value) in functions {
            let [function, environment] = labels(function, &environment);
            let dimension = ("dimension", dimension.clone());
            family.get_or_create(&[function, environment, dimension]).set(value);
        }
    }
    family
}

impl FunctionCollector {
    fn encode_enforcement(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let is_leader = self.leadership.holds();
        let (mut recommended, mut applied) = (ByDimension::new(), ByDimension::new());
        let held = Family::<Labels<2>, Gauge>::default();
        let observations = self.observations.latest();
        let classes = observations.classes.iter().filter(|_| is_leader);
        for (class, (key, function)) in
            classes.flat_map(|(class, all)| all.iter().map(move |it| (class, it)))
        {
            for decision in &function.decisions {
                let dimension = decision.dimension.as_str();
                let id = (function_key(&class.1, key), function.environment.as_str());
                add(&mut recommended, dimension, id, decision.target);
                if let Some(held_by) = decision.held_by {
                    let reason = ("reason", held_by.as_str().to_owned());
                    held.get_or_create(&[("dimension", dimension.to_owned()), reason]).inc();
                }
            }
        }
        let classes = if is_leader { self.cache.classes_after(None) } else { Vec::new() };
        for class in &classes {
            let entries = class.status.iter().flat_map(|it| &it.last_applied_recommendations);
            for entry in entries {
                let environment = environment_of(class);
                let id = (function_key(&class.name, &entry.component), environment.as_str());
                add(&mut applied, &entry.dimension, id, entry.target);
            }
        }
        let help = "What the load of a function needs.";
        let name = "crm_enforcement_recommended";
        encode_gauge(encoder, name, help, &by_dimension(recommended))?;
        let help = "What enforcement has applied to a function beyond its specification.";
        encode_gauge(encoder, "crm_enforcement_applied", help, &by_dimension(applied))?;
        let help = "Functions whose recommended change is held back.";
        encode_gauge(encoder, "crm_enforcement_held", help, &held)
    }

    /// By `function_key` and environment.
    fn aggregates(&self) -> BTreeMap<(String, String), Aggregate> {
        let mut aggregates: BTreeMap<_, Aggregate> = BTreeMap::new();
        let observations = self.observations.latest();
        let functions = observations.classes.iter().flat_map(|(class, functions)| {
            functions.iter().map(move |(key, function)| (function_key(&class.1, key), function))
        });
        for (key, function) in functions {
            let id = (key, function.environment.clone());
            let is_own = aggregates.contains_key(&id) || aggregates.len() < MAX_FUNCTIONS;
            let id = if is_own { id } else { (OTHER.to_owned(), id.1) };
            let aggregate = aggregates.entry(id).or_default();
            let sum = aggregate.throughput.into_iter().chain(function.throughput);
            aggregate.throughput = sum.reduce(|left, right| left + right);
            let own = [function.latency_p50, function.latency_p95, function.latency_p99];
            for (highest, own) in aggregate.latencies.iter_mut().zip(own) {
                *highest = highest.iter().copied().chain(own).reduce(f64::max);
            }
        }
        aggregates
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use oprc_unit::spec::{Dimension, EnforcementMode};
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::observations::{FunctionObservation, HeldBy, LiveDecision, Observations};

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    fn scrape(functions: &[(&str, &str, f64)], leadership: Leadership) -> String {
        let mut classes: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (namespace, class, throughput) in functions {
            let function = FunctionObservation {
                environment: "prod".to_owned(),
                throughput: Some(*throughput),
                latency_p95: Some(*throughput / 100.0),
                ..FunctionObservation::default()
            };
            let class = ((*namespace).to_owned(), (*class).to_owned());
            classes.entry(class).or_default().insert("f".to_owned(), function);
        }
        let observations = Arc::new(ObservationStore::default());
        observations.publish(Observations { classes: Arc::new(classes), ..Default::default() });
        let mut registry = Registry::default();
        let cache = Arc::default();
        let collector = FunctionCollector { cache, observations, leadership };
        registry.register_collector(Box::new(collector));
        text(&registry)
    }

    #[test]
    fn functions_with_the_same_key_are_aggregated() {
        let text = scrape(
            &[("a", "shop", 2.0), ("b", "shop", 3.0), ("b", "shop-2", 5.0)],
            Leadership::always(),
        );
        for sample in [
            r#"crm_function_throughput{function_key="shop/f",environment="prod"} 5.0"#,
            r#"crm_function_throughput{function_key="shop-2/f",environment="prod"} 5.0"#,
            r#"crm_function_latency_seconds{function_key="shop/f",environment="prod",quantile="0.95"} 0.03"#,
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        let text = scrape(&[("a", "shop", 2.0)], Leadership::never());
        assert!(!text.contains("crm_function_throughput{"), "{text}");
    }

    fn decision(target: f64, held_by: Option<HeldBy>) -> LiveDecision {
        LiveDecision {
            dimension: Dimension::Replicas,
            mode: EnforcementMode::Enforce,
            current: 1.0,
            target,
            basis: String::new(),
            waits_for: None,
            held_by,
            next_change_at: None,
        }
    }

    /// What is scraped of functions with these decisions, each in a class of its own.
    fn scrape_decisions(decisions: Vec<(String, LiveDecision)>) -> String {
        let mut classes: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (class, decision) in decisions {
            let (environment, decisions) = ("prod".to_owned(), vec![decision]);
            let function =
                FunctionObservation { environment, decisions, ..FunctionObservation::default() };
            let (namespace, class) = class.split_once('/').unwrap();
            let class = (namespace.to_owned(), class.to_owned());
            classes.entry(class).or_default().insert("f".to_owned(), function);
        }
        let observations = Arc::new(ObservationStore::default());
        observations.publish(Observations { classes: Arc::new(classes), ..Default::default() });
        let (cache, leadership) = (Arc::default(), Leadership::always());
        let mut registry = Registry::default();
        let collector = FunctionCollector { cache, observations, leadership };
        registry.register_collector(Box::new(collector));
        text(&registry)
    }

    #[test]
    fn decisions_are_gauges() {
        let text = scrape_decisions(vec![
            ("a/shop".to_owned(), decision(3.0, Some(HeldBy::Cooldown))),
            ("b/shop".to_owned(), decision(5.0, Some(HeldBy::Cooldown))),
            ("b/other-shop".to_owned(), decision(2.0, None)),
        ]);
        let labels = r#"function_key="shop/f",environment="prod",dimension="replicas""#;
        for sample in [
            &format!("crm_enforcement_recommended{{{labels}}} 5.0"),
            r#"crm_enforcement_held{dimension="replicas",reason="Cooldown"} 2"#,
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
    }

    #[test]
    fn number_of_enforcement_series_is_bounded() {
        let classes = (0..MAX_FUNCTIONS + 20).map(|number| format!("a/c{number:06}"));
        let text = scrape_decisions(classes.map(|it| (it, decision(2.0, None))).collect());
        let of_metric = |text: &str, name: &str| {
            text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count()
        };
        assert_eq!(of_metric(&text, "crm_enforcement_recommended"), MAX_FUNCTIONS + 1);

        let mut registry = Registry::default();
        let metrics = NfrMetrics::new(&mut registry);
        let change = |from: f64, to: f64| NfrChange {
            component: "f".to_owned(),
            dimension: "replicas".to_owned(),
            from,
            to,
            at: Time(Timestamp::UNIX_EPOCH),
            basis: String::new(),
        };
        for number in 0..MAX_FUNCTIONS + 20 {
            metrics.on_applied(&format!("c{number:06}"), "prod", &change(1.0, 3.0));
        }
        metrics.on_applied("c000000", "prod", &change(3.0, 2.0));
        let text = self::text(&registry);
        assert_eq!(of_metric(&text, "crm_enforcement_actions_total"), MAX_FUNCTIONS + 1 + 1);
        let down = r#"crm_enforcement_actions_total{function_key="c000000/f",environment="prod",dimension="replicas",direction="down"} 1"#;
        assert!(text.lines().any(|line| line == down), "{down}");
    }

    #[test]
    fn number_of_series_is_bounded() {
        let names: Vec<_> = (0..MAX_FUNCTIONS + 20).map(|number| format!("c{number:05}")).collect();
        let functions: Vec<_> = names.iter().map(|name| ("a", name.as_str(), 1.0)).collect();
        let text = scrape(&functions, Leadership::always());
        let series = text.lines().filter(|line| line.starts_with("crm_function_throughput{"));
        assert_eq!(series.count(), MAX_FUNCTIONS + 1);
        let other = r#"crm_function_throughput{function_key="other",environment="prod"} 20.0"#;
        assert!(text.lines().any(|line| line == other));

        let mut registry = Registry::default();
        let metrics = NfrMetrics::new(&mut registry);
        for name in &names {
            metrics.on_breaches(name, "f", "prod", 0.5);
        }
        metrics.on_violation(&names[0], "f", "prod", RequirementKind::Latency);
        let all = self::text(&registry);
        let series = all.lines().filter(|line| line.starts_with("crm_constraint_breaches_total{"));
        assert_eq!(series.count(), MAX_FUNCTIONS + 1);
        let own = r#"crm_nfr_violations_total{function_key="c00000/f",environment="prod",type="latency"} 1"#;
        assert!(all.lines().any(|line| line == own), "{own}");
    }
}
