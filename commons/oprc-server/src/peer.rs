//! Who is at the other end of a connection.

use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// Who sent a request; an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// The client's certificate, if one was shown: it has been verified then.
    pub certificate: Option<Arc<ClientCertificate>>,
}

/// A verified certificate of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The common name of the subject, if it has one.
    pub common_name: Option<String>,
}

impl ClientCertificate {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let common_name = parse_x509_certificate(certificate).ok().and_then(|(_, parsed)| {
            let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
            Some(name.to_owned())
        });
        Self { common_name }
    }
}
