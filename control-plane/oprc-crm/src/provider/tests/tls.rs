use std::{fs, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer,
    server::WebPkiClientVerifier,
};
use tempfile::TempDir;

use super::{server::LyingServer, *};

/// A CA with a certificate for 127.0.0.1, which is good for servers and clients.
struct Authority {
    ca: rcgen::Certificate,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let issuer = Issuer::from_ca_cert_der(ca.der(), ca_key).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Self { ca, certificate, key }
    }

    /// Requires client certificates of `clients`.
    fn server(&self, clients: Option<&Self>) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.ca.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let chain = vec![self.certificate.der().clone()];
        Arc::new(builder.with_single_cert(chain, key.into()).unwrap())
    }
}

struct Files(TempDir);

impl Files {
    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

#[tokio::test]
async fn verifies_the_server_with_the_current_ca_file() {
    let (files, authority) = (Files(tempfile::tempdir().unwrap()), Authority::new());
    let server = LyingServer::start_with([body(GOOD)], Some(authority.server(None))).await;
    let ca_file = Some(files.write("ca.pem", &Authority::new().ca.pem()));
    let url = format!("https://{}", server.address);
    let options = PrometheusOptions { url, ca_file, ..options(&server) };
    let provider = PrometheusProvider::new(options.clone()).unwrap();
    let error = values(&provider).await.unwrap_err();
    assert!(
        matches!(&error, QueryError::Unreachable(reason) if reason.contains("certificate")),
        "{error}"
    );
    files.write("ca.pem", &authority.ca.pem());
    assert_eq!(values(&provider).await, Ok(vec![1.0, 2.0]));
    files.write("ca.pem", "nothing");
    let error = values(&provider).await.unwrap_err();
    assert!(error.to_string().contains("ca.pem: contains no PEM certificate"), "{error}");

    let public = PrometheusProvider::new(PrometheusOptions { ca_file: None, ..options }).unwrap();
    assert!(matches!(values(&public).await, Err(QueryError::Unreachable(_))));
}

#[tokio::test]
async fn presents_the_current_client_certificate() {
    let (files, authority) = (Files(tempfile::tempdir().unwrap()), Authority::new());
    let client = Authority::new();
    let server = LyingServer::start_with([body(GOOD)], Some(authority.server(Some(&client)))).await;
    let url = format!("https://{}", server.address);
    let ca_file = Some(files.write("ca.pem", &authority.ca.pem()));
    let none = PrometheusOptions { url, ca_file, ..options(&server) };
    let provider = PrometheusProvider::new(none.clone()).unwrap();
    assert!(matches!(values(&provider).await, Err(QueryError::Unreachable(_))));

    let other = Authority::new();
    let certificate = files.write("client.pem", &other.certificate.pem());
    let key = files.write("client.key", &other.key.serialize_pem());
    let client_certificate = Some((certificate, key));
    let provider =
        PrometheusProvider::new(PrometheusOptions { client_certificate, ..none }).unwrap();
    assert!(matches!(values(&provider).await, Err(QueryError::Unreachable(_))));
    files.write("client.pem", &client.certificate.pem());
    files.write("client.key", &client.key.serialize_pem());
    assert_eq!(values(&provider).await, Ok(vec![1.0, 2.0]));
}
