//! The gRPC API: a thin layer over [`crate::service`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use oprc_grpc::deployment::{
    DeleteDeploymentRequest, DeleteDeploymentResponse, DeployRequest, DeployResponse,
    GetClusterInfoRequest, GetClusterInfoResponse, GetDeploymentStatusRequest,
    GetDeploymentStatusResponse, GetOdgmStatusRequest, GetOdgmStatusResponse,
    ListClassRuntimesRequest, ListClassRuntimesResponse, OdgmCollectionHealth, OdgmNode,
    WatchClassRuntimesRequest, deployment_service_server::DeploymentService,
};
use oprc_observability::correlation;
use oprc_server::Identity;
use tokio::sync::Semaphore;
use tonic::{Code, Extensions, Request, Response, Status, metadata::MetadataMap};
use tracing::Instrument as _;

use super::{
    convert,
    status::status,
    watch::{Events, Watcher},
};
use crate::{
    deadline::until,
    metrics::{Call, Metrics},
    service::{Filter, Service},
};

/// The longest deadline of a call, and that of calls that set none.
const MAX_DEADLINE: Duration = Duration::from_secs(30);
const MAX_WATCHERS: usize = 256;

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

    /// Runs one call within its deadline, counts it, and returns its correlation id.
    async fn call<T, F: Future<Output = Result<T, Status>>>(
        &self,
        method: &'static str,
        (metadata, extensions): (&MetadataMap, &Extensions),
        deployment_id: &str,
        work: impl FnOnce(String) -> F,
    ) -> Result<Response<T>, Status> {
        let given = metadata.get(oprc_grpc::CORRELATION).and_then(|it| it.to_str().ok());
        let id = given.and_then(correlation::accept).unwrap_or_else(correlation::new_id);
        let caller = extensions.get::<Identity>().and_then(|it| it.name.as_deref()).unwrap_or("");
        // Not validated yet, so it may be long.
        let deployment_id: String = deployment_id.chars().take(253).collect();
        let span = tracing::info_span!("call", method, deployment_id, caller, correlation_id = id);
        let outcome = async {
            // Checked by the clock, because timers fire late on a busy machine.
            let outcome = until(end(metadata)?, work(id.clone())).await;
            outcome.unwrap_or_else(|| Err(Status::deadline_exceeded("deadline exceeded")))
        }
        .instrument(span.clone())
        .await;
        let code = outcome.as_ref().err().map_or(Code::Ok, Status::code);
        self.metrics
            .calls
            .get_or_create(&Call { method: method.to_owned(), code: format!("{code:?}") })
            .inc();
        span.in_scope(|| match &outcome {
            Ok(_) => tracing::debug!("call completed"),
            Err(status) => {
                tracing::info!(code = ?status.code(), message = status.message(), "call failed");
            }
        });
        let echo = id.parse().ok();
        match outcome {
            Ok(message) => {
                let mut response = Response::new(message);
                if let Some(echo) = echo {
                    response.metadata_mut().insert(oprc_grpc::CORRELATION, echo);
                }
                Ok(response)
            }
            Err(mut status) => {
                if let Some(echo) = echo {
                    status.metadata_mut().insert(oprc_grpc::CORRELATION, echo);
                }
                Err(status)
            }
        }
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
        let (metadata, extensions, request) = request.into_parts();
        let id = request.deployment_id.clone();
        self.call("Deploy", (&metadata, &extensions), &id, |correlation_id| async move {
            let spec = request
                .spec
                .ok_or_else(|| status(&crate::service::Error::invalid("spec", "is missing")))?;
            let spec = oprc_grpc::unit::from_wire(&spec)
                .map_err(|violation| status(&crate::service::Error::Invalid(vec![violation])))?;
            let class = self
                .service
                .deploy(&request.namespace, &request.deployment_id, spec, &correlation_id)
                .await
                .map_err(|error| status(&error))?;
            Ok(DeployResponse {
                accepted: true,
                class_runtime: Some(convert::class(&class)),
                correlation_id,
            })
        })
        .await
    }

    async fn get_deployment_status(
        &self,
        request: Request<GetDeploymentStatusRequest>,
    ) -> Result<Response<GetDeploymentStatusResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let id = request.deployment_id.clone();
        self.call(
            "GetDeploymentStatus",
            (&metadata, &extensions),
            &id,
            |correlation_id| async move {
                let found = self.service.get(&request.namespace, &request.deployment_id).await;
                let (class, stale) = found.map_err(|error| status(&error))?;
                let mut converted = convert::class(&class);
                if request.include_spec {
                    converted.spec = convert::spec(&class);
                }
                Ok(GetDeploymentStatusResponse {
                    class_runtime: Some(converted),
                    stale,
                    correlation_id,
                })
            },
        )
        .await
    }

    async fn delete_deployment(
        &self,
        request: Request<DeleteDeploymentRequest>,
    ) -> Result<Response<DeleteDeploymentResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let id = request.deployment_id.clone();
        self.call("DeleteDeployment", (&metadata, &extensions), &id, |correlation_id| async move {
            let deleted = self.service.delete(&request.namespace, &request.deployment_id).await;
            deleted.map_err(|error| status(&error))?;
            Ok(DeleteDeploymentResponse { accepted: true, correlation_id })
        })
        .await
    }

    async fn list_class_runtimes(
        &self,
        request: Request<ListClassRuntimesRequest>,
    ) -> Result<Response<ListClassRuntimesResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        self.call("ListClassRuntimes", (&metadata, &extensions), "", |correlation_id| async move {
            let filter = Filter {
                namespace: request.namespace,
                environment: request.environment,
                package: request.package,
                phase: request.phase,
                label_selector: request.label_selector,
            };
            let page = self.service.list(&filter, request.page_size, &request.page_token);
            let page = page.map_err(|error| status(&error))?;
            Ok(ListClassRuntimesResponse {
                class_runtimes: page.classes.iter().map(|it| convert::class(it)).collect(),
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
        let (metadata, extensions, request) = request.into_parts();
        self.call("WatchClassRuntimes", (&metadata, &extensions), "", |_| async move {
            self.service.ready().map_err(|error| status(&error))?;
            let checked = self.service.check_namespace(&request.namespace);
            checked.map_err(|error| status(&error))?;
            let permit = Arc::clone(&self.watchers)
                .try_acquire_owned()
                .map_err(|_| Status::resource_exhausted("too many clients watch; retry later"))?;
            let after = Watcher::resume(&self.epoch, &request.resume_token);
            let watcher = Watcher {
                service: Arc::clone(&self.service),
                namespace: request.namespace,
                epoch: Arc::clone(&self.epoch),
                permit,
            };
            Ok(watcher.start(after))
        })
        .await
    }

    async fn get_cluster_info(
        &self,
        request: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        let (metadata, extensions, _) = request.into_parts();
        self.call("GetClusterInfo", (&metadata, &extensions), "", |correlation_id| async move {
            let info = self.service.cluster_info().map_err(|error| status(&error))?;
            Ok(convert::cluster_info(info, correlation_id))
        })
        .await
    }

    async fn get_odgm_status(
        &self,
        request: Request<GetOdgmStatusRequest>,
    ) -> Result<Response<GetOdgmStatusResponse>, Status> {
        let (metadata, extensions, request) = request.into_parts();
        let id = request.deployment_id.clone();
        let end = end(&metadata);
        self.call("GetOdgmStatus", (&metadata, &extensions), &id, |correlation_id| async move {
            let (namespace, id) = (&request.namespace, &request.deployment_id);
            let found = self.service.odgm(namespace, id, &correlation_id, end?).await;
            let (info, collections) = found.map_err(|error| status(&error))?;
            let nodes = info.nodes.into_iter().map(|node| OdgmNode {
                node_id: node.node_id,
                address: node.address,
                status: node.status,
                last_heartbeat: node.last_heartbeat,
            });
            let collections = collections.into_iter().map(|it| OdgmCollectionHealth {
                healthy: it.active_partitions == it.partition_count,
                name: it.collection_name,
                partition_count: it.partition_count,
                active_partitions: it.active_partitions,
                total_objects: it.total_objects,
            });
            Ok(GetOdgmStatusResponse {
                cluster_id: info.cluster_id,
                nodes: nodes.collect(),
                collections: collections.collect(),
                total_shards: info.total_shards,
                active_shards: info.active_shards,
                balance_score: info.balance_score,
                leader_node: info.leader_node,
                current_term: info.current_term,
                committed_index: info.committed_index,
                correlation_id,
            })
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
