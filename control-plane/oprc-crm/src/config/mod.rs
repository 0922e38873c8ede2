//! What CRM can be told: flag, environment, file, profile default, in that order.

mod settings;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use oprc_config::{Error, Resolved};
use oprc_observability::Format;
use oprc_server::TlsFiles;

pub use self::settings::SCHEMA;
use crate::{
    environment::{Environment, Floors, OdgmImages, Profile},
    reconcile::select::Template,
};

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A value is.
    #[error(transparent)]
    Value(#[from] Error),
    /// Values don't go together.
    #[error("{0}")]
    Together(String),
}

/// Everything that CRM was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub address: SocketAddr,
    /// How long open calls may take to finish when it stops.
    pub drain: Duration,
    /// Where classes go that don't say; the pod's own namespace where left out.
    pub namespace: Option<String>,
    /// Whether it sees that namespace only.
    pub namespaced: bool,
    /// What classes meet.
    pub environment: Environment,
    /// Whether several processes choose one that writes.
    pub leader_election: bool,
    /// The name of the lease.
    pub lease: String,
    /// How many classes are looked at at once.
    pub concurrency: usize,
    /// How many calls are worked on at once.
    pub calls: usize,
    /// Certificates.
    pub tls: Option<TlsFiles>,
    /// Whether clients need a certificate.
    pub mtls: bool,
    /// A file of tokens, one of which clients need.
    pub token_file: Option<PathBuf>,
    /// How logs are written.
    pub log_format: Format,
    /// What is logged.
    pub log_filter: String,
}

impl Config {
    /// Makes a configuration of settings.
    pub fn of(settings: &Resolved) -> Result<Self, Wrong> {
        let profile = Profile::parse(settings.profile()).unwrap_or_default();
        let mut environment = Environment::of(profile);
        environment.features.odgm = settings.get("features.odgm")?;
        environment.features.hpa = settings.get("features.hpa")?;
        environment.features.knative = settings.get("features.knative")?;
        environment.floors = Floors {
            k8s_deployment: settings.get("templates.floors.k8s_deployment_ms")?,
            knative_warm: settings.get("templates.floors.knative_warm_ms")?,
            knative_cold: settings.get("templates.floors.knative_cold_ms")?,
        };
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
            if !crate::class::is_quantity(&amount) {
                return Err(Wrong::Together(format!(
                    "{path}: {amount:?} is no amount, such as 250m or 256Mi"
                )));
            }
            *place = Some(amount);
        }
        let host: Option<String> = settings.get("server.host")?;
        let host = host
            .as_deref()
            .map(str::parse::<IpAddr>)
            .transpose()
            .map_err(|_| Wrong::Together("server.host isn't an IP address".to_owned()))?;
        let host = host.unwrap_or_else(default_host);
        let certificate: Option<PathBuf> = settings.get("security.tls.certificate")?;
        let key: Option<PathBuf> = settings.get("security.tls.key")?;
        let client_ca: Option<PathBuf> = settings.get("security.tls.client_ca")?;
        let tls = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key, client_ca }),
            (None, None) => None,
            _ => {
                return Err(Wrong::Together(
                    "security.tls.certificate and security.tls.key are needed together".to_owned(),
                ));
            }
        };
        let config = Self {
            address: SocketAddr::new(host, settings.get("server.port")?),
            drain: settings.get("server.shutdown_timeout")?,
            namespace: settings.get("kubernetes.namespace")?,
            namespaced: settings.get::<&str>("kubernetes.scope")? == "namespace",
            environment,
            leader_election: settings.get("features.leader_election")?,
            lease: settings.get("kubernetes.lease")?,
            concurrency: settings.get("performance.max_concurrent_deployments")?,
            calls: settings.get("server.max_concurrent_calls")?,
            tls,
            mtls: settings.get("security.mtls")?,
            token_file: settings.get("security.token_file")?,
            log_format: settings
                .get::<&str>("logging.format")?
                .parse()
                .map_err(|error: oprc_observability::Error| Wrong::Together(error.to_string()))?,
            log_filter: settings.get("logging.level")?,
        };
        config.check(profile)?;
        Ok(config)
    }

    fn check(&self, profile: Profile) -> Result<(), Wrong> {
        let together = |message: &str| Err(Wrong::Together(message.to_owned()));
        if self.mtls && self.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
            return together(
                "security.mtls is on (as it is by default in the profile full), and needs \
                 security.tls.certificate, security.tls.key and security.tls.client_ca",
            );
        }
        if !self.guarded() && !self.address.ip().is_loopback() && profile != Profile::Dev {
            return together(
                "neither security.mtls nor security.token_file is set: that goes with a loopback \
                 address (server.host) or the profile dev only",
            );
        }
        let template = self.environment.default_template.as_deref();
        if let Some(name) = template.filter(|name| !Template::can_be_default(name)) {
            let message = "must be one of k8s_deployment, knative, unified";
            return Err(Wrong::Together(format!("templates.default_template: {name:?} {message}")));
        }
        if !crate::class::is_quantity(&self.environment.odgm_disk) {
            let disk = &self.environment.odgm_disk;
            return Err(Wrong::Together(format!("odgm.disk: {disk:?} is no amount, such as 1Gi")));
        }
        if let Some(namespace) = &self.namespace
            && !crate::names::is_namespace(namespace)
        {
            let message = format!("kubernetes.namespace: {namespace:?} is no name");
            return Err(Wrong::Together(message));
        }
        if crate::names::label(&self.lease) != self.lease {
            let lease = &self.lease;
            return Err(Wrong::Together(format!("kubernetes.lease: {lease:?} is no name")));
        }
        Ok(())
    }

    /// Whether anybody is asked who they are.
    pub fn guarded(&self) -> bool {
        self.mtls || self.token_file.is_some()
    }
}

/// In a container the network is its own; elsewhere it is everybody's.
fn default_host() -> IpAddr {
    let contained = ["container", "KUBERNETES_SERVICE_HOST"];
    if contained.iter().any(|name| std::env::var_os(name).is_some()) {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    }
}
