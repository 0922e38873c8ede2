//! What can be wrong with what a server was given.

use std::{io, net::SocketAddr, path::PathBuf};

/// What can be wrong with what a server was given.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option is out of range.
    #[error("{field} must be at least 1")]
    Zero {
        /// The option.
        field: &'static str,
    },
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A file can't be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file doesn't hold what it should.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong; never what the file holds.
        reason: String,
    },
    /// A line of a token file is wrong.
    #[error("{}: line {line}: {reason}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong; never what the line holds.
        reason: &'static str,
    },
    /// The TLS library refuses what every server asks of it.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}
