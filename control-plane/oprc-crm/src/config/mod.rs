//! What CRM can be told: flag, environment, file, profile default, in that order.

mod settings;

use oprc_config::{Error, Resolved};
use oprc_observability::Format;
use oprc_unit::{Floors, OdgmImages, Platform, Profile, Template};

pub use self::settings::SCHEMA;

/// Everything that CRM was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens and whom it lets in.
    pub server: oprc_server::Settings,
    /// Where classes go that don't say; the pod's own namespace where left out.
    pub namespace: Option<String>,
    /// Whether it sees that namespace only.
    pub namespaced: bool,
    /// What classes meet.
    pub environment: Platform,
    /// Whether several processes choose one that writes.
    pub leader_election: bool,
    /// The name of the lease.
    pub lease: String,
    /// Its namespace, where that was said.
    pub lease_namespace: Option<String>,
    /// How many classes are looked at at once.
    pub concurrency: usize,
    /// How many calls are worked on at once.
    pub calls: usize,
    /// How logs are written.
    pub log_format: Format,
    /// What is logged.
    pub log_filter: String,
}

impl Config {
    /// Makes a configuration of settings.
    pub fn of(settings: &Resolved) -> Result<Self, Error> {
        let profile = Profile::parse(settings.profile()).unwrap_or_default();
        let mut environment = Platform::of(profile);
        environment.features.odgm = settings.get("features.odgm")?;
        environment.features.hpa = settings.get("features.hpa")?;
        environment.features.knative = settings.get("features.knative")?;
        environment.floors = Floors {
            k8s_deployment: settings.get("templates.floors.k8s_deployment_ms")?,
            knative_warm: settings.get("templates.floors.knative_warm_ms")?,
            knative_cold: settings.get("templates.floors.knative_cold_ms")?,
        };
        environment.knative_timeout = settings.get("templates.knative_max_timeout")?;
        environment.default_template = settings.get("templates.default_template")?;
        environment.progress_deadline = settings.get("performance.deployment_timeout")?;
        environment.drain = settings.get("templates.drain")?;
        environment.odgm_images = OdgmImages { any: settings.get("odgm.image")? };
        environment.odgm_disk = settings.get("odgm.disk")?;
        for (path, place) in [
            (
                "odgm.container_resources.function.requests.cpu",
                &mut environment.function_sizes.requests.cpu,
            ),
            (
                "odgm.container_resources.function.requests.memory",
                &mut environment.function_sizes.requests.memory,
            ),
            (
                "odgm.container_resources.function.limits.cpu",
                &mut environment.function_sizes.limits.cpu,
            ),
            (
                "odgm.container_resources.function.limits.memory",
                &mut environment.function_sizes.limits.memory,
            ),
            (
                "odgm.container_resources.odgm.requests.cpu",
                &mut environment.odgm_sizes.requests.cpu,
            ),
            (
                "odgm.container_resources.odgm.requests.memory",
                &mut environment.odgm_sizes.requests.memory,
            ),
            ("odgm.container_resources.odgm.limits.cpu", &mut environment.odgm_sizes.limits.cpu),
            (
                "odgm.container_resources.odgm.limits.memory",
                &mut environment.odgm_sizes.limits.memory,
            ),
        ] {
            let amount: String = settings.get(path)?;
            if !oprc_unit::is_quantity(&amount) {
                return Err(Error::Inconsistent(format!(
                    "{path}: {amount:?} is not a quantity such as 250m or 256Mi"
                )));
            }
            *place = Some(amount);
        }
        let config = Self {
            server: oprc_server::Settings::from_resolved(settings)?,
            namespace: settings.get("kubernetes.namespace")?,
            namespaced: settings.get::<&str>("kubernetes.scope")? == "namespace",
            environment,
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

    fn check(&self, profile: Profile) -> Result<(), Error> {
        let inconsistent = |message: &str| Err(Error::Inconsistent(message.to_owned()));
        if !self.server.requires_auth()
            && !self.server.address.ip().is_loopback()
            && profile != Profile::Dev
        {
            return inconsistent(
                "running without mTLS and tokens is only allowed on a loopback address (server.host) or \
                 in profile dev: set security.mtls or security.token_file",
            );
        }
        let template = self.environment.default_template.as_deref();
        if let Some(name) = template.filter(|name| !Template::can_be_default(name)) {
            let message = "must be one of k8s_deployment, knative, unified";
            return Err(Error::Inconsistent(format!(
                "templates.default_template: {name:?} {message}"
            )));
        }
        if !oprc_unit::is_disk_size(&self.environment.odgm_disk) {
            let disk = &self.environment.odgm_disk;
            return Err(Error::Inconsistent(format!(
                "odgm.disk: {disk:?} is not a quantity such as 1Gi"
            )));
        }
        for (path, namespace) in [
            ("kubernetes.namespace", &self.namespace),
            ("kubernetes.lease_namespace", &self.lease_namespace),
        ] {
            if let Some(name) = namespace.as_ref().filter(|it| !oprc_unit::names::is_namespace(it))
            {
                return Err(Error::Inconsistent(format!(
                    "{path}: {name:?} is not a valid namespace name"
                )));
            }
        }
        if oprc_unit::names::label(&self.lease) != self.lease {
            let lease = &self.lease;
            return Err(Error::Inconsistent(format!(
                "kubernetes.lease: {lease:?} is not a valid name"
            )));
        }
        Ok(())
    }
}
