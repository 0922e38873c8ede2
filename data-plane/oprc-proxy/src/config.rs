//! Settings from environment variables.

use std::{
    collections::BTreeMap, ffi::OsString, fmt::Display, ops::RangeInclusive, str::FromStr,
    time::Duration,
};

const PREFIX: &str = "OPRC_PROXY_";
/// Large enough for any function; keeps sums of limits far from overflow.
const MAX_CALLS: usize = 1_000_000;
const MAX_MILLISECONDS: u64 = 24 * 60 * 60 * 1000;
const MAX_DRAIN_SECONDS: u64 = 60 * 60;
const MIN_DEFAULT_QUEUE_LENGTH: usize = 100;
const MAX_DEFAULT_QUEUE_LENGTH: usize = 1000;

/// The crate documentation lists the variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// 0 selects an unused port, for tests.
    pub port: u16,
    /// 0 selects an unused port, for tests.
    pub admin_port: u16,
    pub app_port: u16,
    pub max_concurrency: Option<usize>,
    /// Has no effect without `max_concurrency`.
    pub queue_length: usize,
    pub timeout: Option<Duration>,
    pub latency: Option<Duration>,
    pub hard_latency: Option<Duration>,
    pub breaker: bool,
    /// How long new calls are served after the start of a drain.
    pub lame_duck: Duration,
    /// Listen on all addresses instead of loopback.
    pub all_addresses: bool,
}

impl Config {
    /// Settings with defaults for everything but the port of the function.
    pub fn new(app_port: u16) -> Self {
        Self {
            port: 18080,
            admin_port: 18081,
            app_port,
            max_concurrency: None,
            queue_length: MIN_DEFAULT_QUEUE_LENGTH,
            timeout: None,
            latency: None,
            hard_latency: None,
            breaker: false,
            lame_duck: Duration::from_secs(5),
            all_addresses: false,
        }
    }

    /// The error names the variable and the allowed values.
    pub fn from_variables(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, String> {
        let (mut variables, all_addresses) = Variables::collect(variables);
        let port = variables.number("PORT", 1..=u16::MAX)?;
        let admin_port = variables.number("ADMIN_PORT", 1..=u16::MAX)?;
        let app_port = variables.number("APP_PORT", 1..=u16::MAX)?;
        let max_concurrency = variables.number("MAX_CONCURRENCY", 1..=MAX_CALLS)?;
        let queue_length = variables.number("QUEUE_LENGTH", 0..=MAX_CALLS)?;
        let timeout = variables.milliseconds("TIMEOUT_MS")?;
        let latency = variables.milliseconds("LATENCY_MS")?;
        let hard_latency = variables.milliseconds("HARD_LATENCY_MS")?;
        let breaker = variables.flag("BREAKER")?;
        let drain_seconds = variables.number("DRAIN_SECONDS", 0..=MAX_DRAIN_SECONDS)?;
        variables.warn_of_unknown();

        let app_port = app_port.ok_or_else(|| {
            format!("{PREFIX}APP_PORT: required, set it to the port of the function")
        })?;
        let defaults = Self::new(app_port);
        let config = Self {
            port: port.unwrap_or(defaults.port),
            admin_port: admin_port.unwrap_or(defaults.admin_port),
            max_concurrency,
            queue_length: queue_length.unwrap_or_else(|| default_queue_length(max_concurrency)),
            timeout,
            latency,
            hard_latency,
            breaker: breaker.unwrap_or(defaults.breaker),
            lame_duck: drain_seconds.map_or(defaults.lame_duck, Duration::from_secs),
            all_addresses,
            ..defaults
        };
        config.validate()?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), String> {
        if self.port == self.admin_port
            || self.port == self.app_port
            || self.admin_port == self.app_port
        {
            return Err(format!(
                "{PREFIX}PORT={}, {PREFIX}ADMIN_PORT={} and {PREFIX}APP_PORT={} must differ",
                self.port, self.admin_port, self.app_port
            ));
        }
        if self.breaker && self.hard_latency.is_none() {
            return Err(format!("{PREFIX}BREAKER=true: requires {PREFIX}HARD_LATENCY_MS"));
        }
        Ok(())
    }
}

fn default_queue_length(max_concurrency: Option<usize>) -> usize {
    let calls = max_concurrency.unwrap_or(0).saturating_mul(10);
    calls.clamp(MIN_DEFAULT_QUEUE_LENGTH, MAX_DEFAULT_QUEUE_LENGTH)
}

/// Variables that were not read yet, by their name without the prefix.
struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Also tells whether `container` is set, as in images.
    fn collect(variables: impl IntoIterator<Item = (OsString, OsString)>) -> (Self, bool) {
        let mut own = BTreeMap::new();
        let mut container = false;
        for (name, value) in variables {
            let name = name.to_string_lossy();
            container |= name == "container";
            if let Some(name) = name.strip_prefix(PREFIX) {
                own.insert(name.to_owned(), value.to_string_lossy().into_owned());
            }
        }
        (Self(own), container)
    }

    fn number<T>(&mut self, name: &str, allowed: RangeInclusive<T>) -> Result<Option<T>, String>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if allowed.contains(&number) => Ok(Some(number)),
            _ => Err(format!(
                "{PREFIX}{name}={text}: must be a number from {} to {}",
                allowed.start(),
                allowed.end()
            )),
        }
    }

    fn milliseconds(&mut self, name: &str) -> Result<Option<Duration>, String> {
        Ok(self.number(name, 1..=MAX_MILLISECONDS)?.map(Duration::from_millis))
    }

    fn flag(&mut self, name: &str) -> Result<Option<bool>, String> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{PREFIX}{name}={text}: must be true or false"))
    }

    /// Not an error: a newer CRM may set variables that this version doesn't know.
    fn warn_of_unknown(&self) {
        for name in self.0.keys() {
            eprintln!("oprc-proxy: the variable {PREFIX}{name} is unknown and ignored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Config, String> {
        Config::from_variables(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn only_the_port_of_the_function_is_required() {
        assert_eq!(parse(&[("OPRC_PROXY_APP_PORT", "8080")]), Ok(Config::new(8080)));
        assert!(parse(&[]).unwrap_err().starts_with("OPRC_PROXY_APP_PORT: required"));
    }

    #[test]
    fn reads_all_variables() {
        let config = parse(&[
            ("OPRC_PROXY_PORT", "1"),
            ("OPRC_PROXY_ADMIN_PORT", "2"),
            ("OPRC_PROXY_APP_PORT", "3"),
            ("OPRC_PROXY_MAX_CONCURRENCY", "4"),
            ("OPRC_PROXY_QUEUE_LENGTH", "0"),
            ("OPRC_PROXY_TIMEOUT_MS", "5"),
            ("OPRC_PROXY_LATENCY_MS", "6"),
            ("OPRC_PROXY_HARD_LATENCY_MS", "7"),
            ("OPRC_PROXY_BREAKER", "true"),
            ("OPRC_PROXY_DRAIN_SECONDS", "8"),
            ("container", "oci"),
            ("OTHER", "ignored"),
        ]);
        let expected = Config {
            port: 1,
            admin_port: 2,
            app_port: 3,
            max_concurrency: Some(4),
            queue_length: 0,
            timeout: Some(Duration::from_millis(5)),
            latency: Some(Duration::from_millis(6)),
            hard_latency: Some(Duration::from_millis(7)),
            breaker: true,
            lame_duck: Duration::from_secs(8),
            all_addresses: true,
        };
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn default_queue_holds_ten_calls_for_each_slot() {
        let queue_length = |max| {
            let max = ("OPRC_PROXY_MAX_CONCURRENCY", max);
            parse(&[("OPRC_PROXY_APP_PORT", "8080"), max]).unwrap().queue_length
        };
        assert_eq!(queue_length("1"), 100);
        assert_eq!(queue_length("50"), 500);
        assert_eq!(queue_length("1000"), 1000);
    }

    #[test]
    fn variables_of_a_newer_version_are_ignored() {
        assert!(parse(&[("OPRC_PROXY_APP_PORT", "80"), ("OPRC_PROXY_NEW", "1")]).is_ok());
    }

    #[test]
    fn errors_name_the_variable_and_the_allowed_values() {
        let error = |name: &str, value: &str| {
            parse(&[("OPRC_PROXY_APP_PORT", "8080"), (name, value)]).unwrap_err()
        };
        assert_eq!(
            error("OPRC_PROXY_PORT", "http"),
            "OPRC_PROXY_PORT=http: must be a number from 1 to 65535"
        );
        assert_eq!(
            error("OPRC_PROXY_MAX_CONCURRENCY", "0"),
            "OPRC_PROXY_MAX_CONCURRENCY=0: must be a number from 1 to 1000000"
        );
        assert_eq!(
            error("OPRC_PROXY_BREAKER", "yes"),
            "OPRC_PROXY_BREAKER=yes: must be true or false"
        );
        assert!(error("OPRC_PROXY_BREAKER", "true").contains("OPRC_PROXY_HARD_LATENCY_MS"));
        assert!(error("OPRC_PROXY_PORT", "8080").contains("must differ"));
    }
}
