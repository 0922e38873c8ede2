//! The settings that all servers have in common.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use oprc_config::{Error as ConfigError, Resolved};

use crate::{Access, Error, Options, Server, TlsFiles, TokenFile, bind};

const MAX_CONNECTIONS: usize = 4096;

/// Address and access control of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    pub address: SocketAddr,
    /// Time for open requests to finish at shutdown.
    pub drain_timeout: Duration,
    pub tls: Option<TlsFiles>,
    /// Whether callers need a client certificate.
    pub mtls: bool,
    /// If set, callers need one of its tokens.
    pub token_file: Option<PathBuf>,
    /// Whether tokens without a role are an error; otherwise they have the role admin.
    pub require_roles: bool,
}

impl Settings {
    pub fn from_resolved(settings: &Resolved) -> Result<Self, ConfigError> {
        let host: Option<String> = settings.get("server.host")?;
        let host: Option<IpAddr> = host.map(|host| host.parse()).transpose().map_err(|_| {
            ConfigError::Inconsistent("server.host is not an IP address".to_owned())
        })?;
        let client_ca = settings.get("security.tls.client_ca")?;
        let tls = settings
            .both("security.tls.certificate", "security.tls.key")?
            .map(|(certificate, key)| TlsFiles { certificate, key, client_ca });
        let all = Self {
            address: SocketAddr::new(
                host.unwrap_or_else(default_host),
                settings.get("server.port")?,
            ),
            drain_timeout: settings.get("server.shutdown_timeout")?,
            tls,
            mtls: settings.get("security.mtls")?,
            token_file: settings.get("security.token_file")?,
            require_roles: false,
        };
        if all.mtls && all.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
            let source = settings.source("security.mtls").map(|source| format!(" (from {source})"));
            return Err(ConfigError::Inconsistent(format!(
                "security.mtls is enabled{}: set security.tls.certificate, security.tls.key and \
                 security.tls.client_ca",
                source.unwrap_or_default()
            )));
        }
        Ok(all)
    }

    pub fn requires_auth(&self) -> bool {
        self.mtls || self.token_file.is_some()
    }

    /// Binds the port and reads certificates and tokens, so that their errors prevent startup.
    pub async fn bind(&self) -> Result<(Server, Access), Error> {
        let read = |path| TokenFile::load(path, self.require_roles);
        let tokens = self.token_file.as_ref().map(read).transpose()?;
        if tokens.is_some() && self.tls.is_none() && !self.address.ip().is_loopback() {
            tracing::warn!("tokens are sent unencrypted: set security.tls.certificate");
        }
        if !self.requires_auth() {
            tracing::warn!(address = %self.address, "requests are not authenticated: set security.token_file or security.mtls");
        }
        let server = bind(Options {
            address: self.address,
            tls: self.tls.clone(),
            max_connections: MAX_CONNECTIONS,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            max_streams: 128,
            drain_timeout: self.drain_timeout,
        })
        .await?;
        Ok((server, Access::new(self.mtls, tokens)))
    }
}

/// All addresses in a container, which has its own network; loopback elsewhere.
fn default_host() -> IpAddr {
    let markers = ["container", "KUBERNETES_SERVICE_HOST"];
    if markers.iter().any(|name| std::env::var_os(name).is_some()) {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    }
}
