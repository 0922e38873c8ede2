//! The way to one cluster's CRM: every call with a deadline, a token and a correlation id, and none
//! at all while the breaker is open.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oprc_grpc::deployment::{
    ClassRuntime, DeleteDeploymentRequest, DeployRequest, GetClusterInfoRequest,
    GetClusterInfoResponse, GetDeploymentStatusRequest, WatchClassRuntimesRequest, WatchEvent,
    deployment_service_client::DeploymentServiceClient, unit::ClassSpec,
};
use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_types::StatusExt as _;

use super::{breaker::Breaker, observed::Observed};
use crate::{
    config::{ClusterConfig, ClusterTls, Secret},
    dispatcher::Outcome,
    stamp,
};

const CONNECT: Duration = Duration::from_secs(5);
/// A peer that is gone without a word is found out in this time.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How much an answer may be: a class's status is some kilobytes.
const ANSWER: usize = 4 << 20;
/// What is known of nodes, capacity and templates is asked again after this time.
const FACTS: Duration = Duration::from_secs(30);
/// How long somebody waits for that.
const MOMENT: Duration = Duration::from_secs(2);

type Client = DeploymentServiceClient<Channel>;

/// The way to a cluster.
pub struct Link {
    pub(super) config: ClusterConfig,
    /// How long a call may take.
    deadline: Duration,
    channel: Mutex<Option<Channel>>,
    breaker: Breaker,
    observed: RwLock<Arc<Observed>>,
    info: RwLock<Option<(Instant, GetClusterInfoResponse)>>,
    asking: Arc<Mutex<()>>,
    changes: watch::Sender<u64>,
}

impl Link {
    /// A way that nothing has gone yet.
    pub fn new(config: ClusterConfig, deadline: Duration) -> Self {
        Self {
            config,
            deadline,
            channel: Mutex::new(None),
            breaker: Breaker::default(),
            observed: RwLock::new(Arc::new(Observed::new(stamp::now()))),
            info: RwLock::new(None),
            asking: Arc::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// The cluster.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What it has told up to now. No lock is held for as long as it is looked at: whoever looks
    /// may come to look a second time, and would wait for somebody who waits for the first.
    pub fn observed(&self) -> Arc<Observed> {
        Arc::clone(&self.observed.read())
    }

    /// Changes what is known, and tells whoever waits for that.
    pub(super) fn learn(&self, change: impl FnOnce(&mut Observed)) {
        // What somebody looks at stays as it is, and a copy is changed.
        change(Arc::make_mut(&mut self.observed.write()));
        self.changes.send_modify(|count| *count += 1);
    }

    /// Is told of each change of what is known.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Has the cluster have a unit.
    pub async fn deploy(
        &self,
        id: &str,
        namespace: &str,
        spec: ClassSpec,
        correlation_id: &str,
    ) -> Outcome {
        let request = DeployRequest {
            deployment_id: id.to_owned(),
            namespace: namespace.to_owned(),
            spec: Some(spec),
        };
        let answer = self
            .call(correlation_id, request, async |mut client, request| client.deploy(request).await)
            .await;
        match answer.map(|answer| answer.class_runtime) {
            Ok(Some(class)) => {
                let took = Outcome::Took {
                    uid: class.uid.clone(),
                    generation: class.generation,
                    namespace: class.namespace.clone(),
                };
                self.learn(|observed| observed.answered(Arc::new(class)));
                took
            }
            Ok(None) => Outcome::Failed("the answer tells of no class".to_owned()),
            Err(status) => failed(&status),
        }
    }

    /// Has the cluster have it no more.
    pub async fn delete(&self, id: &str, namespace: &str, correlation_id: &str) -> Outcome {
        let request = DeleteDeploymentRequest {
            deployment_id: id.to_owned(),
            namespace: namespace.to_owned(),
        };
        let answer = self
            .call(correlation_id, request, async |mut client, request| {
                client.delete_deployment(request).await
            })
            .await;
        match answer {
            Ok(_) => Outcome::Going,
            Err(status) if status.code() == Code::NotFound => Outcome::Gone,
            Err(status) => failed(&status),
        }
    }

    /// A class with its specification; none where there is no such class.
    pub async fn class(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
    ) -> Result<Option<ClassRuntime>, Status> {
        let request = GetDeploymentStatusRequest {
            deployment_id: id.to_owned(),
            namespace: namespace.to_owned(),
            include_spec: true,
        };
        let answer = self
            .call(correlation_id, request, async |mut client, request| {
                client.get_deployment_status(request).await
            })
            .await;
        match answer {
            Ok(answer) => Ok(answer.class_runtime),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// What the cluster has and can do, as it was told last.
    pub(super) fn info(&self) -> Option<GetClusterInfoResponse> {
        let info = self.info.read();
        info.as_ref().map(|(_, info)| info.clone())
    }

    /// Asks for it again, if it is old. What is known must do where it isn't told anew in a moment:
    /// others wait for their plans, too.
    pub(super) async fn refresh(self: &Arc<Self>) {
        let at = self.info.read().as_ref().map(|it| it.0);
        if at.is_some_and(|at| at.elapsed() < FACTS) || !self.observed().is_streaming() {
            return;
        }
        // One asks at a time, and is heard however late it is answered.
        let Ok(turn) = Arc::clone(&self.asking).try_lock_owned() else { return };
        let link = Arc::clone(self);
        let asking = tokio::spawn(async move {
            let _turn = turn;
            link.ask_info().await
        });
        if tokio::time::timeout(MOMENT, asking).await.is_err() {
            tracing::debug!(cluster = self.name(), "what it has and can do isn't told in time");
        }
    }

    /// Has what is known be old.
    #[cfg(test)]
    pub(super) fn age(&self) {
        if let Some((at, _)) = self.info.write().as_mut() {
            *at = at.checked_sub(FACTS).unwrap();
        }
    }

    pub(super) async fn ask_info(&self) -> Result<GetClusterInfoResponse, Status> {
        let id = oprc_observability::correlation::new_id();
        let answer = self
            .call(&id, GetClusterInfoRequest {}, async |mut client, request| {
                client.get_cluster_info(request).await
            })
            .await?;
        *self.info.write() = Some((Instant::now(), answer.clone()));
        Ok(answer)
    }

    /// Opens the stream where it ended. The stream itself has no deadline: keep-alive tells whether
    /// anybody is there.
    pub(super) async fn watch(&self) -> Result<Streaming<WatchEvent>, Status> {
        let resume_token = self.observed().token().to_owned();
        let request = WatchClassRuntimesRequest { namespace: String::new(), resume_token };
        let id = oprc_observability::correlation::new_id();
        let work = async {
            let mut client = self.client().await?;
            let request = self.request(&id, request).await?;
            client.watch_class_runtimes(request).await
        };
        match tokio::time::timeout(self.deadline, work).await {
            Ok(Ok(stream)) => {
                self.breaker.answered();
                Ok(stream.into_inner())
            }
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        }
    }

    /// Forgets the connection: certificates are read anew for the next one.
    pub(super) async fn disconnect(&self) {
        *self.channel.lock().await = None;
    }

    async fn call<Q, A>(
        &self,
        correlation_id: &str,
        request: Q,
        work: impl AsyncFnOnce(Client, Request<Q>) -> Result<tonic::Response<A>, Status>,
    ) -> Result<A, Status> {
        if let Err(wait) = self.breaker.enter(Instant::now()) {
            let message = format!("{} doesn't answer; tried again in {wait:.1?}", self.name());
            return Err(Status::unavailable(message));
        }
        let attempt = async {
            let client = self.client().await?;
            let mut request = self.request(correlation_id, request).await?;
            request.set_timeout(self.deadline);
            work(client, request).await
        };
        // The CRM ends by the deadline too; this is for one that doesn't.
        let answer = match tokio::time::timeout(self.deadline + CONNECT, attempt).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        };
        match &answer {
            Err(status) if is_no_answer(status) => self.breaker.failed(Instant::now()),
            _ => self.breaker.answered(),
        }
        answer.map(tonic::Response::into_inner)
    }

    async fn request<Q>(&self, correlation_id: &str, request: Q) -> Result<Request<Q>, Status> {
        let mut request = Request::new(request);
        if let Ok(id) = correlation_id.parse() {
            request.metadata_mut().insert(oprc_grpc::CORRELATION, id);
        }
        if let Some(secret) = &self.config.token {
            let token = token(secret).await?;
            let bearer = format!("Bearer {token}").parse();
            let bearer = bearer.map_err(|_| Status::unauthenticated("the token isn't a text"))?;
            request.metadata_mut().insert("authorization", bearer);
        }
        Ok(request)
    }

    async fn client(&self) -> Result<Client, Status> {
        let mut channel = self.channel.lock().await;
        let channel = match &*channel {
            Some(channel) => channel.clone(),
            None => channel.insert(connect(&self.config).await?).clone(),
        };
        Ok(DeploymentServiceClient::new(channel).max_decoding_message_size(ANSWER))
    }
}

/// The token, without what ends its line. Files are read each time: tokens are changed in them.
async fn token(secret: &Secret) -> Result<String, Status> {
    match secret {
        Secret::Value(token) => Ok(token.clone()),
        Secret::File(path) => match tokio::fs::read_to_string(path).await {
            Ok(token) => Ok(token.trim_end().to_owned()),
            Err(error) => {
                let message = format!("the token file {}: {error}", path.display());
                Err(Status::unauthenticated(message))
            }
        },
    }
}

/// A connection, made when it is first used.
async fn connect(config: &ClusterConfig) -> Result<Channel, Status> {
    let wrong =
        |error: tonic::transport::Error| Status::unavailable(format!("{}: {error}", config.url));
    let mut endpoint = Endpoint::from_shared(config.url.clone())
        .map_err(wrong)?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    if let Some(tls) = &config.tls {
        endpoint = endpoint.tls_config(secured(tls).await?).map_err(wrong)?;
    }
    Ok(endpoint.connect_lazy())
}

async fn secured(tls: &ClusterTls) -> Result<ClientTlsConfig, Status> {
    let read = async |path: &std::path::Path| {
        let text = tokio::fs::read(path).await;
        text.map_err(|error| Status::unavailable(format!("{}: {error}", path.display())))
    };
    let mut secured =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&tls.ca).await?));
    if let Some((certificate, key)) = &tls.client {
        let (certificate, key) = (read(certificate).await?, read(key).await?);
        secured = secured.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        secured = secured.domain_name(name.clone());
    }
    Ok(secured)
}

/// Why a CRM can do nothing at all for now, in its own words. All else that it says to be unavailable
/// is about one class.
const AWAY: [&str; 3] = ["API_SERVER_UNAVAILABLE", "CRD_MISSING", "NOT_READY"];

/// Whether nobody was there who could have answered, or they won't let us in.
fn is_no_answer(status: &Status) -> bool {
    if status.code() == Code::Unavailable {
        let said = status.get_details_error_info();
        return said.is_none_or(|info| AWAY.contains(&info.reason.as_str()));
    }
    matches!(
        status.code(),
        Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Unauthenticated
            | Code::PermissionDenied
    )
}

/// What a refusal means: whether there is any use in asking again.
fn failed(status: &Status) -> Outcome {
    match status.code() {
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::Unimplemented => Outcome::Refused(status.message().to_owned()),
        // A CRM that is busy has more room another time; what is too large stays so.
        Code::ResourceExhausted
            if status.get_details_error_info().is_some_and(|it| it.reason == "TOO_LARGE") =>
        {
            Outcome::Refused(status.message().to_owned())
        }
        code => Outcome::Failed(format!("{code:?}: {}", status.message())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn what_is_too_large_is_refused_and_who_is_busy_is_asked_again() {
        let exhausted = |reason: &str| {
            let mut details = ErrorDetails::new();
            details.set_error_info(reason, "oaas.io", HashMap::new());
            failed(&Status::with_error_details(Code::ResourceExhausted, "no", details))
        };
        assert!(matches!(exhausted("TOO_LARGE"), Outcome::Refused(_)));
        assert!(matches!(exhausted("TOO_MANY_CALLS"), Outcome::Failed(_)));
    }
}
