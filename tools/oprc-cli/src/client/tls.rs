//! Connections to the package manager, with TLS where its address says so.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::failure::Failure;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Where systems keep the certificates that they trust.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Connects by the address's scheme. Only servers that `ca` vouches for are spoken to, or where it
/// isn't given those that the system trusts.
pub(super) fn connector(ca: Option<&Path>) -> Result<HttpsConnector<HttpConnector>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots(ca)?).with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    Ok(builder.enable_http1().wrap_connector(tcp))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let set = std::env::var("SSL_CERT_FILE").ok();
        let mut known = set.iter().map(String::as_str).chain(SYSTEM);
        // Where there are none, every server with TLS is refused, which says so by itself.
        if let Some(text) = known.find_map(|path| fs::read(path).ok()) {
            let found = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
            roots.add_parsable_certificates(found);
        }
        return Ok(roots);
    };
    let wrong = |why: String| Failure::Wrong(format!("CA file {}: {why}", path.display()));
    let text = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("has no certificate in it".to_owned()).into());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_certificates_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        fs::write(&path, "nothing\n").unwrap();
        assert!(roots(Some(&path)).unwrap_err().to_string().contains("no certificate"));
        assert!(roots(Some(&folder.path().join("none"))).is_err());
        assert!(roots(None).is_ok());
    }
}
