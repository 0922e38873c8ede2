//! Requests to a data grid: directly, or through the Service proxy of the API server.

use std::{error::Error, path::Path};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response, Uri,
    body::Frame,
    header::CONTENT_LENGTH,
    http::request::{Builder, Parts},
};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::io::AsyncReadExt as _;

use crate::{error::CliError, kube::to_cli_error};

type BoxError = Box<dyn Error + Send + Sync>;
pub(crate) type GridBody = UnsyncBoxBody<Bytes, BoxError>;

/// The client of an API server takes no streamed bodies.
const MAX_PROXIED_UPLOAD: u64 = 512 << 20;
const UPLOAD_CHUNK: usize = 64 << 10;

pub(super) enum Transport {
    Direct { http: legacy::Client<HttpConnector, GridBody>, url: String },
    Proxied { cluster: kube::Client, base: String, service: ServiceRef },
}

/// The Service of a data grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceRef {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) port: u16,
}

impl Transport {
    pub(super) fn direct(url: &str) -> Result<Self, CliError> {
        let uri = url.parse::<Uri>().ok();
        if !uri.is_some_and(|it| it.scheme_str() == Some("http") && it.host().is_some()) {
            return Err(CliError::InvalidInput(format!(
                "--grid-url {url:?}: must be a URL such as http://localhost:8081"
            )));
        }
        let http = legacy::Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        Ok(Self::Direct { http, url: url.trim_end_matches('/').to_owned() })
    }

    /// The URL of a path.
    pub(super) fn uri(&self, path: &str) -> String {
        match self {
            Self::Direct { url: base, .. } | Self::Proxied { base, .. } => format!("{base}{path}"),
        }
    }

    pub(super) async fn send(&self, request: Builder, body: Bytes) -> Result<Response<GridBody>> {
        let (parts, ()) = request.body(()).map_err(|error| invalid(&error))?.into_parts();
        match self {
            Self::Direct { http, url } => {
                let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
                send_direct(http, url, parts, body).await
            }
            Self::Proxied { cluster, .. } => send_proxied(cluster, parts, body).await,
        }
    }

    /// Sends a file. Through an API server it is read into memory first.
    pub(super) async fn upload(&self, request: Builder, path: &Path) -> Result<Response<GridBody>> {
        let reading = || format!("reading {}", path.display());
        let file = tokio::fs::File::open(path).await.with_context(reading)?;
        let size = file.metadata().await.with_context(reading)?.len();
        let (mut parts, ()) = request.body(()).map_err(|error| invalid(&error))?.into_parts();
        match self {
            Self::Direct { http, url } => {
                parts.headers.insert(CONTENT_LENGTH, size.into());
                let chunks = stream::try_unfold(file, |mut file| async move {
                    let mut chunk = vec![0; UPLOAD_CHUNK];
                    let read = file.read(&mut chunk).await?;
                    chunk.truncate(read);
                    Ok::<_, BoxError>((read > 0).then(|| (Frame::data(Bytes::from(chunk)), file)))
                });
                send_direct(
                    http,
                    url,
                    parts,
                    BodyExt::boxed_unsync(StreamBody::new(chunks.boxed())),
                )
                .await
            }
            Self::Proxied { cluster, service, .. } => {
                if size > MAX_PROXIED_UPLOAD {
                    let ServiceRef { namespace, name, port } = service;
                    bail!(CliError::InvalidInput(format!(
                        "{}: {size} bytes are too many for the API server, at most \
                         {MAX_PROXIED_UPLOAD} are sent through it; run `kubectl port-forward -n \
                         {namespace} service/{name} {port}` and repeat with --grid-url \
                         http://localhost:{port}",
                        path.display()
                    )));
                }
                let body = tokio::fs::read(path).await.with_context(reading)?;
                send_proxied(cluster, parts, body.into()).await
            }
        }
    }
}

fn invalid(error: &hyper::http::Error) -> CliError {
    CliError::InvalidInput(format!("invalid request: {error}; check the arguments"))
}

async fn send_direct(
    http: &legacy::Client<HttpConnector, GridBody>,
    url: &str,
    parts: Parts,
    body: GridBody,
) -> Result<Response<GridBody>> {
    let response = http.request(Request::from_parts(parts, body)).await.map_err(|error| {
        let why = anyhow::Error::new(error);
        CliError::Unavailable(format!(
            "cannot connect to the data grid at {url}: {why:#}\nhint: check --grid-url"
        ))
    })?;
    Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
}

async fn send_proxied(
    cluster: &kube::Client,
    parts: Parts,
    body: Bytes,
) -> Result<Response<GridBody>> {
    let request = Request::from_parts(parts, kube::client::Body::from(body));
    let response = cluster.send(request).await.map_err(|error| to_cli_error(&error))?;
    Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
}
