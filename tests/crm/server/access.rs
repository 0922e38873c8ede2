//! Authentication by certificate and token.

use std::{fs, path::PathBuf};

use hyper::{Method, StatusCode};
use oprc_grpc::deployment::{
    GetClusterInfoRequest, deployment_service_client::DeploymentServiceClient,
};
use oprc_tests::{
    TestNamespace,
    crm::{CrmProcess, CrmTask, Options},
    eventually, in_namespace,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::Value;
use tempfile::TempDir;
use tonic::{Code, Status};

use super::{Http, RESPONSE_TIMEOUT, http, plain, send_request, trust, wait_serving};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn trusting(authorities: &[&Authority], identity: Option<(String, String)>) -> Http {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap())
            .unwrap();
    }
    let config = trust(roots);
    http(match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// A certificate authority.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate and its key.
    fn sign(&self, names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Certificates and tokens of a CRM.
struct Files {
    folder: TempDir,
    server: Authority,
    clients: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
            server: Authority::new("servers"),
            clients: Authority::new("clients"),
        };
        let (certificate, key) = files.server.sign(&["127.0.0.1"]);
        files.write("certificate", &certificate);
        files.write("key", &key);
        files.write("clients", &files.clients.certificate);
        files.write("tokens", &format!("# who may\noperator {TOKEN}\n"));
        files
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self, tls: bool, mtls: bool, token: bool) -> Options {
        let mut options = Options::default();
        let mut set = |variable: &str, file: &str| {
            let path = self.path(file);
            options = options
                .clone()
                .with(&format!("OPRC_CRM_SECURITY_{variable}"), path.to_str().unwrap());
        };
        if tls {
            set("TLS_CERTIFICATE", "certificate");
            set("TLS_KEY", "key");
        }
        if mtls {
            set("TLS_CLIENT_CA", "clients");
        }
        if token {
            set("TOKEN_FILE", "tokens");
        }
        options.with("OPRC_CRM_SECURITY_MTLS", &mtls.to_string())
    }
}

/// A call that every authenticated client may make.
async fn call(client: &Http, url: &str, token: Option<&str>) -> Result<(), Status> {
    let mut request = tonic::Request::new(GetClusterInfoRequest {});
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let mut client = DeploymentServiceClient::with_origin(client.clone(), url.parse().unwrap());
    let response =
        tokio::time::timeout(RESPONSE_TIMEOUT, client.get_cluster_info(request)).await.unwrap();
    response.map(drop)
}

/// Starts a CRM with TLS and waits until it is ready.
async fn start_with_tls(ns: &TestNamespace, files: &Files, options: &Options) -> (CrmTask, String) {
    let crm = CrmTask::start(ns, options).await;
    let url = format!("https://{}", crm.address);
    let probe = trusting(&[&files.server], None);
    eventually("CRM to be ready", RESPONSE_TIMEOUT, || async {
        match send_request(&probe, Method::GET, &format!("{url}/health/ready"), None, "").await? {
            (StatusCode::OK, ..) => Ok(()),
            (status, _, body) => Err(format!("{status}: {body}")),
        }
    })
    .await;
    (crm, url)
}

/// Asserts that probes and metrics need no authentication.
async fn assert_open_endpoints(files: &Files, url: &str) {
    let anonymous = trusting(&[&files.server], None);
    for path in ["/healthz", "/health/live", "/health/ready", "/metrics"] {
        let (status, ..) =
            send_request(&anonymous, Method::GET, &format!("{url}{path}"), None, "").await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    for service in ["", "deployment.DeploymentService"] {
        wait_serving(&anonymous, url, service).await;
    }
    let (status, headers, body) =
        send_request(&anonymous, Method::GET, &format!("{url}/log-level"), None, "").await.unwrap();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(headers["www-authenticate"], "Bearer");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], 401);
}

fn assert_unauthenticated(response: Result<(), Status>) {
    let status = response.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
}

/// Asserts that the TLS handshake failed.
fn assert_handshake_fails(response: Result<(), Status>, expected: &str) {
    let status = response.unwrap_err();
    assert_ne!(status.code(), Code::Unauthenticated, "{status:?}");
    let text = format!("{status:?}");
    assert!(text.contains(expected), "{text}");
}

#[tokio::test]
async fn requires_client_certificates_and_tokens() {
    in_namespace(async |ns: &TestNamespace| {
        let files = Files::new();
        let valid_identity = || Some(files.clients.sign(&["gateway"]));
        let untrusted = Authority::new("strangers");

        let (_crm, url) = start_with_tls(ns, &files, &files.options(true, true, false)).await;
        assert_open_endpoints(&files, &url).await;
        call(&trusting(&[&files.server], valid_identity()), &url, None).await.unwrap();
        assert_unauthenticated(call(&trusting(&[&files.server], None), &url, None).await);
        // A token doesn't replace a certificate.
        assert_unauthenticated(call(&trusting(&[&files.server], None), &url, Some(TOKEN)).await);
        assert_handshake_fails(
            call(&trusting(&[&untrusted], valid_identity()), &url, None).await,
            "UnknownIssuer",
        );
        let other_host = url.replace("127.0.0.1", "localhost");
        assert_handshake_fails(
            call(&trusting(&[&files.server], valid_identity()), &other_host, None).await,
            "NotValidForName",
        );
        let forged = Some(untrusted.sign(&["gateway"]));
        assert_handshake_fails(
            call(&trusting(&[&files.server], forged), &url, None).await,
            "UnknownCA",
        );
        // Nor is plain text accepted.
        let bare = url.replace("https", "http");
        assert!(call(&plain(), &bare, None).await.is_err());

        let (_crm, url) = start_with_tls(ns, &files, &files.options(true, false, true)).await;
        assert_open_endpoints(&files, &url).await;
        let client = trusting(&[&files.server], None);
        call(&client, &url, Some(TOKEN)).await.unwrap();
        for wrong in
            [None, Some(""), Some("0123456789abcdef"), Some("0123456789abcdef0123456789abcdee")]
        {
            assert_unauthenticated(call(&client, &url, wrong).await);
        }

        let (_crm, url) = start_with_tls(ns, &files, &files.options(true, true, true)).await;
        assert_open_endpoints(&files, &url).await;
        call(&trusting(&[&files.server], valid_identity()), &url, Some(TOKEN)).await.unwrap();
        assert_unauthenticated(
            call(&trusting(&[&files.server], valid_identity()), &url, None).await,
        );
        assert_unauthenticated(call(&trusting(&[&files.server], None), &url, Some(TOKEN)).await);
    })
    .await;
}

#[tokio::test]
async fn changing_the_log_level_requires_a_token() {
    in_namespace(async |ns: &TestNamespace| {
        let files = Files::new();
        let crm = CrmProcess::start(ns, &files.options(false, false, true)).await;
        let (client, url) = (plain(), format!("{}/log-level", crm.url));
        let put = async |token: Option<&str>, filter: &'static str| {
            send_request(&client, Method::PUT, &url, token, filter).await.unwrap().0
        };
        assert_eq!(put(None, "debug").await, StatusCode::UNAUTHORIZED);
        assert_eq!(put(Some(TOKEN), "info,oprc_crm=trace").await, StatusCode::NO_CONTENT);
        assert_eq!(put(Some(TOKEN), "oprc_crm=loud").await, StatusCode::BAD_REQUEST);
        let (status, _, level) =
            send_request(&client, Method::GET, &url, Some(TOKEN), "").await.unwrap();
        assert_eq!(status, StatusCode::OK);
        assert!(level.contains("oprc_crm=trace"), "{level}");
    })
    .await;
}
