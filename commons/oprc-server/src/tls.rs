//! The TLS configuration, loaded from files.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};

use crate::{
    Error, TlsFiles,
    reload::{CHECK_INTERVAL, Reloaded, read},
};

pub(crate) fn load_and_follow(files: TlsFiles) -> Result<Reloaded<ServerConfig>, Error> {
    let mut paths = vec![files.certificate.clone(), files.key.clone()];
    paths.extend(files.client_ca.clone());
    Reloaded::new(paths, CHECK_INTERVAL, move || load(&files))
}

fn load(files: &TlsFiles) -> Result<ServerConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| Error::file(&files.key, format!("not a PEM private key: {error}")))?;
    provider
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|error| Error::file(&files.key, format!("unusable private key: {error}")))?;

    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| Error::file(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| Error::file(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let certificate = files.certificate.display();
            Error::file(&files.key, format!("not the key of the certificate in {certificate}"))
        }
        error => Error::file(&files.certificate, error.to_string()),
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session doesn't verify the client certificate again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| Error::file(path, format!("not PEM: {error}")))?;
    if found.is_empty() {
        return Err(Error::file(path, "contains no PEM certificate"));
    }
    Ok(found)
}
