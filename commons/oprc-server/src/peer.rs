use std::{net::SocketAddr, sync::Arc};

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// The remote end of a connection; an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    pub address: SocketAddr,
    /// The verified client certificate, if the client presented one.
    pub certificate: Option<Arc<ClientCertificate>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
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
