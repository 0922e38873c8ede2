//! What PM can be told: flag, environment, file, default, in that order.

mod clusters;
mod settings;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use oprc_config::{Error, Resolved};
use oprc_cp_storage::{EtcdOptions, EtcdTls, Login, Password};
use oprc_observability::Format;

pub use self::{
    clusters::{ClusterConfig, ClusterTls, Secret, take_variables},
    settings::SCHEMA,
};

/// Everything that PM was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens and whom it lets in: without a file of tokens nobody is asked.
    pub server: oprc_server::Settings,
    /// What requests are bounded by.
    pub limits: Limits,
    /// Origins whose pages may use the API.
    pub cors_origins: Vec<String>,
    /// Whether there is a page to try the API.
    pub docs: bool,
    /// Where everything is kept.
    pub store: StoreConfig,
    /// The clusters, by name.
    pub clusters: Vec<ClusterConfig>,
    /// How long a call of a CRM may take.
    pub crm_deadline: Duration,
    /// How long an all-or-nothing deployment may be on its way.
    pub progress_deadline: Duration,
    /// How long a cluster may be away before such a deployment is rolled back.
    pub unreachable_deadline: Duration,
    /// The environment of deployments that name none.
    pub default_environment: Option<String>,
    /// How logs are written.
    pub log_format: Format,
    /// What is logged.
    pub log_filter: String,
}

/// What requests are bounded by.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a body may be.
    pub body_bytes: usize,
    /// How many requests are worked on at once.
    pub requests: usize,
    /// How many event streams may be open.
    pub streams: usize,
    /// How long a request may take until its answer begins.
    pub timeout: Duration,
    /// How many requests a second one caller may make in the long run; 0 is no limit.
    pub rate: u32,
    /// How many one caller may make at once.
    pub burst: u32,
}

/// Where everything is kept.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// Nowhere that lasts.
    Memory,
    /// In a file.
    Redb {
        /// The file.
        path: PathBuf,
        /// How much of it is kept in memory.
        cache_bytes: usize,
        /// How long a call may take.
        deadline: Duration,
    },
    /// In etcd.
    Etcd(EtcdOptions),
}

impl Config {
    /// Makes a configuration of settings and of the variables that are about clusters.
    pub fn of(settings: &Resolved, variables: &BTreeMap<String, String>) -> Result<Self, Error> {
        let auth: &str = settings.get("security.auth")?;
        let config = Self {
            server: oprc_server::Settings {
                require_roles: true,
                ..oprc_server::Settings::from_resolved(settings)?
            },
            limits: Limits {
                body_bytes: settings.get("server.max_body_bytes")?,
                requests: settings.get("server.max_concurrent_requests")?,
                streams: settings.get("server.max_event_streams")?,
                timeout: settings.get("server.request_timeout")?,
                rate: settings.get("server.rate_limit")?,
                burst: settings.get("server.rate_burst")?,
            },
            cors_origins: settings
                .get::<Option<Vec<String>>>("server.cors_origins")?
                .unwrap_or_default(),
            docs: settings.get("server.docs")?,
            store: store(settings)?,
            clusters: read_clusters(settings, variables)?,
            crm_deadline: settings.get("crm.deadline")?,
            progress_deadline: settings.get("deployments.progress_deadline")?,
            unreachable_deadline: settings.get("deployments.unreachable_deadline")?,
            default_environment: settings.get("deployments.default_environment")?,
            log_format: settings.get::<&str>("logging.format")?.parse().map_err(
                |error: oprc_observability::Error| Error::Inconsistent(error.to_string()),
            )?,
            log_filter: settings.get("logging.level")?,
        };
        config.check(auth == "off")?;
        Ok(config)
    }

    fn check(&self, auth_off: bool) -> Result<(), Error> {
        let wrong = |message: &str| Err(Error::Inconsistent(message.to_owned()));
        if auth_off && self.server.token_file.is_some() {
            return wrong(
                "security.auth is off, but security.token_file is set: remove one of them",
            );
        }
        if auth_off && !self.server.address.ip().is_loopback() {
            return wrong(
                "security.auth=off is only allowed on a loopback address: change server.host or set security.token_file",
            );
        }
        if !auth_off && self.server.token_file.is_none() {
            return wrong(
                "security.token_file is not set; on a loopback address, security.auth=off disables \
                 authentication",
            );
        }
        for (name, duration) in [
            ("server.request_timeout", self.limits.timeout),
            ("crm.deadline", self.crm_deadline),
            ("deployments.progress_deadline", self.progress_deadline),
            ("deployments.unreachable_deadline", self.unreachable_deadline),
        ] {
            if duration.is_zero() {
                return Err(Error::Inconsistent(format!("{name} must be above 0")));
            }
        }
        for origin in &self.cors_origins {
            if !is_origin(origin) {
                return Err(Error::Inconsistent(format!(
                    "server.cors_origins: {origin:?} is not an origin such as https://example.org"
                )));
            }
        }
        Ok(())
    }
}

/// What is in force for clusters, in lines, without secrets.
pub fn describe_clusters(clusters: &[ClusterConfig]) -> String {
    let line = |cluster: &ClusterConfig| {
        let tls = match &cluster.tls {
            None => "no TLS",
            Some(tls) if tls.client.is_none() => "TLS",
            Some(_) => "mTLS",
        };
        let token = if cluster.token.is_some() { "token" } else { "no token" };
        let default = if cluster.default { ", default" } else { "" };
        format!("cluster {}  {}  {tls}, {token}{default}\n", cluster.name, cluster.url)
    };
    clusters.iter().map(line).collect()
}

/// An origin as browsers send it: no path, no user, no wildcard.
fn is_origin(origin: &str) -> bool {
    let Ok(uri) = origin.parse::<axum::http::Uri>() else { return false };
    let authority = uri.authority().map(axum::http::uri::Authority::as_str).unwrap_or_default();
    matches!(uri.scheme_str(), Some("http" | "https"))
        && !authority.is_empty()
        && !authority.contains(['@', '*'])
        && uri.query().is_none()
        && uri.path() == "/"
        && !origin.ends_with('/')
}

fn store(settings: &Resolved) -> Result<StoreConfig, Error> {
    let deadline: Duration = settings.get("store.deadline")?;
    if deadline.is_zero() {
        return Err(Error::Inconsistent("store.deadline must be above 0".to_owned()));
    }
    match settings.get::<&str>("store.kind")? {
        "memory" => Ok(StoreConfig::Memory),
        "redb" => Ok(StoreConfig::Redb {
            path: settings.get("store.path")?,
            cache_bytes: settings.get("store.cache_bytes")?,
            deadline,
        }),
        _ => {
            let endpoints: Option<Vec<String>> = settings.get("store.etcd.endpoints")?;
            let endpoints = endpoints.filter(|all| !all.is_empty()).ok_or_else(|| {
                Error::Inconsistent("store.kind=etcd requires store.etcd.endpoints".to_owned())
            })?;
            let client = settings.both("store.etcd.certificate", "store.etcd.key")?;
            let ca: Option<PathBuf> = settings.get("store.etcd.ca")?;
            if ca.is_none() && client.is_some() {
                return Err(Error::Inconsistent(
                    "store.etcd.certificate requires store.etcd.ca".to_owned(),
                ));
            }
            let server_name = settings.get("store.etcd.server_name")?;
            let login = settings
                .both("store.etcd.user", "store.etcd.password_file")?
                .map(|(user, file)| Login { user, password: Password::File(file) });
            let options = EtcdOptions::new(endpoints);
            Ok(StoreConfig::Etcd(EtcdOptions {
                root: settings.get("store.etcd.root")?,
                tls: ca.map(|ca| EtcdTls { ca, client, server_name }),
                login,
                deadline,
                lease_ttl: settings.get("store.etcd.lease")?,
                ..options
            }))
        }
    }
}

fn read_clusters(
    settings: &Resolved,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<ClusterConfig>, Error> {
    let file: Option<PathBuf> = settings.get("crm.clusters_file")?;
    let text = file
        .map(|file| {
            fs::read_to_string(&file).map_err(|error| {
                Error::Inconsistent(format!("crm.clusters_file: {}: {error}", file.display()))
            })
        })
        .transpose()?;
    clusters::read(text.as_deref(), variables, settings.get("crm.default_cluster")?)
}
