use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use oprc_config::{Error, Resolved};
use oprc_unit::{MonitorKind, Monitors, Profile};

use super::settings::PROVIDER;
use crate::{
    provider::{PrometheusOptions, url_problem},
    signals::{MAX_QUERY_LENGTH, Query, Window},
};

const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_TIMEOUT: Duration = Duration::from_mins(5);
const MIN_STEP: Duration = Duration::from_secs(1);
/// Prometheus keeps 15 days by default.
const MAX_RANGE: Duration = Duration::from_hours(24);

/// At most 193 points for each pod, see [`crate::signals::USAGE_STEP`].
const RESOURCE_RANGE: RangeInclusive<Duration> = Duration::from_hours(1)..=Duration::from_hours(48);

/// The monitors that CRM creates for functions and data grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeKind {
    /// ServiceMonitors, and none for Knative.
    Auto,
    Service,
    Pod,
    /// Scraping is arranged elsewhere, so the Prometheus Operator isn't needed.
    None,
}

/// Where metrics come from and how they are queried.
#[derive(Clone, Debug, PartialEq)]
pub struct Prometheus {
    /// `features.prometheus`. Without it nothing is queried and no monitors are created.
    pub enabled: bool,
    /// None without a URL, which only profile `full` requires.
    pub options: Option<PrometheusOptions>,
    pub match_labels: BTreeMap<String, String>,
    pub scrape_kind: ScrapeKind,
    pub scrape_interval: Duration,
    /// Time that queries look back.
    pub range: Duration,
    pub step: Duration,
    /// Time that recommendations of CPU and memory look back.
    pub resource_range: Duration,
    /// The text of every query, with placeholders.
    pub queries: BTreeMap<Query, String>,
    /// `prometheus.provider`, if CRM doesn't know it.
    pub unknown_provider: Option<String>,
}

impl Prometheus {
    pub(super) fn of(settings: &Resolved, profile: Profile) -> Result<Self, Error> {
        let provider: String = settings.get("prometheus.provider")?;
        let prometheus = Self {
            enabled: settings.get("features.prometheus")?,
            options: options(settings)?,
            match_labels: match_labels(settings.get("prometheus.match_labels")?)?,
            scrape_kind: match settings.get::<&str>("prometheus.scrape_kind")? {
                "service" => ScrapeKind::Service,
                "pod" => ScrapeKind::Pod,
                "none" => ScrapeKind::None,
                _ => ScrapeKind::Auto,
            },
            scrape_interval: settings.get("prometheus.scrape_interval")?,
            range: settings.get("prometheus.range")?,
            step: settings.get("prometheus.step")?,
            resource_range: settings.get("prometheus.resource_range")?,
            queries: queries(settings)?,
            unknown_provider: Some(provider).filter(|provider| provider != PROVIDER),
        };
        prometheus.check(profile)?;
        Ok(prometheus)
    }

    /// Whether metrics are read.
    pub fn is_configured(&self) -> bool {
        self.enabled && self.options.is_some()
    }

    /// The monitors to create, given the kinds that the cluster serves.
    pub fn monitors(&self, services: bool, pods: bool) -> Option<Monitors> {
        let kind = match self.scrape_kind {
            ScrapeKind::Auto | ScrapeKind::Service if services => MonitorKind::Service,
            ScrapeKind::Pod if pods => MonitorKind::Pod,
            _ => return None,
        };
        let (labels, interval) = (self.match_labels.clone(), self.scrape_interval);
        self.enabled.then_some(Monitors { kind, labels, interval })
    }

    /// Whether metrics would be read, but the cluster lacks the kind of monitor that CRM creates so that
    /// they are scraped.
    pub fn lacks_monitors(&self, services: bool, pods: bool) -> bool {
        let is_served = match self.scrape_kind {
            ScrapeKind::Auto | ScrapeKind::Service => services,
            ScrapeKind::Pod => pods,
            ScrapeKind::None => true,
        };
        self.is_configured() && !is_served
    }

    fn check(&self, profile: Profile) -> Result<(), Error> {
        if profile == Profile::Full && self.enabled && self.options.is_none() {
            return inconsistent(
                "profile full reads metrics from Prometheus: set prometheus.url (OPRC_CRM_PROM_URL) or \
                 turn features.prometheus off (OPRC_CRM_FEATURES_PROMETHEUS=false)",
            );
        }
        let Self { range, step, scrape_interval, .. } = *self;
        let steps = range.as_millis() / step.as_millis().max(1);
        if step < MIN_STEP || range < step || range > MAX_RANGE {
            return inconsistent(
                "prometheus.step must be at least 1s, and prometheus.range from that to 24h",
            );
        }
        if steps > Window::MAX_STEPS as u128 {
            return inconsistent(&format!(
                "prometheus.range has {steps} steps of prometheus.step: at most {} are allowed",
                Window::MAX_STEPS
            ));
        }
        if scrape_interval < MIN_STEP || scrape_interval > range {
            return inconsistent(
                "prometheus.scrape_interval must be at least 1s and at most prometheus.range",
            );
        }
        if !RESOURCE_RANGE.contains(&self.resource_range) {
            return inconsistent("prometheus.resource_range must be from 1h to 48h");
        }
        Ok(())
    }

    /// Problems that don't prevent startup.
    pub(super) fn warnings(&self) -> Vec<String> {
        let provider = self.unknown_provider.as_ref().map(|provider| {
            format!("prometheus.provider: {provider:?} is ignored: only {PROVIDER} is known")
        });
        let url = (self.enabled && self.options.is_none()).then(|| {
            "features.prometheus has no effect: prometheus.url (OPRC_CRM_PROM_URL) is not set"
                .into()
        });
        provider.into_iter().chain(url).collect()
    }
}

fn options(settings: &Resolved) -> Result<Option<PrometheusOptions>, Error> {
    let timeout: Duration = settings.get("prometheus.query_timeout")?;
    if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
        return inconsistent("prometheus.query_timeout must be from 100ms to 5m");
    }
    let client_certificate =
        settings.both("prometheus.client_certificate", "prometheus.client_key")?;
    let Some(url) = settings.get::<Option<String>>("prometheus.url")? else { return Ok(None) };
    if let Some(problem) = url_problem(&url) {
        // Not the URL itself, which may contain a password.
        return inconsistent(&format!(
            "prometheus.url {problem}; expected a URL such as http://prometheus.monitoring:9090"
        ));
    }
    Ok(Some(PrometheusOptions {
        url,
        timeout,
        ca_file: settings.get("prometheus.ca_file")?,
        token_file: settings.get("prometheus.token_file")?,
        client_certificate,
    }))
}

fn queries(settings: &Resolved) -> Result<BTreeMap<Query, String>, Error> {
    let read = |query: Query| {
        let path = format!("prometheus.queries.{}", query.name());
        let text: String = settings.get(&path)?;
        if text.trim().is_empty() || text.len() > MAX_QUERY_LENGTH {
            return inconsistent(&format!(
                "{path}: must not be empty or longer than {MAX_QUERY_LENGTH} bytes"
            ));
        }
        Ok((query, text))
    };
    Query::ALL.into_iter().map(read).collect()
}

fn match_labels(items: Option<Vec<String>>) -> Result<BTreeMap<String, String>, Error> {
    let mut labels = BTreeMap::new();
    for item in items.unwrap_or_default() {
        let pair = item.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let Some((key, value)) = pair.filter(|(key, value)| is_label(key, value)) else {
            return inconsistent(&format!(
                "prometheus.match_labels: {item:?} is not a label such as release=prometheus"
            ));
        };
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return inconsistent(&format!("prometheus.match_labels: {key} is set twice"));
        }
    }
    Ok(labels)
}

/// Whether Kubernetes accepts this label.
fn is_label(key: &str, value: &str) -> bool {
    let is_name = |name: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let ends = end(name.chars().next()) && end(name.chars().last());
        ends && name.len() <= 63 && name.chars().all(inner)
    };
    let is_domain = |domain: &str| {
        let label = |part: &str| is_name(part) && !part.contains(['_', '.']);
        let lower = !domain.contains(|c: char| c.is_ascii_uppercase());
        lower && domain.len() <= 253 && domain.split('.').all(label)
    };
    let key = match key.split_once('/') {
        Some((prefix, name)) => is_domain(prefix) && is_name(name),
        None => is_name(key),
    };
    key && (value.is_empty() || is_name(value))
}

fn inconsistent<T>(message: &str) -> Result<T, Error> {
    Err(Error::Inconsistent(message.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{super::tests::config, *};

    const URL: (&str, &str) = ("OPRC_CRM_PROM_URL", "http://p:9090/prefix");

    fn prometheus(variables: &[(&str, &str)]) -> Prometheus {
        config(variables).unwrap().prometheus
    }

    fn error(variables: &[(&str, &str)]) -> String {
        config(variables).unwrap_err().to_string()
    }

    #[test]
    fn defaults() {
        let expected = Prometheus {
            enabled: false,
            options: None,
            match_labels: BTreeMap::new(),
            scrape_kind: ScrapeKind::Auto,
            scrape_interval: Duration::from_secs(15),
            range: Duration::from_mins(10),
            step: Duration::from_secs(30),
            resource_range: Duration::from_hours(24),
            queries: Query::ALL.map(|query| (query, query.default_promql().to_owned())).into(),
            unknown_provider: None,
        };
        assert_eq!(prometheus(&[]), expected);
        let options = prometheus(&[URL]).options.unwrap();
        assert_eq!(
            options,
            PrometheusOptions {
                url: URL.1.to_owned(),
                timeout: Duration::from_secs(5),
                ca_file: None,
                token_file: None,
                client_certificate: None,
            }
        );
    }

    #[test]
    fn variables_of_the_seeds_are_read() {
        let found = prometheus(&[
            URL,
            ("OPRC_CRM_FEATURES_PROMETHEUS", "true"),
            ("OPRC_CRM_PROM_PROVIDER", "prometheus-operator"),
            ("OPRC_CRM_PROM_MATCH_LABELS", "release=prometheus, example.com/team=a"),
            ("OPRC_CRM_PROM_SCRAPE_KIND", "none"),
            ("OPRC_CRM_PROM_SCRAPE_INTERVAL", "5s"),
            ("OPRC_CRM_PROM_QUERY_TIMEOUT_SECS", "7"),
            ("OPRC_CRM_PROM_RANGE", "20m"),
            ("OPRC_CRM_PROM_STEP", "1m"),
            ("OPRC_CRM_PROM_RESOURCE_RANGE", "12h"),
            ("OPRC_CRM_PROM_CA_FILE", "/ca"),
            ("OPRC_CRM_PROM_TOKEN_FILE", "/token"),
            ("OPRC_CRM_PROM_CLIENT_CERTIFICATE", "/crt"),
            ("OPRC_CRM_PROM_CLIENT_KEY", "/key"),
        ]);
        assert!(found.enabled);
        assert_eq!(found.warnings(), Vec::<String>::new());
        let labels = [("example.com/team", "a"), ("release", "prometheus")];
        assert_eq!(found.match_labels, labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(found.scrape_kind, ScrapeKind::None);
        assert_eq!((found.range.as_secs(), found.step.as_secs()), (1200, 60));
        assert_eq!(found.scrape_interval.as_secs(), 5);
        assert_eq!(found.resource_range, Duration::from_hours(12));
        let options = found.options.unwrap();
        assert_eq!(options.timeout.as_secs(), 7);
        assert_eq!(options.ca_file, Some(PathBuf::from("/ca")));
        assert_eq!(options.token_file, Some(PathBuf::from("/token")));
        assert_eq!(options.client_certificate, Some(("/crt".into(), "/key".into())));
        for (name, kind) in
            [("service", ScrapeKind::Service), ("pod", ScrapeKind::Pod), ("auto", ScrapeKind::Auto)]
        {
            assert_eq!(prometheus(&[("OPRC_CRM_PROM_SCRAPE_KIND", name)]).scrape_kind, kind);
        }
    }

    #[test]
    fn unknown_provider_and_missing_url_only_warn() {
        let found = prometheus(&[("OPRC_CRM_PROM_PROVIDER", "otel")]);
        let warnings = found.warnings();
        assert_eq!(
            warnings,
            ["prometheus.provider: \"otel\" is ignored: only prometheus-operator is known"]
        );
        let warnings = prometheus(&[("OPRC_CRM_FEATURES_PROMETHEUS", "true")]).warnings();
        assert!(
            matches!(&warnings[..], [one] if one.contains("OPRC_CRM_PROM_URL")),
            "{warnings:?}"
        );
    }

    #[test]
    fn each_scrape_kind_needs_its_monitors() {
        let on = ("OPRC_CRM_FEATURES_PROMETHEUS", "true");
        for (kind, service, pod) in [
            ("auto", true, false),
            ("service", true, false),
            ("pod", false, true),
            ("none", false, false),
        ] {
            let kind = ("OPRC_CRM_PROM_SCRAPE_KIND", kind);
            let found = prometheus(&[URL, on, kind]);
            assert_eq!(found.lacks_monitors(false, true), service, "{kind:?}");
            assert_eq!(found.lacks_monitors(true, false), pod, "{kind:?}");
            assert!(!found.lacks_monitors(true, true), "{kind:?}");
            assert!(!prometheus(&[URL, kind]).lacks_monitors(false, false), "not enabled");
        }
    }

    #[test]
    fn profile_full_requires_a_url() {
        let full = [
            ("OPRC_CRM_PROFILE", "full"),
            ("OPRC_CRM_SERVER_HOST", "127.0.0.1"),
            ("OPRC_CRM_SECURITY_MTLS", "false"),
        ];
        assert!(error(&full).contains("OPRC_CRM_PROM_URL"));
        assert!(prometheus(&[&full[..], &[URL]].concat()).enabled);
        let off = ("OPRC_CRM_FEATURES_PROMETHEUS", "false");
        assert!(!prometheus(&[&full[..], &[off]].concat()).enabled);
    }

    #[test]
    fn invalid_values_are_rejected() {
        for (variable, value, message) in [
            ("OPRC_CRM_PROM_URL", "prometheus:9090", "prometheus.url"),
            ("OPRC_CRM_PROM_URL", "http://u:secret@p", "credentials"),
            ("OPRC_CRM_PROM_QUERY_TIMEOUT_SECS", "0", "query_timeout"),
            ("OPRC_CRM_PROM_STEP", "500ms", "prometheus.step"),
            ("OPRC_CRM_PROM_RANGE", "10s", "prometheus.range"),
            ("OPRC_CRM_PROM_RANGE", "25h", "prometheus.range"),
            ("OPRC_CRM_PROM_RANGE", "24h", "2880 steps"),
            ("OPRC_CRM_PROM_SCRAPE_INTERVAL", "0", "scrape_interval"),
            ("OPRC_CRM_PROM_RESOURCE_RANGE", "59m", "resource_range"),
            ("OPRC_CRM_PROM_RESOURCE_RANGE", "49h", "resource_range"),
            ("OPRC_CRM_PROM_SCRAPE_KIND", "all", "scrape_kind"),
            ("OPRC_CRM_PROM_MATCH_LABELS", "release", "match_labels"),
            ("OPRC_CRM_PROM_MATCH_LABELS", "a=1,a=2", "set twice"),
            ("OPRC_CRM_PROM_MATCH_LABELS", "-a=1", "match_labels"),
            ("OPRC_CRM_PROM_MATCH_LABELS", "Example/a=1", "match_labels"),
            ("OPRC_CRM_PROM_CLIENT_KEY", "/key", "client_certificate"),
        ] {
            let found = error(&[(variable, value)]);
            assert!(found.contains(message), "{variable}={value}: {found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }
}
