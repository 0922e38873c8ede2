//! Calls of other nodes of the grid, over mutual TLS.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, StatusCode, header::CONTENT_TYPE};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A node that is stopped or unplugged breaks its connections after the sum of both.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// An object, a result and their names.
pub(crate) const MAX_BODY: usize = 2 << 20;
/// The shortest time between two checks of the certificate files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) const CERTIFICATE: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const AUTHORITY: &str = "ca.crt";

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Calls other nodes. New connections use the newest certificate files.
pub(crate) struct PeerClient {
    folder: PathBuf,
    state: Mutex<State>,
}

struct State {
    client: HttpClient,
    loaded: [Option<SystemTime>; 3],
    checked: Instant,
}

/// Why a call of another node failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerError {
    /// The node hasn't received the call.
    #[error("the node is unreachable: {0}")]
    NotSent(String),
    /// The node may have executed the call.
    #[error("the connection to the node failed: {0}")]
    Broken(String),
    /// The node refused the call with this status.
    #[error("the node answered with status {0}: {1}")]
    Status(u16, String),
}

impl PeerClient {
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let loaded = times(folder);
        let client = client(load(folder)?);
        let state = State { client, loaded, checked: Instant::now() };
        Ok(Self { folder: folder.to_owned(), state: Mutex::new(state) })
    }

    /// A client for the newest files that are valid.
    fn current(&self) -> HttpClient {
        let mut state = self.state.lock();
        if state.checked.elapsed() >= CHECK_INTERVAL {
            state.checked = Instant::now();
            let found = times(&self.folder);
            if found != state.loaded {
                match load(&self.folder) {
                    Ok(config) => (state.client, state.loaded) = (client(config), found),
                    Err(error) => {
                        tracing::warn!(error, "cannot reload certificates, keeping the former");
                    }
                }
            }
        }
        state.client.clone()
    }

    /// Calls a node at `HOST:PORT` and decodes its answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        address: &str,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, PeerError> {
        let body = serde_json::to_vec(body).map_err(|it| PeerError::NotSent(it.to_string()))?;
        let request = Request::post(format!("https://{address}{path}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| PeerError::NotSent(error.to_string()))?;
        let late = || PeerError::Broken(format!("no answer within {} ms", limit.as_millis()));
        timeout(limit, self.send(request)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<T, PeerError> {
        let response = self.current().request(request).await.map_err(|error| {
            if error.is_connect() {
                PeerError::NotSent(chain(&error))
            } else {
                PeerError::Broken(chain(&error))
            }
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| PeerError::Broken(error.to_string()))?.to_bytes();
        if status != StatusCode::OK {
            let detail = String::from_utf8_lossy(&body).chars().take(300).collect();
            return Err(PeerError::Status(status.as_u16(), detail));
        }
        serde_json::from_slice(&body).map_err(|error| PeerError::Broken(error.to_string()))
    }
}

impl std::fmt::Debug for PeerClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("PeerClient").field(&self.folder).finish()
    }
}

fn times(folder: &Path) -> [Option<SystemTime>; 3] {
    [AUTHORITY, CERTIFICATE, KEY].map(|name| fs::metadata(folder.join(name)).ok()?.modified().ok())
}

fn client(config: ClientConfig) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http2()
        .wrap_connector(connector);
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .build(connector)
}

fn load(folder: &Path) -> Result<ClientConfig, String> {
    let invalid = |name: &str, error: &dyn std::fmt::Display| {
        format!("{}: {error}", folder.join(name).display())
    };
    let certificates = |name: &str| -> Result<Vec<CertificateDer<'static>>, String> {
        let pem = fs::read(folder.join(name)).map_err(|error| invalid(name, &error))?;
        CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|error| invalid(name, &error))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(AUTHORITY)? {
        roots.add(authority).map_err(|error| invalid(AUTHORITY, &error))?;
    }
    let key = fs::read(folder.join(KEY)).map_err(|error| invalid(KEY, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| invalid(KEY, &error))?;
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(CERTIFICATE)?, key)
        .map_err(|error| invalid(CERTIFICATE, &error))
}

/// An error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
