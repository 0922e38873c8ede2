//! Calls to one cluster's CRM, none of which is made while the breaker is open.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use oprc_grpc::{
    client::{ClientOptions, DeploymentClient},
    deployment::{
        ClassRuntime, DeployRequest, GetClusterInfoResponse, GetOdgmStatusResponse, WatchEvent,
        unit::ClassSpec,
    },
};
use oprc_observability::correlation::new_id;
use parking_lot::RwLock;
use tokio::sync::watch;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

use super::{
    breaker::Breaker,
    class_cache::{ClassCache, acknowledged},
};
use crate::{
    clock,
    config::ClusterConfig,
    error::Error,
    rollout::{CallOutcome, UnitRecord},
};

/// Bound on [`CrmClient::refresh_measurements`]: a read must not wait for a slow CRM.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);
const REFRESH_CONCURRENCY: usize = 8;

pub struct CrmClient {
    pub(super) config: ClusterConfig,
    client: DeploymentClient,
    breaker: Breaker,
    cache: RwLock<Arc<ClassCache>>,
    changes: watch::Sender<u64>,
}

impl CrmClient {
    pub fn new(config: ClusterConfig, deadline: Duration) -> Self {
        let client = DeploymentClient::new(ClientOptions {
            url: config.url.clone(),
            tls: config.tls.clone(),
            token: config.token.clone(),
            write_deadline: deadline,
        });
        Self {
            config,
            client,
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

    pub async fn deploy(&self, id: &str, unit: &UnitRecord, spec: ClassSpec) -> CallOutcome {
        let request = DeployRequest {
            deployment_id: id.to_owned(),
            namespace: unit.namespace.clone(),
            spec: Some(spec),
        };
        let answer = self.guard(self.client.deploy(request, &unit.correlation_id)).await;
        match answer.map(|answer| answer.class_runtime) {
            Ok(Some(class)) => {
                let acknowledged = acknowledged(&class, &unit.revision);
                self.update_cache(|cache| cache.apply_response(Arc::new(class)));
                CallOutcome::Accepted(acknowledged)
            }
            Ok(None) => CallOutcome::Failed("the response contains no class".to_owned()),
            Err(status) => failure(&status),
        }
    }

    pub async fn delete(&self, id: &str, unit: &UnitRecord) -> CallOutcome {
        let call = self.client.delete(id, &unit.namespace, &unit.correlation_id);
        match self.guard(call).await {
            Ok(()) => CallOutcome::Terminating,
            Err(status) if status.code() == Code::NotFound => CallOutcome::NotFound,
            Err(status) => failure(&status),
        }
    }

    /// A class with its specification.
    pub async fn class(
        &self,
        id: &str,
        namespace: &str,
        correlation_id: &str,
    ) -> Result<ClassRuntime, Error> {
        match self.guard(self.client.class(id, namespace, correlation_id)).await {
            Ok(class) => class.ok_or_else(|| Error::not_found("class runtime", id)),
            Err(status) => {
                Err(Error::Unavailable(format!("{}: {}", self.name(), status.message())))
            }
        }
    }

    /// Reads the measurements of classes again. The watch stream has them as of the last change of a
    /// class, because new measurements alone are no change. Classes that can't be read in time keep
    /// the measurements that are known.
    pub async fn refresh_measurements(&self, classes: Vec<Arc<ClassRuntime>>) {
        if !self.class_cache().connected {
            return;
        }
        let reads = stream::iter(classes).for_each_concurrent(REFRESH_CONCURRENCY, async |class| {
            let (id, namespace) = (&class.deployment_id, &class.namespace);
            let correlation_id = new_id();
            let read = self.client.class_status(id, namespace, &correlation_id);
            if let Ok(Some(latest)) = self.guard(read).await {
                // No input of a decision has changed, so no class is enqueued.
                Arc::make_mut(&mut self.cache.write()).apply_measurements(&latest);
            }
        });
        if tokio::time::timeout(REFRESH_TIMEOUT, reads).await.is_err() {
            tracing::debug!(cluster = self.name(), "timed out reading measurements");
        }
    }

    /// What the data grid of a class reports about itself, or why it can't be queried.
    pub async fn odgm_status(
        &self,
        id: &str,
        namespace: &str,
    ) -> Result<GetOdgmStatusResponse, String> {
        if !self.class_cache().connected {
            return Err(format!("cluster {} does not respond", self.name()));
        }
        let answer = self.guard(self.client.odgm_status(id, namespace, &new_id())).await;
        answer.map_err(|status| status.message().to_owned())
    }

    pub(super) async fn fetch_info(&self) -> Result<GetClusterInfoResponse, Status> {
        self.guard(self.client.cluster_info(&new_id())).await
    }

    /// Opens the watch stream where the last one ended. Attempted while the breaker is open too, and
    /// closes it.
    pub(super) async fn watch(&self) -> Result<Streaming<WatchEvent>, Status> {
        let stream = self.client.watch(&self.class_cache().resume_token, &new_id()).await?;
        self.breaker.record_success();
        Ok(stream)
    }

    /// Closes the connection, so that the next one reads certificates again.
    pub(super) async fn disconnect(&self) {
        self.client.close().await;
    }

    async fn guard<A>(&self, call: impl Future<Output = Result<A, Status>>) -> Result<A, Status> {
        if let Err(wait) = self.breaker.enter(Instant::now()) {
            let message = format!("{} does not answer; next attempt in {wait:.1?}", self.name());
            return Err(Status::unavailable(message));
        }
        let answer = call.await;
        match &answer {
            Err(status) if is_unanswered(status) => self.breaker.record_failure(Instant::now()),
            _ => self.breaker.record_success(),
        }
        answer
    }
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
    let has_reason =
        |reason: &str| status.get_details_error_info().is_some_and(|it| it.reason == reason);
    match status.code() {
        // Not about the unit: CRM can't authenticate to its API server.
        Code::FailedPrecondition if has_reason("API_SERVER_UNAUTHENTICATED") => {
            CallOutcome::Failed(status.message().to_owned())
        }
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::Unimplemented => CallOutcome::Rejected(status.message().to_owned()),
        // A busy CRM accepts the unit later; one that is too large is never accepted.
        Code::ResourceExhausted if has_reason("TOO_LARGE") => {
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
    fn expired_credentials_of_crm_are_retried() {
        let failed = |reason: &str| failure(&status(Code::FailedPrecondition, reason));
        assert!(matches!(failed("API_SERVER_UNAUTHENTICATED"), CallOutcome::Failed(_)));
        assert!(matches!(failed("TEMPLATE_REJECTED"), CallOutcome::Rejected(_)));
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
