use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{field} must be at least 1")]
    Zero { field: &'static str },
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {reason}", path.display())]
    File {
        path: PathBuf,
        /// Never contains the file's content.
        reason: String,
    },
    #[error("{}: line {line}: {reason}", path.display())]
    Token {
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Never contains the line's content.
        reason: &'static str,
    },
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl Error {
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), reason: reason.into() }
    }
}
