use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::Error;

/// Address and limits of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Port 0 picks a free one.
    pub address: SocketAddr,
    /// Without them the port is plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Further connections wait in the backlog.
    pub max_connections: usize,
    pub handshake_timeout: Duration,
    /// Time to receive the headers of a request. A connection whose first request takes longer
    /// is closed, and so is an HTTP/1.1 connection that is idle for longer between requests.
    pub header_timeout: Duration,
    /// Concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
    /// Time for open requests to finish after shutdown has started.
    pub drain_timeout: Duration,
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

/// PEM files for TLS. They are reloaded when they change.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of client certificates. A client may then present a certificate, which must be
    /// issued by one of them; [`crate::Access`] decides which routes require one.
    pub client_ca: Option<PathBuf>,
}
