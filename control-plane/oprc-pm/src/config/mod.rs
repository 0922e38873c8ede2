//! What PM can be told: flag, environment, file, default, in that order.

mod clusters;
mod settings;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use oprc_config::{Error, Resolved};
use oprc_cp_storage::{EtcdOptions, EtcdTls, Login, Password};
use oprc_observability::Format;
use oprc_server::TlsFiles;

pub use self::{
    clusters::{ClusterConfig, ClusterTls, Secret, take_variables},
    settings::SCHEMA,
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

/// Everything that PM was told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub address: SocketAddr,
    /// How long open requests may take to finish when it stops.
    pub drain: Duration,
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
    /// Certificates.
    pub tls: Option<TlsFiles>,
    /// Whether callers need a certificate.
    pub mtls: bool,
    /// A file of tokens, one of which callers need; none where nobody is asked.
    pub token_file: Option<PathBuf>,
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
    pub fn of(settings: &Resolved, variables: &BTreeMap<String, String>) -> Result<Self, Wrong> {
        let host: Option<String> = settings.get("server.host")?;
        let host = host
            .as_deref()
            .map(str::parse::<IpAddr>)
            .transpose()
            .map_err(|_| Wrong::Together("server.host isn't an IP address".to_owned()))?;
        let certificate: Option<PathBuf> = settings.get("security.tls.certificate")?;
        let key: Option<PathBuf> = settings.get("security.tls.key")?;
        let client_ca: Option<PathBuf> = settings.get("security.tls.client_ca")?;
        let tls = together("security.tls", certificate, key)?.map(|(certificate, key)| TlsFiles {
            certificate,
            key,
            client_ca,
        });
        let auth: &str = settings.get("security.auth")?;
        let token_file: Option<PathBuf> = settings.get("security.token_file")?;
        let config = Self {
            address: SocketAddr::new(
                host.unwrap_or_else(default_host),
                settings.get("server.port")?,
            ),
            drain: settings.get("server.shutdown_timeout")?,
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
            tls,
            mtls: settings.get("security.mtls")?,
            token_file,
            log_format: settings
                .get::<&str>("logging.format")?
                .parse()
                .map_err(|error: oprc_observability::Error| Wrong::Together(error.to_string()))?,
            log_filter: settings.get("logging.level")?,
        };
        config.check(auth == "off")?;
        Ok(config)
    }

    fn check(&self, auth_off: bool) -> Result<(), Wrong> {
        let wrong = |message: &str| Err(Wrong::Together(message.to_owned()));
        if auth_off && self.token_file.is_some() {
            return wrong("security.auth is off, and security.token_file is set: choose one");
        }
        if auth_off && !self.address.ip().is_loopback() {
            return wrong(
                "security.auth is off: that goes with a loopback address (server.host) only",
            );
        }
        if !auth_off && self.token_file.is_none() {
            return wrong(
                "security.token_file is missing; security.auth=off does without, on a loopback \
                 address",
            );
        }
        if self.mtls && self.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
            return wrong(
                "security.mtls is on, and needs security.tls.certificate, security.tls.key and \
                 security.tls.client_ca",
            );
        }
        for (name, duration) in [
            ("server.request_timeout", self.limits.timeout),
            ("crm.deadline", self.crm_deadline),
            ("deployments.progress_deadline", self.progress_deadline),
            ("deployments.unreachable_deadline", self.unreachable_deadline),
        ] {
            if duration.is_zero() {
                return Err(Wrong::Together(format!("{name} must be above 0")));
            }
        }
        for origin in &self.cors_origins {
            if !is_origin(origin) {
                return Err(Wrong::Together(format!(
                    "server.cors_origins: {origin:?} is no origin such as https://example.org"
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

fn together(
    section: &str,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>, Wrong> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        _ => Err(Wrong::Together(format!(
            "{section}.certificate and {section}.key are needed together"
        ))),
    }
}

fn store(settings: &Resolved) -> Result<StoreConfig, Wrong> {
    let deadline: Duration = settings.get("store.deadline")?;
    if deadline.is_zero() {
        return Err(Wrong::Together("store.deadline must be above 0".to_owned()));
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
                Wrong::Together("store.kind is etcd, and needs store.etcd.endpoints".to_owned())
            })?;
            let client = together(
                "store.etcd",
                settings.get("store.etcd.certificate")?,
                settings.get("store.etcd.key")?,
            )?;
            let ca: Option<PathBuf> = settings.get("store.etcd.ca")?;
            if ca.is_none() && client.is_some() {
                return Err(Wrong::Together(
                    "store.etcd.certificate needs store.etcd.ca".to_owned(),
                ));
            }
            let server_name = settings.get("store.etcd.server_name")?;
            let user: Option<String> = settings.get("store.etcd.user")?;
            let password: Option<PathBuf> = settings.get("store.etcd.password_file")?;
            let login = match (user, password) {
                (Some(user), Some(file)) => Some(Login { user, password: Password::File(file) }),
                (None, None) => None,
                _ => {
                    return Err(Wrong::Together(
                        "store.etcd.user and store.etcd.password_file are needed together"
                            .to_owned(),
                    ));
                }
            };
            let options = EtcdOptions::new(endpoints);
            Ok(StoreConfig::Etcd(EtcdOptions {
                root: settings.get("store.etcd.root")?,
                tls: ca.map(|ca| EtcdTls { ca, client, server_name }),
                login,
                deadline,
                lease: settings.get("store.etcd.lease")?,
                ..options
            }))
        }
    }
}

fn read_clusters(
    settings: &Resolved,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<ClusterConfig>, Wrong> {
    let file: Option<PathBuf> = settings.get("crm.clusters_file")?;
    let text = file
        .map(|file| {
            fs::read_to_string(&file).map_err(|error| {
                Wrong::Together(format!("crm.clusters_file: {}: {error}", file.display()))
            })
        })
        .transpose()?;
    clusters::read(text.as_deref(), variables, settings.get("crm.default_cluster")?)
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
