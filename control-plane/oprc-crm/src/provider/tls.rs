//! Connections to the server. TLS files are read for each connection, so that they can be replaced
//! while the process runs.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tower::{Service, ServiceExt as _};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Certificate and token files are far smaller.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Bundles of public CAs, for servers without a CA file.
const SYSTEM_BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TlsFiles {
    pub(super) ca: Option<PathBuf>,
    /// Certificate chain and private key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    files: Arc<TlsFiles>,
}

impl Connector {
    pub(super) fn new(files: TlsFiles) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        Self { tcp, files: Arc::new(files) }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tcp, files } = self.clone();
        Box::pin(async move {
            if uri.scheme_str() != Some("https") {
                return Ok(MaybeHttpsStream::Http(tcp.oneshot(uri).await?));
            }
            let config = load(&files).await?;
            HttpsConnector::from((tcp, config)).oneshot(uri).await
        })
    }
}

async fn load(files: &TlsFiles) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(path) => {
            for authority in certificates(path).await? {
                roots.add(authority).map_err(|error| file_error(path, &error))?;
            }
        }
        None => roots = system_roots().await,
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &files.client else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(certificate).await?;
    let private = PrivateKeyDer::from_pem_slice(&read(key).await?)
        .map_err(|error| file_error(key, &format!("not a PEM private key: {error}")))?;
    builder.with_client_auth_cert(chain, private).map_err(|error| file_error(key, &error))
}

/// Empty without a bundle: every certificate then fails verification.
async fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for path in SYSTEM_BUNDLES {
        if let Ok(found) = certificates(Path::new(path)).await {
            roots.add_parsable_certificates(found);
            break;
        }
    }
    roots
}

async fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(path).await?)
        .collect::<Result<_, _>>()
        .map_err(|error| file_error(path, &format!("not PEM: {error}")))?;
    if found.is_empty() { Err(file_error(path, &"contains no PEM certificate")) } else { Ok(found) }
}

/// The error names the file and never contains its content.
pub(super) async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let file = tokio::fs::File::open(path).await.map_err(|error| file_error(path, &error))?;
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).await;
    let bytes = read.map_err(|error| file_error(path, &error))?;
    if bytes as u64 > MAX_FILE_BYTES {
        return Err(file_error(path, &format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(content)
}

pub(super) fn file_error(path: &Path, reason: &dyn Display) -> String {
    format!("{}: {reason}", path.display())
}
