//! Client of a CRM: connection with TLS and keep-alive, bearer token, correlation id, a deadline for
//! each call, and retries of reads.

use std::{fmt, path::PathBuf, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, error::Elapsed, sleep, timeout},
};
use tonic::{
    Code, Request, Response, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    CORRELATION,
    deployment::{
        ClassRuntime, DeleteDeploymentRequest, DeployRequest, DeployResponse,
        GetClusterInfoRequest, GetClusterInfoResponse, GetDeploymentStatusRequest,
        GetOdgmStatusRequest, GetOdgmStatusResponse, WatchClassRuntimesRequest, WatchEvent,
        deployment_service_client::DeploymentServiceClient,
    },
};

/// Deadline of reads, including retries.
const READ_DEADLINE: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An unresponsive peer is detected within twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(200);
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// PEM files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Authorities that sign the server's certificate.
    pub ca: PathBuf,
    /// The client's certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name in the server's certificate, if it isn't the host of the URL.
    pub server_name: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    Value(String),
    /// Read for each call, so that tokens can be rotated. A trailing line break is ignored.
    File(PathBuf),
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => formatter.write_str("Value(…)"),
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    pub tls: Option<ClientTls>,
    pub token: Option<Token>,
    /// Of calls that change something; reads take no longer than this either.
    pub write_deadline: Duration,
}

type ServiceClient = DeploymentServiceClient<Channel>;

/// The channel is opened on first use and reused until [`Self::close`].
pub struct DeploymentClient {
    options: ClientOptions,
    channel: Mutex<Option<Channel>>,
}

impl DeploymentClient {
    pub fn new(options: ClientOptions) -> Self {
        Self { options, channel: Mutex::new(None) }
    }

    pub async fn deploy(
        &self,
        message: DeployRequest,
        correlation_id: &str,
    ) -> Result<DeployResponse, Status> {
        let deadline = self.options.write_deadline;
        self.call(deadline, correlation_id, message, ServiceClient::deploy).await
    }

    pub async fn delete(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
    ) -> Result<(), Status> {
        let message = DeleteDeploymentRequest {
            deployment_id: id.to_owned(),
            namespace: namespace.to_owned(),
        };
        let deadline = self.options.write_deadline;
        let deleted =
            self.call(deadline, correlation_id, message, ServiceClient::delete_deployment);
        deleted.await.map(drop)
    }

    /// A class with its specification; none if it doesn't exist.
    pub async fn class(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
    ) -> Result<Option<ClassRuntime>, Status> {
        self.get(id, namespace, correlation_id, true).await
    }

    /// A class without its specification; none if it doesn't exist.
    pub async fn class_status(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
    ) -> Result<Option<ClassRuntime>, Status> {
        self.get(id, namespace, correlation_id, false).await
    }

    async fn get(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
        include_spec: bool,
    ) -> Result<Option<ClassRuntime>, Status> {
        let message = GetDeploymentStatusRequest {
            deployment_id: id.to_owned(),
            namespace: namespace.to_owned(),
            include_spec,
        };
        match self.read(correlation_id, message, ServiceClient::get_deployment_status).await {
            Ok(response) => Ok(response.class_runtime),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    pub async fn cluster_info(
        &self,
        correlation_id: &str,
    ) -> Result<GetClusterInfoResponse, Status> {
        let message = GetClusterInfoRequest {};
        self.read(correlation_id, message, ServiceClient::get_cluster_info).await
    }

    /// What the data grid of a class reports about itself.
    pub async fn odgm_status(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
    ) -> Result<GetOdgmStatusResponse, Status> {
        let message =
            GetOdgmStatusRequest { deployment_id: id.to_owned(), namespace: namespace.to_owned() };
        self.read(correlation_id, message, ServiceClient::get_odgm_status).await
    }

    /// Opens a watch of all namespaces. The stream has no deadline: HTTP/2 keep-alive detects an
    /// unresponsive peer.
    pub async fn watch(
        &self,
        resume_token: &str,
        correlation_id: &str,
    ) -> Result<Streaming<WatchEvent>, Status> {
        let message = WatchClassRuntimesRequest {
            namespace: String::new(),
            resume_token: resume_token.to_owned(),
        };
        let open = async {
            let request = self.request(correlation_id, message).await?;
            self.client().await?.watch_class_runtimes(request).await.map(Response::into_inner)
        };
        timeout(self.options.write_deadline, open).await.unwrap_or_else(timed_out)
    }

    /// Closes the connection, so that the next one reads certificates again.
    pub async fn close(&self) {
        *self.channel.lock().await = None;
    }

    /// Retries a call that no server has answered until the deadline.
    async fn read<Q: Clone, A>(
        &self,
        correlation_id: &str,
        message: Q,
        method: impl AsyncFn(&mut ServiceClient, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        let deadline = Instant::now() + READ_DEADLINE.min(self.options.write_deadline);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let result = self.call(left, correlation_id, message.clone(), &method).await;
            // With details it is a response of the server.
            let unanswered = result.as_ref().is_err_and(|status| {
                status.code() == Code::Unavailable && status.details().is_empty()
            });
            if !unanswered || Instant::now() + RETRY_DELAY >= deadline {
                return result;
            }
            sleep(RETRY_DELAY).await;
        }
    }

    async fn call<Q, A>(
        &self,
        deadline: Duration,
        correlation_id: &str,
        message: Q,
        method: impl AsyncFnOnce(&mut ServiceClient, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        let attempt = async {
            let mut request = self.request(correlation_id, message).await?;
            request.set_timeout(deadline);
            method(&mut self.client().await?, request).await.map(Response::into_inner)
        };
        // The server enforces the deadline too; this bounds one that doesn't.
        timeout(deadline + CONNECT_TIMEOUT, attempt).await.unwrap_or_else(timed_out)
    }

    async fn client(&self) -> Result<ServiceClient, Status> {
        let mut channel = self.channel.lock().await;
        let channel = match &*channel {
            Some(channel) => channel.clone(),
            None => channel.insert(connect(&self.options).await?).clone(),
        };
        Ok(DeploymentServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES))
    }

    async fn request<Q>(&self, correlation_id: &str, message: Q) -> Result<Request<Q>, Status> {
        let mut request = Request::new(message);
        if let Ok(id) = correlation_id.parse() {
            request.metadata_mut().insert(CORRELATION, id);
        }
        if let Some(token) = &self.options.token {
            let bearer = format!("Bearer {}", read_token(token).await?)
                .parse()
                .map_err(|_| Status::unauthenticated("the token is no ASCII text"))?;
            request.metadata_mut().insert("authorization", bearer);
        }
        Ok(request)
    }
}

fn timed_out<T>(_: Elapsed) -> Result<T, Status> {
    Err(Status::deadline_exceeded("no response before the deadline"))
}

async fn connect(options: &ClientOptions) -> Result<Channel, Status> {
    let invalid =
        |error: tonic::transport::Error| Status::unavailable(format!("{}: {error}", options.url));
    let mut endpoint = Endpoint::from_shared(options.url.clone())
        .map_err(invalid)?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if let Some(tls) = &options.tls {
        endpoint = endpoint.tls_config(tls_config(tls).await?).map_err(invalid)?;
    }
    Ok(endpoint.connect_lazy())
}

async fn tls_config(tls: &ClientTls) -> Result<ClientTlsConfig, Status> {
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

async fn read_token(token: &Token) -> Result<String, Status> {
    match token {
        Token::Value(token) => Ok(token.clone()),
        Token::File(path) => match tokio::fs::read_to_string(path).await {
            Ok(token) => Ok(token.trim_end().to_owned()),
            Err(error) => {
                let message = format!("cannot read the token file {}: {error}", path.display());
                Err(Status::unauthenticated(message))
            }
        },
    }
}
