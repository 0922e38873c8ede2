//! HTTP and HTTPS connections to the package manager.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::error::CliError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Locations of the system's CA bundle.
const SYSTEM_CA_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// HTTPS servers must be signed by `ca`, or by a CA of the system if it is `None`.
pub(super) fn connector(ca: Option<&Path>) -> Result<HttpsConnector<HttpConnector>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots(ca)?).with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    Ok(builder.enable_http1().wrap_connector(tcp))
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca else {
        let set = std::env::var("SSL_CERT_FILE").ok();
        let mut known = set.iter().map(String::as_str).chain(SYSTEM_CA_BUNDLES);
        // Without a bundle, every HTTPS server fails verification with a clear error.
        if let Some(text) = known.find_map(|path| fs::read(path).ok()) {
            let found = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
            roots.add_parsable_certificates(found);
        }
        return Ok(roots);
    };
    let invalid =
        |why: String| CliError::InvalidInput(format!("CA file {}: {why}", path.display()));
    let text = fs::read(path).map_err(|error| invalid(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(invalid("contains no certificate".to_owned()).into());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_files_without_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        fs::write(&path, "nothing\n").unwrap();
        assert!(roots(Some(&path)).unwrap_err().to_string().contains("no certificate"));
        assert!(roots(Some(&folder.path().join("none"))).is_err());
        assert!(roots(None).is_ok());
    }
}
