//! Calls to one cluster's CRM. Each has a deadline, and none is made while the breaker is open.

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
use tokio::sync::watch;
use tonic::{Code, Request, Response, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

use super::{
    breaker::Breaker,
    class_cache::ClassCache,
    connection::{CONNECT_TIMEOUT, Connection, request},
};
use crate::{clock, config::ClusterConfig, rollout::CallOutcome};

const MAX_RESPONSE_BYTES: usize = 4 << 20;

type Client = DeploymentServiceClient<Channel>;

pub struct CrmClient {
    pub(super) config: ClusterConfig,
    deadline: Duration,
    connection: Connection,
    breaker: Breaker,
    cache: RwLock<Arc<ClassCache>>,
    changes: watch::Sender<u64>,
}

impl CrmClient {
    pub fn new(config: ClusterConfig, deadline: Duration) -> Self {
        Self {
            config,
            deadline,
            connection: Connection::default(),
            breaker: Breaker::default(),
            cache: RwLock::new(Arc::new(ClassCache::new(clock::now()))),
            changes: watch::Sender::new(0),
        }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// A snapshot: no lock is held while it is read.
    pub fn class_cache(&self) -> Arc<ClassCache> {
        Arc::clone(&self.cache.read())
    }

    pub(super) fn update_cache(&self, change: impl FnOnce(&mut ClassCache)) {
        // Snapshots in use stay as they are: the change is made to a copy.
        change(Arc::make_mut(&mut self.cache.write()));
        self.changes.send_modify(|count| *count += 1);
    }

    /// Notified of each change of the class cache.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub async fn deploy(
        &self,
        id: &str,
        namespace: &str,
        spec: ClassSpec,
        correlation_id: &str,
    ) -> CallOutcome {
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
                let accepted = CallOutcome::Accepted {
                    uid: class.uid.clone(),
                    generation: class.generation,
                    namespace: class.namespace.clone(),
                };
                self.update_cache(|cache| cache.apply_response(Arc::new(class)));
                accepted
            }
            Ok(None) => CallOutcome::Failed("the response contains no class".to_owned()),
            Err(status) => failure(&status),
        }
    }

    pub async fn delete(&self, id: &str, namespace: &str, correlation_id: &str) -> CallOutcome {
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
            Ok(_) => CallOutcome::Terminating,
            Err(status) if status.code() == Code::NotFound => CallOutcome::NotFound,
            Err(status) => failure(&status),
        }
    }

    /// A class with its specification; none if it doesn't exist.
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

    pub(super) async fn fetch_info(&self) -> Result<GetClusterInfoResponse, Status> {
        let id = oprc_observability::correlation::new_id();
        self.call(&id, GetClusterInfoRequest {}, async |mut client, request| {
            client.get_cluster_info(request).await
        })
        .await
    }

    /// Opens the watch stream, which resumes where the last one ended. It has no deadline: HTTP/2
    /// keep-alive detects an unresponsive peer.
    pub(super) async fn watch(&self) -> Result<Streaming<WatchEvent>, Status> {
        let resume_token = self.class_cache().resume_token().to_owned();
        let message = WatchClassRuntimesRequest { namespace: String::new(), resume_token };
        let id = oprc_observability::correlation::new_id();
        let open = async {
            let mut client = self.client().await?;
            client.watch_class_runtimes(request(&self.config, &id, message).await?).await
        };
        let stream = tokio::time::timeout(self.deadline, open).await.map_err(|_| timed_out())??;
        self.breaker.record_success();
        Ok(stream.into_inner())
    }

    /// Closes the connection, so that the next one reads certificates again.
    pub(super) async fn disconnect(&self) {
        self.connection.close().await;
    }

    async fn call<Q, A>(
        &self,
        correlation_id: &str,
        message: Q,
        work: impl AsyncFnOnce(Client, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Status> {
        if let Err(wait) = self.breaker.enter(Instant::now()) {
            let message = format!("{} does not answer; next attempt in {wait:.1?}", self.name());
            return Err(Status::unavailable(message));
        }
        let attempt = async {
            let client = self.client().await?;
            let mut request = request(&self.config, correlation_id, message).await?;
            request.set_timeout(self.deadline);
            work(client, request).await
        };
        // The CRM enforces the deadline too; this bounds one that doesn't.
        let answer = tokio::time::timeout(self.deadline + CONNECT_TIMEOUT, attempt).await;
        let answer = answer.unwrap_or_else(|_| Err(timed_out()));
        match &answer {
            Err(status) if is_unanswered(status) => self.breaker.record_failure(Instant::now()),
            _ => self.breaker.record_success(),
        }
        answer.map(Response::into_inner)
    }

    async fn client(&self) -> Result<Client, Status> {
        let channel = self.connection.channel(&self.config).await?;
        Ok(DeploymentServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES))
    }
}

fn timed_out() -> Status {
    Status::deadline_exceeded("no response before the deadline")
}

/// Reasons for UNAVAILABLE for which a CRM can't serve any class. All others concern one class, or
/// pass without a pause: a CRM that the API server throttles or denies access still answers.
const CRM_UNAVAILABLE: [&str; 3] = ["API_SERVER_UNAVAILABLE", "CRD_MISSING", "NOT_READY"];

/// Whether a failure counts for the breaker: no CRM answered, or it can't serve any class.
fn is_unanswered(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => {
            let info = status.get_details_error_info();
            info.is_none_or(|info| CRM_UNAVAILABLE.contains(&info.reason.as_str()))
        }
        Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => true,
        _ => false,
    }
}

fn failure(status: &Status) -> CallOutcome {
    match status.code() {
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::Unimplemented => CallOutcome::Rejected(status.message().to_owned()),
        // A busy CRM accepts the unit later; one that is too large is never accepted.
        Code::ResourceExhausted
            if status.get_details_error_info().is_some_and(|it| it.reason == "TOO_LARGE") =>
        {
            CallOutcome::Rejected(status.message().to_owned())
        }
        code => CallOutcome::Failed(format!("{code:?}: {}", status.message())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    fn status(code: Code, reason: &str) -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(reason, "oaas.io", HashMap::new());
        Status::with_error_details(code, "no", details)
    }

    #[test]
    fn too_large_is_rejected_and_busy_is_retried() {
        let exhausted = |reason: &str| failure(&status(Code::ResourceExhausted, reason));
        assert!(matches!(exhausted("TOO_LARGE"), CallOutcome::Rejected(_)));
        assert!(matches!(exhausted("TOO_MANY_CALLS"), CallOutcome::Failed(_)));
    }

    #[test]
    fn denied_and_throttled_calls_are_answered() {
        for code in [Code::Unavailable, Code::Unauthenticated, Code::ResourceExhausted] {
            for reason in ["API_SERVER_UNAUTHENTICATED", "API_SERVER_THROTTLED"] {
                assert!(!is_unanswered(&status(code, reason)), "{code:?} {reason}");
            }
        }
        assert!(!is_unanswered(&Status::unauthenticated("no token")));
        assert!(is_unanswered(&status(Code::Unavailable, "API_SERVER_UNAVAILABLE")));
        assert!(is_unanswered(&Status::unavailable("connection refused")));
    }
}
