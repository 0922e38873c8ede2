//! Configuration: flags, environment variables, a file and defaults, in that order.

mod clusters;
mod settings;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use oprc_config::{Error, Resolved};
use oprc_cp_storage::{EtcdOptions, EtcdTls, Login, Password};
use oprc_observability::Format;

pub use self::{
    clusters::{ClusterConfig, take_variables},
    settings::SCHEMA,
};

#[derive(Clone, Debug)]
pub struct Config {
    /// Without a token file callers are not authenticated.
    pub server: oprc_server::Settings,
    pub limits: Limits,
    pub cors_origins: Vec<String>,
    /// Whether `/docs` is served.
    pub docs: bool,
    pub store: StoreConfig,
    /// Sorted by name.
    pub clusters: Vec<ClusterConfig>,
    /// Bounds Deploy and Delete calls to CRMs.
    pub crm_deadline: Duration,
    /// For an all-or-nothing deployment to become Available.
    pub progress_deadline: Duration,
    /// How long a cluster may be unreachable before such a deployment is rolled back.
    pub unreachable_deadline: Duration,
    /// Of deployments that name none.
    pub default_environment: Option<String>,
    pub log_format: Format,
    pub log_filter: String,
}

/// Limits of requests to the API.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub body_bytes: usize,
    /// Concurrent requests.
    pub requests: usize,
    /// Open event streams.
    pub streams: usize,
    /// Until the response begins.
    pub timeout: Duration,
    /// Requests per second of one caller in the long run; 0 for no limit.
    pub rate: u32,
    /// Requests of one caller at once.
    pub burst: u32,
}

#[derive(Clone, Debug)]
pub enum StoreConfig {
    Memory,
    Redb { path: PathBuf, cache_bytes: usize, deadline: Duration },
    Etcd(EtcdOptions),
}

impl Config {
    /// `variables` are those of [`take_variables`].
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
            log_format: settings
                .get::<&str>("logging.format")?
                .parse::<Format>()
                .or_else(|error| inconsistent(error.to_string()))?,
            log_filter: settings.get("logging.level")?,
        };
        config.check(auth == "off")?;
        Ok(config)
    }

    fn check(&self, auth_off: bool) -> Result<(), Error> {
        if auth_off && self.server.token_file.is_some() {
            return inconsistent(
                "security.auth is off, but security.token_file is set: remove one of them",
            );
        }
        if auth_off && !self.server.address.ip().is_loopback() {
            return inconsistent(
                "security.auth=off is only allowed on a loopback address: change server.host or set security.token_file",
            );
        }
        if !auth_off && self.server.token_file.is_none() {
            return inconsistent(
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
            check_not_zero(name, duration)?;
        }
        match self.cors_origins.iter().find(|origin| !is_origin(origin)) {
            Some(origin) => inconsistent(format!(
                "server.cors_origins: {origin:?} is not an origin such as https://example.org"
            )),
            None => Ok(()),
        }
    }
}

fn inconsistent<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Inconsistent(message.into()))
}

fn check_not_zero(name: &str, duration: Duration) -> Result<(), Error> {
    if duration.is_zero() { inconsistent(format!("{name} must be above 0")) } else { Ok(()) }
}

/// One line per cluster, without secrets.
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

/// An origin as browsers send it: without path, user and wildcard.
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
    check_not_zero("store.deadline", deadline)?;
    let endpoints: Option<Vec<String>> = settings.get("store.etcd.endpoints")?;
    // Settings are printed, also those of a store that is not used.
    if endpoints.iter().flatten().any(|endpoint| endpoint.contains('@')) {
        return inconsistent(
            "store.etcd.endpoints must not contain a user: use store.etcd.user and \
             store.etcd.password_file",
        );
    }
    match settings.get::<&str>("store.kind")? {
        "memory" => Ok(StoreConfig::Memory),
        "redb" => Ok(StoreConfig::Redb {
            path: settings.get("store.path")?,
            cache_bytes: settings.get("store.cache_bytes")?,
            deadline,
        }),
        _ => {
            let Some(endpoints) = endpoints.filter(|all| !all.is_empty()) else {
                return inconsistent("store.kind=etcd requires store.etcd.endpoints");
            };
            let client = settings.both("store.etcd.certificate", "store.etcd.key")?;
            let ca: Option<PathBuf> = settings.get("store.etcd.ca")?;
            if ca.is_none() && client.is_some() {
                return inconsistent("store.etcd.certificate requires store.etcd.ca");
            }
            let server_name = settings.get("store.etcd.server_name")?;
            let login = settings
                .both("store.etcd.user", "store.etcd.password_file")?
                .map(|(user, file)| Login { user, password: Password::File(file) });
            Ok(StoreConfig::Etcd(EtcdOptions {
                root: settings.get("store.etcd.root")?,
                tls: ca.map(|ca| EtcdTls { ca, client, server_name }),
                login,
                deadline,
                lease_ttl: settings.get("store.etcd.lease")?,
                ..EtcdOptions::new(endpoints)
            }))
        }
    }
}

fn read_clusters(
    settings: &Resolved,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<ClusterConfig>, Error> {
    let file: Option<PathBuf> = settings.get("crm.clusters_file")?;
    let read = |file: PathBuf| {
        fs::read_to_string(&file).or_else(|error| {
            inconsistent(format!("crm.clusters_file: {}: {error}", file.display()))
        })
    };
    let text = file.map(read).transpose()?;
    clusters::read(text.as_deref(), variables, settings.get("crm.default_cluster")?)
}
