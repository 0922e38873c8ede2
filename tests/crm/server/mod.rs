//! The port for gRPC and HTTP: access, protocol and responses.

mod access;
mod api;
mod readiness;
pub(crate) mod reflection_client;
mod settings;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, StatusCode, header::AUTHORIZATION};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use oprc_sandbox::within;
use oprc_tests::eventually;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tonic::Status;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// Bound on one request.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);

/// An HTTP/2 client, with TLS for https. Unlike tonic's channel it adds nothing, such as deadlines.
pub(crate) type Http = legacy::Client<HttpsConnector<HttpConnector>, tonic::body::Body>;

fn http(config: ClientConfig) -> Http {
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http2().build();
    legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(connector)
}

fn trust(
    roots: RootCertStore,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

/// A client without trusted certificates.
pub(crate) fn plain() -> Http {
    http(trust(RootCertStore::empty()).with_no_client_auth())
}

/// Sends an HTTP request.
async fn send_request(
    client: &Http,
    method: Method,
    url: &str,
    token: Option<&str>,
    body: &'static str,
) -> Result<(StatusCode, HeaderMap, String), String> {
    let mut request = Request::builder().method(method).uri(url);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(tonic::body::Body::new(Full::new(Bytes::from(body)))).unwrap();
    let exchange = async {
        let response = client.request(request).await.map_err(|error| format!("{error:?}"))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
        Ok((head.status, head.headers, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await.unwrap()
}

async fn serving_status(client: &Http, url: &str, service: &str) -> Result<i32, Status> {
    let mut health = HealthClient::with_origin(client.clone(), url.parse().unwrap());
    let request = HealthCheckRequest { service: service.to_owned() };
    health.check(request).await.map(|response| response.into_inner().status)
}

/// Waits until a service is SERVING: CRM reports NOT_SERVING for a moment after a slow request.
async fn wait_serving(client: &Http, url: &str, service: &str) {
    eventually(&format!("{service:?} to be served"), RESPONSE_TIMEOUT, || async {
        let status =
            serving_status(client, url, service).await.map_err(|status| format!("{status:?}"))?;
        if status == ServingStatus::Serving as i32 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

async fn within_timeout<T>(what: &str, response: impl Future<Output = Result<T, Status>>) -> T {
    within(what, RESPONSE_TIMEOUT, response).await.unwrap()
}
