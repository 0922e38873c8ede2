//! What every server of ours can be told, by settings of the same names.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use oprc_config::{Error as Wrong, Resolved};

use crate::{Access, Error, Options, Server, TlsFiles, TokenFile, bind};

/// Further connections wait in the backlog.
const MAX_CONNECTIONS: usize = 4096;

/// Where a server listens and whom it lets in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub address: SocketAddr,
    /// How long open requests may take to finish when it stops.
    pub drain: Duration,
    /// Certificates.
    pub tls: Option<TlsFiles>,
    /// Whether callers need a certificate.
    pub mtls: bool,
    /// A file of tokens, one of which callers need.
    pub token_file: Option<PathBuf>,
    /// Whether each of them must have a role; those without may do everything otherwise.
    pub roles: bool,
}

impl Settings {
    /// Reads them.
    pub fn of(settings: &Resolved) -> Result<Self, Wrong> {
        let host: Option<String> = settings.get("server.host")?;
        let host: Option<IpAddr> = host
            .map(|host| host.parse())
            .transpose()
            .map_err(|_| Wrong::Together("server.host isn't an IP address".to_owned()))?;
        let client_ca = settings.get("security.tls.client_ca")?;
        let tls = settings
            .both("security.tls.certificate", "security.tls.key")?
            .map(|(certificate, key)| TlsFiles { certificate, key, client_ca });
        let all = Self {
            address: SocketAddr::new(
                host.unwrap_or_else(default_host),
                settings.get("server.port")?,
            ),
            drain: settings.get("server.shutdown_timeout")?,
            tls,
            mtls: settings.get("security.mtls")?,
            token_file: settings.get("security.token_file")?,
            roles: false,
        };
        if all.mtls && all.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
            let from = settings.source("security.mtls").map(|from| format!(", by {from}"));
            return Err(Wrong::Together(format!(
                "security.mtls is on{}: it needs security.tls.certificate, security.tls.key and \
                 security.tls.client_ca",
                from.unwrap_or_default()
            )));
        }
        Ok(all)
    }

    /// Whether anybody is asked who they are.
    pub fn guarded(&self) -> bool {
        self.mtls || self.token_file.is_some()
    }

    /// Listens, and reads certificates and tokens: what is wrong with them is known now.
    pub async fn bind(&self) -> Result<(Server, Access), Error> {
        let read = |path: &PathBuf| {
            if self.roles { TokenFile::with_roles(path) } else { TokenFile::load(path) }
        };
        let tokens = self.token_file.as_ref().map(read).transpose()?;
        if tokens.is_some() && self.tls.is_none() && !self.address.ip().is_loopback() {
            tracing::warn!("tokens travel in the open: there is no security.tls.certificate");
        }
        if !self.guarded() {
            tracing::warn!(address = %self.address, "nobody is asked who they are");
        }
        let server = bind(Options {
            address: self.address,
            tls: self.tls.clone(),
            max_connections: MAX_CONNECTIONS,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            max_streams: 128,
            drain: self.drain,
        })
        .await?;
        Ok((server, Access::new(self.mtls, tokens)))
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
