//! The TLS configuration, loaded from files.

use std::{fmt::Display, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::EtcdTls;

pub(super) async fn load(files: &EtcdTls) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(&files.ca).await? {
        roots.add(authority).map_err(|error| file_error(&files.ca, &error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match &files.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate).await?;
            let found = PrivateKeyDer::from_pem_slice(&read(key).await?)
                .map_err(|error| file_error(key, &format!("not a PEM private key: {error}")))?;
            builder.with_client_auth_cert(chain, found).map_err(|error| file_error(key, &error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(path).await?)
        .collect::<Result<_, _>>()
        .map_err(|error| file_error(path, &format!("not PEM: {error}")))?;
    if found.is_empty() { Err(file_error(path, &"contains no PEM certificate")) } else { Ok(found) }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    tokio::fs::read(path).await.map_err(|error| file_error(path, &error))
}

fn file_error(path: &Path, reason: &dyn Display) -> String {
    format!("{}: {reason}", path.display())
}
