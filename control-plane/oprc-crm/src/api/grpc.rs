//! The gRPC API: a thin layer over [`crate::service`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oprc_grpc::deployment::{
    DeleteDeploymentRequest, DeleteDeploymentResponse, DeployRequest, DeployResponse,
    GetClusterInfoRequest, GetClusterInfoResponse, GetDeploymentStatusRequest,
    GetDeploymentStatusResponse, GetOdgmStatusRequest, GetOdgmStatusResponse,
    ListClassRuntimesRequest, ListClassRuntimesResponse, WatchClassRuntimesRequest,
    deployment_service_server::DeploymentService,
};
use oprc_observability::correlation;
use oprc_server::Identity;
use tokio::sync::Semaphore;
use tonic::{Code, Request, Response, Status, metadata::MetadataMap};
use tracing::Instrument as _;

use super::{
    convert,
    watch::{self, Events},
};
use crate::{
    deadline::until,
    metrics::Metrics,
    reason::code_name,
    service::{Error, Filter, Service},
};

/// The longest deadline of a call, and that of calls that set none.
const MAX_DEADLINE: Duration = Duration::from_secs(30);
const MAX_WATCHERS: usize = 256;
const WATCH: &str = "WatchClassRuntimes";

pub struct DeploymentApi {
    service: Arc<Service>,
    metrics: Arc<Metrics>,
    watchers: Arc<Semaphore>,
    epoch: Arc<str>,
}

impl DeploymentApi {
    pub fn new(service: Arc<Service>, metrics: Arc<Metrics>) -> Self {
        Self {
            service,
            metrics,
            watchers: Arc::new(Semaphore::new(MAX_WATCHERS)),
            epoch: correlation::new_id().into(),
        }
    }

    /// Runs one call within its deadline, counts it, and returns its correlation id. `work` gets the
    /// message, the correlation id and the deadline.
    async fn call<R, T, F: Future<Output = Result<T, Status>>>(
        &self,
        method: &'static str,
        request: Request<R>,
        deployment_id: &str,
        work: impl FnOnce(R, String, Instant) -> F,
    ) -> Result<Response<T>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let given = metadata.get(oprc_grpc::CORRELATION).and_then(|it| it.to_str().ok());
        let id = given.and_then(correlation::accept).unwrap_or_else(correlation::new_id);
        let caller = extensions.get::<Identity>().and_then(|it| it.name.as_deref()).unwrap_or("");
        // Not validated yet, so it may be long.
        let deployment_id: String = deployment_id.chars().take(253).collect();
        let span = tracing::info_span!("call", method, deployment_id, caller, correlation_id = id);
        let started = Instant::now();
        let outcome = async {
            let end = end(&metadata)?;
            // Checked by the clock, because timers fire late on a busy machine.
            let outcome = until(end, work(message, id.clone(), end)).await;
            outcome.unwrap_or_else(|| Err(Status::deadline_exceeded("deadline exceeded")))
        }
        .instrument(span.clone())
        .await;
        let code = outcome.as_ref().err().map_or(Code::Ok, Status::code);
        self.metrics.count_call(method, code);
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        span.in_scope(|| match &outcome {
            Ok(_) if method == WATCH => tracing::debug!("watch started"),
            Ok(_) => tracing::debug!(code = code_name(code), duration_ms, "gRPC call completed"),
            Err(status) => {
                let (code, error) = (code_name(code), status.message());
                tracing::info!(code, error, duration_ms, "gRPC call failed");
            }
        });
        let mut response = outcome.map(Response::new);
        if let Ok(id) = id.parse() {
            let metadata = match &mut response {
                Ok(response) => response.metadata_mut(),
                Err(status) => status.metadata_mut(),
            };
            metadata.insert(oprc_grpc::CORRELATION, id);
        }
        response
    }
}

/// The deadline of a call that has just arrived.
fn end(metadata: &MetadataMap) -> Result<Instant, Status> {
    Ok(Instant::now() + timeout(metadata)?.unwrap_or(MAX_DEADLINE).min(MAX_DEADLINE))
}

/// Parses the `grpc-timeout` header: a number and a unit.
fn timeout(metadata: &MetadataMap) -> Result<Option<Duration>, Status> {
    let Some(text) = metadata.get("grpc-timeout") else { return Ok(None) };
    let bad =
        || Status::invalid_argument("grpc-timeout must be a number of at most 8 digits and a unit");
    let text = text.to_str().map_err(|_| bad())?;
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(bad)?;
    if number.is_empty() || number.len() > 8 {
        return Err(bad());
    }
    let number: u64 = number.parse().map_err(|_| bad())?;
    Ok(Some(match unit {
        "H" => Duration::from_secs(number.saturating_mul(3600)),
        "M" => Duration::from_secs(number.saturating_mul(60)),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return Err(bad()),
    }))
}

#[tonic::async_trait]
impl DeploymentService for DeploymentApi {
    async fn deploy(
        &self,
        request: Request<DeployRequest>,
    ) -> Result<Response<DeployResponse>, Status> {
        let id = request.get_ref().deployment_id.clone();
        self.call("Deploy", request, &id, |request, correlation_id, _| async move {
            let spec = request.spec.ok_or_else(|| Error::invalid("spec", "is missing"))?;
            let spec = oprc_grpc::unit::from_wire(&spec)
                .map_err(|violation| Error::Invalid(vec![violation]))?;
            let (namespace, id) = (&request.namespace, &request.deployment_id);
            let class = self.service.deploy(namespace, id, spec, &correlation_id).await?;
            let class_runtime = Some(convert::class(&class, &self.service.observations.latest()));
            Ok(DeployResponse { accepted: true, class_runtime, correlation_id })
        })
        .await
    }

    async fn get_deployment_status(
        &self,
        request: Request<GetDeploymentStatusRequest>,
    ) -> Result<Response<GetDeploymentStatusResponse>, Status> {
        let id = request.get_ref().deployment_id.clone();
        self.call("GetDeploymentStatus", request, &id, |request, correlation_id, _| async move {
            let (namespace, id) = (&request.namespace, &request.deployment_id);
            let (class, stale) = self.service.get(namespace, id).await?;
            let mut converted = convert::class(&class, &self.service.observations.latest());
            if request.include_spec {
                converted.spec = convert::spec(&class);
            }
            let class_runtime = Some(converted);
            Ok(GetDeploymentStatusResponse { class_runtime, stale, correlation_id })
        })
        .await
    }

    async fn delete_deployment(
        &self,
        request: Request<DeleteDeploymentRequest>,
    ) -> Result<Response<DeleteDeploymentResponse>, Status> {
        let id = request.get_ref().deployment_id.clone();
        self.call("DeleteDeployment", request, &id, |request, correlation_id, _| async move {
            self.service.delete(&request.namespace, &request.deployment_id).await?;
            Ok(DeleteDeploymentResponse { accepted: true, correlation_id })
        })
        .await
    }

    async fn list_class_runtimes(
        &self,
        request: Request<ListClassRuntimesRequest>,
    ) -> Result<Response<ListClassRuntimesResponse>, Status> {
        self.call("ListClassRuntimes", request, "", |request, correlation_id, _| async move {
            let filter = Filter {
                namespace: request.namespace,
                environment: request.environment,
                package: request.package,
                phase: request.phase,
                label_selector: request.label_selector,
            };
            let page = self.service.list(&filter, request.page_size, &request.page_token)?;
            let observations = self.service.observations.latest();
            let classes = page.classes.iter().map(|it| convert::class(it, &observations));
            Ok(ListClassRuntimesResponse {
                class_runtimes: classes.collect(),
                next_page_token: page.next.unwrap_or_default(),
                stale: page.stale,
                correlation_id,
            })
        })
        .await
    }

    type WatchClassRuntimesStream = Events;

    async fn watch_class_runtimes(
        &self,
        request: Request<WatchClassRuntimesRequest>,
    ) -> Result<Response<Events>, Status> {
        self.call(WATCH, request, "", |request, _, _| async move {
            self.service.ready()?;
            self.service.check_namespace(&request.namespace)?;
            let permit = Arc::clone(&self.watchers)
                .try_acquire_owned()
                .map_err(|_| Status::resource_exhausted("too many clients watch; retry later"))?;
            let (service, epoch) = (Arc::clone(&self.service), Arc::clone(&self.epoch));
            let (namespace, token) = (request.namespace, request.resume_token);
            Ok(watch::start(service, namespace, epoch, &token, permit))
        })
        .await
    }

    async fn get_cluster_info(
        &self,
        request: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        self.call("GetClusterInfo", request, "", |_, correlation_id, _| async move {
            Ok(convert::cluster_info(&self.service, correlation_id)?)
        })
        .await
    }

    async fn get_odgm_status(
        &self,
        request: Request<GetOdgmStatusRequest>,
    ) -> Result<Response<GetOdgmStatusResponse>, Status> {
        let id = request.get_ref().deployment_id.clone();
        self.call("GetOdgmStatus", request, &id, |request, correlation_id, end| async move {
            let (namespace, id) = (&request.namespace, &request.deployment_id);
            let (info, collections) =
                self.service.odgm(namespace, id, &correlation_id, end).await?;
            Ok(convert::odgm(info, collections, correlation_id))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_grpc_timeouts() {
        let read = |text: &'static str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            timeout(&metadata)
        };
        assert_eq!(read("5S").unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(read("150m").unwrap(), Some(Duration::from_millis(150)));
        assert_eq!(read("2M").unwrap(), Some(Duration::from_mins(2)));
        for wrong in ["", "S", "5", "5x", "123456789S", "-1S"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(timeout(&MetadataMap::new()).unwrap(), None);
    }
}
