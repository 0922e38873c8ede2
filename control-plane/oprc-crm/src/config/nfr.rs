use std::time::Duration;

use oprc_config::{Error, Resolved};

use oprc_models::parse_quantity;
use oprc_unit::{Capacity, names, spec::Dimension};

use super::Prometheus;

const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_DURATION: Duration = Duration::from_hours(24);

/// How requirements are evaluated and enforced at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Nfr {
    /// `features.nfr_enforcement`. Without it recommendations are only reported.
    pub enforcement: bool,
    /// The dimensions that may be enforced.
    pub dimensions: Vec<Dimension>,
    /// Whether enforcement changes nothing for now.
    pub frozen: bool,
    /// The ConfigMap that freezes enforcement as well.
    pub configmap: String,
    pub interval: Duration,
    /// At most `interval`.
    pub urgent_interval: Duration,
    /// How long a recommendation must be stable before it is applied, unless it is urgent.
    pub stability: Duration,
    /// The shortest time between two changes of a component, unless the second is urgent.
    pub cooldown: Duration,
    /// The largest change of replicas at once, in percent, unless it is urgent.
    pub max_replica_delta: u32,
    pub max_replicas: u32,
    /// The highest CPU and memory of an instance that enforcement sets.
    pub max_resources: Capacity,
    /// CPU of one replica in millicores, while its capacity isn't known.
    pub cpu_per_pod_m: u32,
}

impl Nfr {
    pub(super) fn of(settings: &Resolved, prometheus: &Prometheus) -> Result<Self, Error> {
        let nfr = Self {
            enforcement: settings.get("features.nfr_enforcement")?,
            dimensions: dimensions(settings)?,
            frozen: settings.get("enforcement.frozen")?,
            configmap: settings.get("enforcement.configmap")?,
            interval: settings.get("nfr.interval")?,
            urgent_interval: settings.get("nfr.urgent_interval")?,
            stability: settings.get("enforcement.stability")?,
            cooldown: settings.get("enforcement.cooldown")?,
            max_replica_delta: settings.get("enforcement.max_replica_delta")?,
            max_replicas: settings.get("limits.max_replicas")?,
            max_resources: max_resources(settings)?,
            cpu_per_pod_m: settings.get("nfr.cpu_per_pod_m")?,
        };
        nfr.check(prometheus)?;
        Ok(nfr)
    }

    /// Time between the starts of two passes.
    pub fn pass_interval(&self) -> Duration {
        if self.enforcement { self.urgent_interval } else { self.interval }
    }

    fn check(&self, prometheus: &Prometheus) -> Result<(), Error> {
        let inconsistent = |message: String| Err(Error::Inconsistent(message));
        let Self { interval, urgent_interval, stability, cooldown, .. } = *self;
        if urgent_interval < MIN_INTERVAL || urgent_interval > interval || interval > MAX_DURATION {
            return inconsistent(
                "nfr.urgent_interval must be at least 1s, and nfr.interval from that to 24h".into(),
            );
        }
        if !names::is_plain(&self.configmap) {
            let name = &self.configmap;
            return inconsistent(format!("enforcement.configmap: {name:?} is not a valid name"));
        }
        if cooldown > MAX_DURATION {
            return inconsistent("enforcement.cooldown must be at most 24h".to_owned());
        }
        // What CRM knows about the past is what a query returns.
        if stability > prometheus.range {
            return inconsistent(format!(
                "enforcement.stability ({}s) must be at most prometheus.range ({}s)",
                stability.as_secs(),
                prometheus.range.as_secs()
            ));
        }
        Ok(())
    }
}

fn dimensions(settings: &Resolved) -> Result<Vec<Dimension>, Error> {
    let names: Vec<String> = settings.get("enforcement.dimensions")?;
    let parse = |name: &String| {
        Dimension::parse(name).ok_or_else(|| {
            let allowed = "replicas, memory, cpu and template are allowed";
            Error::Inconsistent(format!("enforcement.dimensions: {name:?}: {allowed}"))
        })
    };
    names.iter().map(parse).collect()
}

fn max_resources(settings: &Resolved) -> Result<Capacity, Error> {
    // A quantity is less than 2^63.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let read = |path: &str, example: &str, unit: f64| {
        let text: String = settings.get(path)?;
        let value = parse_quantity(&text).ok().map(|it| (it * unit).floor() as u64);
        value.filter(|it| *it > 0).ok_or_else(|| {
            Error::Inconsistent(format!("{path}: {text:?} is not a quantity such as {example}"))
        })
    };
    Ok(Capacity {
        cpu_millis: read("limits.max_cpu", "4 or 500m", 1000.0)?,
        memory_bytes: read("limits.max_memory", "4Gi", 1.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{config, config_of_file},
        *,
    };

    #[test]
    fn defaults() {
        let expected = Nfr {
            enforcement: false,
            dimensions: Dimension::ALL.to_vec(),
            frozen: false,
            configmap: "oprc-crm-enforcement".to_owned(),
            interval: Duration::from_mins(1),
            urgent_interval: Duration::from_secs(15),
            stability: Duration::from_mins(3),
            cooldown: Duration::from_mins(2),
            max_replica_delta: 30,
            max_replicas: 50,
            max_resources: Capacity { cpu_millis: 4000, memory_bytes: 4 << 30 },
            cpu_per_pod_m: 500,
        };
        assert_eq!(config(&[]).unwrap().nfr, expected);
        for (profile, enforcement) in [("dev", false), ("edge", true), ("full", true)] {
            let config = config(&[
                ("OPRC_CRM_PROFILE", profile),
                ("OPRC_CRM_SERVER_HOST", "127.0.0.1"),
                ("OPRC_CRM_SECURITY_MTLS", "false"),
                ("OPRC_CRM_PROM_URL", "http://p"),
            ]);
            let dimensions = match profile {
                "edge" => vec![Dimension::Replicas],
                _ => Dimension::ALL.to_vec(),
            };
            let expected = Nfr { enforcement, dimensions, ..expected.clone() };
            assert_eq!(config.unwrap().nfr, expected, "{profile}");
        }
    }

    #[test]
    fn variables_of_the_seeds_are_read() {
        let found = config(&[
            ("OPRC_CRM_FEATURES_NFR_ENFORCEMENT", "true"),
            ("OPRC_CRM_ANALYZER_INTERVAL_SECS", "90"),
            ("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "10"),
            ("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "60"),
            ("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "30"),
            ("OPRC_CRM_ENFORCEMENT_MAX_REPLICA_DELTA", "50"),
            ("OPRC_CRM_LIMITS_MAX_REPLICAS", "20"),
            ("OPRC_CRM_LIMITS_MAX_MEMORY", "1Gi"),
            ("OPRC_CRM_LIMITS_MAX_CPU", "1500m"),
            ("OPRC_CRM_REQ_CPU_PER_POD_M", "250"),
            ("OPRC_CRM_ENFORCEMENT_DIMENSIONS", "memory,replicas"),
            ("OPRC_CRM_ENFORCEMENT_FROZEN", "true"),
            ("OPRC_CRM_ENFORCEMENT_CONFIGMAP", "freeze"),
        ]);
        let expected = Nfr {
            enforcement: true,
            dimensions: vec![Dimension::Memory, Dimension::Replicas],
            frozen: true,
            configmap: "freeze".to_owned(),
            interval: Duration::from_secs(90),
            urgent_interval: Duration::from_secs(10),
            stability: Duration::from_mins(1),
            cooldown: Duration::from_secs(30),
            max_replica_delta: 50,
            max_replicas: 20,
            max_resources: Capacity { cpu_millis: 1500, memory_bytes: 1 << 30 },
            cpu_per_pod_m: 250,
        };
        assert_eq!(found.unwrap().nfr, expected);
    }

    #[test]
    fn keys_of_the_seeds_are_aliases_or_rejected() {
        let found = config_of_file(
            "nfr_enforcement: {check_interval: 30s, prometheus_url: 'http://prometheus:9090', \
             enforcement_rules: {throughput: {max_replicas: 20, cooldown_period: 300s}}}",
        )
        .unwrap();
        assert_eq!(found.prometheus.options.unwrap().url, "http://prometheus:9090");
        assert_eq!((found.nfr.interval.as_secs(), found.nfr.max_replicas), (30, 20));
        assert_eq!(found.nfr.cooldown.as_secs(), 300);
        let error = config_of_file(
            "nfr_enforcement: {enforcement_rules: {throughput: {violation_threshold: 0.8, \
             scale_factor: 1.5}, latency: {p95_threshold_ms: 500}}}",
        );
        let error = error.unwrap_err().to_string();
        assert_eq!(error.lines().count(), 3, "{error}");
        assert!(error.lines().all(|line| line.contains("not supported in")), "{error}");
    }

    #[test]
    fn invalid_values_are_rejected() {
        for (variable, value, message) in [
            ("OPRC_CRM_ANALYZER_INTERVAL_SECS", "0", "nfr.interval"),
            ("OPRC_CRM_ANALYZER_INTERVAL_SECS", "14", "nfr.urgent_interval"),
            ("OPRC_CRM_ANALYZER_URGENT_INTERVAL_SECS", "0", "nfr.urgent_interval"),
            ("OPRC_CRM_ENFORCEMENT_STABILITY_SECS", "601", "prometheus.range"),
            ("OPRC_CRM_ENFORCEMENT_COOLDOWN_SECS", "25h", "enforcement.cooldown"),
            ("OPRC_CRM_ENFORCEMENT_MAX_REPLICA_DELTA", "0", "max_replica_delta"),
            ("OPRC_CRM_LIMITS_MAX_REPLICAS", "0", "max_replicas"),
            ("OPRC_CRM_LIMITS_MAX_MEMORY", "much", "limits.max_memory"),
            ("OPRC_CRM_LIMITS_MAX_MEMORY", "0", "limits.max_memory"),
            ("OPRC_CRM_LIMITS_MAX_CPU", "-1", "limits.max_cpu"),
            ("OPRC_CRM_ENFORCEMENT_DIMENSIONS", "disk", "enforcement.dimensions"),
            ("OPRC_CRM_REQ_CPU_PER_POD_M", "0", "cpu_per_pod_m"),
            ("OPRC_CRM_ENFORCEMENT_CONFIGMAP", "Freeze it", "enforcement.configmap"),
        ] {
            let error = config(&[(variable, value)]).unwrap_err().to_string();
            assert!(error.contains(message), "{variable}={value}: {error}");
        }
    }
}
