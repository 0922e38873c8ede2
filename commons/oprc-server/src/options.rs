//! How a server listens and what it bounds.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::Error;

/// How a server listens and what it bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// The TLS files; without them the port is plain.
    pub tls: Option<TlsFiles>,
    /// How many connections may be open; further ones wait in the backlog.
    pub max_connections: usize,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a peer may take for the headers of a request. A connection whose first request
    /// takes longer is closed, and so is one of HTTP/1.1 that is idle for longer between requests.
    pub header_timeout: Duration,
    /// How many requests may be open on a connection of HTTP/2.
    pub max_streams: u32,
    /// How long open requests may take to finish once the server stops.
    pub drain: Duration,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let zero = [
            ("max_connections", self.max_connections == 0),
            ("handshake_timeout", self.handshake_timeout.is_zero()),
            ("header_timeout", self.header_timeout.is_zero()),
            ("max_streams", self.max_streams == 0),
        ];
        match zero.into_iter().find(|(_, zero)| *zero) {
            Some((field, _)) => Err(Error::Zero { field }),
            None => Ok(()),
        }
    }
}

/// PEM files for TLS. They are read again when they change.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate, followed by what is between it and its authority.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
    /// Authorities of clients. With it a client may show a certificate, which must then be by one
    /// of them; which routes need one is up to [`crate::Access`].
    pub client_ca: Option<PathBuf>,
}
