//! The configuration of CRM, by precedence: flag, environment variable, file, profile default.

mod nfr;
mod prometheus;
mod settings;

use std::{collections::BTreeMap, time::Duration};

use oprc_config::{Error, Resolved};
use oprc_observability::Format;
use oprc_unit::{
    Features, Floors, OdgmImages, Platform, Profile, Scaling, Sizes, Template, names,
    spec::Resources,
};

pub use self::{
    nfr::Nfr,
    prometheus::{Prometheus, ScrapeKind},
    settings::SCHEMA,
};

/// The API server's limit.
const MAX_AUTOSCALER_WINDOW: Duration = Duration::from_hours(1);

#[derive(Clone, Debug)]
pub struct Config {
    pub server: oprc_server::Settings,
    /// The namespace of classes that name none; by default that of the pod.
    pub namespace: Option<String>,
    /// Whether CRM is restricted to that namespace.
    pub namespaced: bool,
    pub platform: Platform,
    pub prometheus: Prometheus,
    pub nfr: Nfr,
    pub leader_election: bool,
    pub lease: String,
    /// By default the namespace of the pod.
    pub lease_namespace: Option<String>,
    /// How many classes are reconciled at once.
    pub concurrency: usize,
    /// How many gRPC calls are served at once.
    pub calls: usize,
    pub log_format: Format,
    pub log_filter: String,
}

impl Config {
    pub fn of(settings: &Resolved) -> Result<Self, Error> {
        let profile = Profile::parse(settings.get("profile")?).unwrap_or_default();
        let server = oprc_server::Settings::from_resolved(settings)?;
        let prometheus = Prometheus::of(settings, profile)?;
        let nfr = Nfr::of(settings, &prometheus)?;
        let platform = Platform {
            features: Features {
                odgm: settings.get("features.odgm")?,
                hpa: settings.get("features.hpa")?,
                knative: settings.get("features.knative")?,
            },
            floors: Floors {
                k8s_deployment: settings.get("templates.floors.k8s_deployment_ms")?,
                knative_warm: settings.get("templates.floors.knative_warm_ms")?,
                knative_cold: settings.get("templates.floors.knative_cold_ms")?,
            },
            knative_timeout: settings.get("templates.knative_max_timeout")?,
            default_template: settings.get("templates.default_template")?,
            progress_deadline: settings.get("performance.deployment_timeout")?,
            drain: settings.get("templates.drain")?,
            function_sizes: sizes(settings, "function")?,
            odgm_sizes: sizes(settings, "odgm")?,
            odgm_images: OdgmImages { any: settings.get("odgm.image")? },
            odgm_disk: settings.get("odgm.disk")?,
            proxy_image: settings.get("proxy.image")?,
            scaling: Scaling {
                max_instances: settings.get("limits.max_replicas")?,
                max_cpu_millis: nfr.max_resources.cpu_millis,
                max_memory_bytes: nfr.max_resources.memory_bytes,
                cpu_percent: settings.get("hpa.cpu_percent")?,
                up_window: settings.get("hpa.scale_up_window")?,
                up_percent: settings.get("hpa.scale_up_percent")?,
                up_pods: settings.get("hpa.scale_up_pods")?,
                down_window: settings.get("hpa.scale_down_window")?,
                down_percent: settings.get("hpa.scale_down_percent")?,
            },
            ..Platform::of(profile)
        };
        let config = Self {
            server,
            namespace: settings.get("kubernetes.namespace")?,
            namespaced: settings.get::<&str>("kubernetes.scope")? == "namespace",
            platform,
            nfr,
            prometheus,
            leader_election: settings.get("features.leader_election")?,
            lease: settings.get("kubernetes.lease")?,
            lease_namespace: settings.get("kubernetes.lease_namespace")?,
            concurrency: settings.get("performance.max_concurrent_deployments")?,
            calls: settings.get("server.max_concurrent_calls")?,
            log_format: settings.get::<&str>("logging.format")?.parse().map_err(
                |error: oprc_observability::Error| Error::Inconsistent(error.to_string()),
            )?,
            log_filter: settings.get("logging.level")?,
        };
        config.check(profile)?;
        Ok(config)
    }

    /// Problems that don't prevent startup.
    pub fn warnings(&self) -> Vec<String> {
        self.prometheus.warnings()
    }

    fn check(&self, profile: Profile) -> Result<(), Error> {
        let inconsistent = |message: String| Err(Error::Inconsistent(message));
        if !self.server.requires_auth()
            && !self.server.address.ip().is_loopback()
            && profile != Profile::Dev
        {
            return inconsistent(
                "running without mTLS and tokens is only allowed on a loopback address (server.host) or \
                 in profile dev: set security.mtls or security.token_file"
                    .to_owned(),
            );
        }
        let Platform { default_template, odgm_disk, .. } = &self.platform;
        if let Some(name) = default_template.as_ref().filter(|it| !Template::can_be_default(it)) {
            return inconsistent(format!(
                "templates.default_template: {name:?} must be one of k8s_deployment, knative, unified"
            ));
        }
        if !oprc_unit::is_volume_size(odgm_disk) {
            return inconsistent(format!("odgm.disk: {odgm_disk:?} is not a quantity such as 1Gi"));
        }
        for (path, namespace) in [
            ("kubernetes.namespace", &self.namespace),
            ("kubernetes.lease_namespace", &self.lease_namespace),
        ] {
            if let Some(name) = namespace.as_ref().filter(|it| !names::is_namespace(it)) {
                return inconsistent(format!("{path}: {name:?} is not a valid namespace name"));
            }
        }
        let Scaling { up_window, down_window, .. } = self.platform.scaling;
        for (path, window) in
            [("hpa.scale_up_window", up_window), ("hpa.scale_down_window", down_window)]
        {
            if window > MAX_AUTOSCALER_WINDOW {
                return inconsistent(format!("{path} must be at most 1h"));
            }
        }
        if !names::is_plain(&self.lease) {
            let lease = &self.lease;
            return inconsistent(format!("kubernetes.lease: {lease:?} is not a valid name"));
        }
        Ok(())
    }
}

/// The default requests and limits of `function` or `odgm`.
fn sizes(settings: &Resolved, of: &str) -> Result<Sizes, Error> {
    let quantity = |path: String| -> Result<Option<String>, Error> {
        let quantity: String = settings.get(&path)?;
        if !oprc_unit::is_quantity(&quantity) {
            return Err(Error::Inconsistent(format!(
                "{path}: {quantity:?} is not a quantity such as 250m or 256Mi"
            )));
        }
        Ok(Some(quantity))
    };
    let resources = |part: &str| -> Result<Resources, Error> {
        let path = format!("odgm.container_resources.{of}.{part}");
        let (cpu, memory) = (quantity(format!("{path}.cpu"))?, quantity(format!("{path}.memory"))?);
        Ok(Resources { cpu, memory, ephemeral_storage: None })
    };
    Ok(Sizes { requests: resources("requests")?, limits: resources("limits")? })
}

/// A warning if `GRPC_PORT` is set and CRM listens on another port: HTTP and gRPC share one.
pub fn port_warning(environment: &BTreeMap<String, String>, port: u16) -> Option<String> {
    let grpc = environment.get("GRPC_PORT").map(|it| it.trim()).filter(|it| !it.is_empty())?;
    if grpc.parse() == Ok(port) {
        return None;
    }
    let http = environment.get("HTTP_PORT").map_or("unset", |it| it.trim());
    Some(format!(
        "GRPC_PORT ({grpc}) is ignored: HTTP and gRPC share one port, which is {port} \
         (HTTP_PORT: {http}); unset GRPC_PORT or set both to the same value"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn config(variables: &[(&str, &str)]) -> Result<Config, Error> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let matches = SCHEMA.command().get_matches_from(["oprc-crm"]);
        Config::of(&SCHEMA.resolve(&matches, &variables.iter().map(own).collect())?)
    }

    pub(super) fn config_of_file(text: &str) -> Result<Config, Error> {
        let matches = SCHEMA.command().get_matches_from(["oprc-crm", "--config", "crm.yaml"]);
        let settings = SCHEMA.resolve_with(&matches, &BTreeMap::new(), |_| Ok(text.to_owned()))?;
        Config::of(&settings)
    }

    #[test]
    fn profile_variable_sets_the_defaults() {
        assert_eq!(config(&[]).unwrap().platform, Platform::of(Profile::Dev));
        for (name, profile) in
            [("dev", Profile::Dev), ("edge", Profile::Edge), ("full", Profile::Full)]
        {
            let config = config(&[
                ("OPRC_CRM_PROFILE", name),
                ("OPRC_CRM_SERVER_HOST", "127.0.0.1"),
                ("OPRC_CRM_SECURITY_MTLS", "false"),
                ("OPRC_CRM_PROM_URL", "http://prometheus:9090"),
            ]);
            assert_eq!(config.unwrap().platform, Platform::of(profile), "{name}");
        }
        let own = [("OPRC_CRM_PROFILE", "edge"), ("OPRC_CRM_SERVER_HOST", "127.0.0.1")];
        let deadline = ("OPRC_CRM_PERFORMANCE_DEPLOYMENT_TIMEOUT", "7s");
        let platform = config(&[own[0], own[1], deadline]).unwrap().platform;
        assert_eq!(platform.progress_deadline.as_secs(), 7);
        assert_eq!(platform.function_sizes, Platform::of(Profile::Edge).function_sizes);
        assert!(config(&[("OPRC_CRM_PROFILE", "large")]).is_err());
    }

    #[test]
    fn profile_full_requires_client_certificates() {
        let error = config(&[("OPRC_CRM_PROFILE", "full")]).unwrap_err().to_string();
        assert!(error.contains("security.mtls is enabled"), "{error}");
    }

    #[test]
    fn warns_about_a_grpc_port_that_is_not_used() {
        let warning = |variables: &[(&str, &str)], port| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            port_warning(&variables.iter().map(own).collect(), port)
        };
        let both = [("HTTP_PORT", "8088"), ("GRPC_PORT", "9090")];
        let text = warning(&both, 8088).unwrap();
        assert!(text.contains("GRPC_PORT (9090)") && text.contains("which is 8088"), "{text}");
        assert_eq!(warning(&[("HTTP_PORT", "8088"), ("GRPC_PORT", "8088")], 8088), None);
        assert_eq!(warning(&[("GRPC_PORT", "9090")], 9090), None);
        assert_eq!(warning(&[("HTTP_PORT", "8088")], 8088), None);
        let flag_wins = warning(&[("GRPC_PORT", "9090")], 7000).unwrap();
        assert!(flag_wins.contains("which is 7000"), "{flag_wins}");
    }
}
