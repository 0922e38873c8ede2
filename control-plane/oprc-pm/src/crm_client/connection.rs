//! The connection to a CRM: TLS, keep-alive, bearer token and correlation id.

use std::time::Duration;

use tokio::sync::Mutex;
use tonic::{
    Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::config::{ClusterConfig, ClusterTls, Secret};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An unresponsive peer is detected within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Connection(Mutex<Option<Channel>>);

impl Connection {
    pub(super) async fn channel(&self, config: &ClusterConfig) -> Result<Channel, Status> {
        let mut channel = self.0.lock().await;
        Ok(match &*channel {
            Some(channel) => channel.clone(),
            None => channel.insert(connect(config).await?).clone(),
        })
    }

    /// Drops the channel, so that the next one reads certificates again.
    pub(super) async fn close(&self) {
        *self.0.lock().await = None;
    }
}

async fn connect(config: &ClusterConfig) -> Result<Channel, Status> {
    let invalid =
        |error: tonic::transport::Error| Status::unavailable(format!("{}: {error}", config.url));
    let mut endpoint = Endpoint::from_shared(config.url.clone())
        .map_err(invalid)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if let Some(tls) = &config.tls {
        endpoint = endpoint.tls_config(tls_config(tls).await?).map_err(invalid)?;
    }
    Ok(endpoint.connect_lazy())
}

async fn tls_config(tls: &ClusterTls) -> Result<ClientTlsConfig, Status> {
    let read = async |path: &std::path::Path| {
        let text = tokio::fs::read(path).await;
        text.map_err(|error| Status::unavailable(format!("{}: {error}", path.display())))
    };
    let mut config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca).await?));
    if let Some((certificate, key)) = &tls.client {
        let (certificate, key) = (read(certificate).await?, read(key).await?);
        config = config.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name.clone());
    }
    Ok(config)
}

pub(super) async fn request<Q>(
    config: &ClusterConfig,
    correlation_id: &str,
    message: Q,
) -> Result<Request<Q>, Status> {
    let mut request = Request::new(message);
    if let Ok(id) = correlation_id.parse() {
        request.metadata_mut().insert(oprc_grpc::CORRELATION, id);
    }
    if let Some(secret) = &config.token {
        let bearer = format!("Bearer {}", token(secret).await?).parse();
        let bearer = bearer.map_err(|_| Status::unauthenticated("the token is no ASCII text"))?;
        request.metadata_mut().insert("authorization", bearer);
    }
    Ok(request)
}

/// Token files are read for each call, so that tokens can be rotated.
async fn token(secret: &Secret) -> Result<String, Status> {
    match secret {
        Secret::Value(token) => Ok(token.clone()),
        Secret::File(path) => match tokio::fs::read_to_string(path).await {
            Ok(token) => Ok(token.trim_end().to_owned()),
            Err(error) => {
                let message = format!("cannot read the token file {}: {error}", path.display());
                Err(Status::unauthenticated(message))
            }
        },
    }
}
