//! TLS on both sides of the proxy.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::failed;
use crate::{Cluster, Identity, Result};

/// The client that talks to the API server.
pub(super) type Upstream = Client<HttpsConnector<HttpConnector>, Incoming>;

fn certificate(pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(failed)
}

fn roots(authority: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(authority)?).map_err(failed)?;
    Ok(roots)
}

fn chain(identity: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(failed)?;
    Ok((vec![certificate(&identity.certificate)?], key))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Requires clients to have a certificate of the cluster.
pub(super) fn server_tls(authority: &str, identity: &Identity) -> Result<rustls::ServerConfig> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider());
    let (certificates, key) = chain(identity)?;
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions();
    let config =
        config.map_err(failed)?.with_client_cert_verifier(verifier.build().map_err(failed)?);
    let mut config = config.with_single_cert(certificates, key).map_err(failed)?;
    // With HTTP/1.1, closing a connection affects only one request.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// A client with the right to impersonate users.
pub(super) fn upstream(cluster: &Cluster) -> Result<Upstream> {
    let (certificates, key) = chain(&cluster.pki().load("front-proxy")?)?;
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions();
    let config =
        config.map_err(failed)?.with_root_certificates(roots(&cluster.pki().authority()?)?);
    let config = config.with_client_auth_cert(certificates, key).map_err(failed)?;
    let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let connector = connector.enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

pub(super) struct Subject {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
}

/// User name and groups of a client certificate.
pub(super) fn subject(certificate: &CertificateDer<'_>) -> Option<Subject> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups =
        subject.iter_organization().filter_map(|group| Some(group.as_str().ok()?.to_owned()));
    Some(Subject { name, groups: groups.collect() })
}
