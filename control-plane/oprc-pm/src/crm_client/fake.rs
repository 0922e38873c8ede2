//! A scripted CRM, for failures that a real one can't be forced to have.

use std::{
    collections::{BTreeMap, HashMap},
    pin::Pin,
    sync::{Arc, Mutex},
};

use futures::Stream;
use oprc_grpc::deployment::{
    ClassRuntime, DeleteDeploymentRequest, DeleteDeploymentResponse, DeployRequest, DeployResponse,
    FunctionStatus, GetClusterInfoRequest, GetClusterInfoResponse, GetDeploymentStatusRequest,
    GetDeploymentStatusResponse, GetOdgmStatusRequest, GetOdgmStatusResponse,
    ListClassRuntimesRequest, ListClassRuntimesResponse, OdgmStatus, Status as ClassStatus,
    WatchClassRuntimesRequest, WatchEvent,
    deployment_service_server::{DeploymentService, DeploymentServiceServer},
    watch_event::Kind,
};
use oprc_unit::{Platform, Profile};
use tokio::sync::{broadcast, watch};
use tonic::{Code, Request, Response, Status, transport::server::TcpIncoming};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::config::ClusterConfig;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) classes: BTreeMap<String, ClassRuntime>,
    /// The status that calls fail with.
    pub(crate) fail_with: Option<Code>,
    /// The ErrorInfo reason of that status.
    pub(crate) reason: Option<&'static str>,
    /// Execute the next Deploy, but lose its answer.
    pub(crate) lose_answers: bool,
    /// The cluster's ready nodes; default 3.
    pub(crate) ready_nodes: Option<i32>,
    /// Send cluster info on the watch stream; an older CRM doesn't.
    pub(crate) sends_info: bool,
    /// Number of GetClusterInfo calls.
    pub(crate) info_calls: usize,
    /// What data grids report, by deployment id; others don't respond.
    pub(crate) grids: BTreeMap<String, GetOdgmStatusResponse>,
    pub(crate) deploys: usize,
    pub(crate) correlation: String,
    pub(crate) token: String,
    created: i64,
}

impl State {
    fn info(&self) -> GetClusterInfoResponse {
        let mut platform = Platform::of(Profile::Dev);
        platform.features.odgm = true;
        platform.features.hpa = true;
        platform.autoscaling = true;
        GetClusterInfoResponse {
            nodes_known: true,
            nodes: 3,
            ready_nodes: self.ready_nodes.unwrap_or(3),
            availability: 1.0,
            capabilities: [("odgm", true), ("hpa", true), ("knative", false)]
                .map(|(name, is)| (name.to_owned(), is))
                .into(),
            capacity: [("cpu", "8000m"), ("memory", "17179869184")]
                .map(|(name, quantity)| (name.to_owned(), quantity.to_owned()))
                .into(),
            templates: vec!["k8s_deployment".to_owned()],
            profile: "dev".to_owned(),
            platform: oprc_grpc::unit::platform_to_wire(&platform),
            ..GetClusterInfoResponse::default()
        }
    }

    fn info_event(&self) -> WatchEvent {
        let cluster_info = Some(self.info());
        WatchEvent { kind: Kind::ClusterInfo.into(), cluster_info, ..WatchEvent::default() }
    }
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) state: Arc<Mutex<State>>,
    events: broadcast::Sender<WatchEvent>,
    away: watch::Sender<bool>,
    /// The number of calls that were rejected while the fake was stopped.
    rejected: watch::Sender<u32>,
    port: u16,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            state: Arc::default(),
            events: broadcast::Sender::new(64),
            away: watch::Sender::new(false),
            rejected: watch::Sender::new(0),
            port: listener.local_addr().unwrap().port(),
        };
        let served = tonic::transport::Server::builder()
            .add_service(DeploymentServiceServer::new(fake.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        tokio::spawn(served);
        fake
    }

    /// Ends streams and answers calls with UNAVAILABLE.
    pub(crate) fn stop(&self) {
        self.away.send_replace(true);
    }

    pub(crate) fn resume(&self) {
        self.away.send_replace(false);
    }

    pub(crate) fn rejected(&self) -> u32 {
        *self.rejected.borrow()
    }

    /// Waits until this many calls were rejected.
    pub(crate) async fn wait_for_rejected(&self, calls: u32) {
        let mut rejected = self.rejected.subscribe();
        rejected.wait_for(|count| *count >= calls).await.unwrap();
    }

    pub(crate) fn config(&self, name: &str) -> ClusterConfig {
        ClusterConfig {
            name: name.to_owned(),
            url: format!("http://127.0.0.1:{}", self.port),
            default: true,
            tls: None,
            token: None,
            node_availability: None,
            environments: Vec::new(),
        }
    }

    /// Changes the number of ready nodes and reports it on the watch stream.
    pub(crate) fn set_ready_nodes(&self, ready_nodes: i32) {
        let mut state = self.state.lock().unwrap();
        state.ready_nodes = Some(ready_nodes);
        let _ = self.events.send(state.info_event());
    }

    fn send(&self, kind: Kind, class: &ClassRuntime) {
        let class_runtime = Some(class.clone());
        let event = WatchEvent { kind: kind.into(), class_runtime, ..WatchEvent::default() };
        let _ = self.events.send(event);
    }

    fn check_reachable(&self) -> Result<(), Status> {
        if *self.away.borrow() {
            self.rejected.send_modify(|count| *count += 1);
            return Err(Status::unavailable("away"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Status> {
        self.check_reachable()?;
        let state = self.state.lock().unwrap();
        let Some(code) = state.fail_with else { return Ok(()) };
        let mut details = ErrorDetails::new();
        if let Some(reason) = state.reason {
            details.set_error_info(reason, "oaas.io", HashMap::new());
        }
        Err(Status::with_error_details(code, "scripted failure", details))
    }
}

#[allow(clippy::unnecessary_wraps)]
fn answer<T>(answer: T) -> Result<Response<T>, Status> {
    Ok(Response::new(answer))
}

#[tonic::async_trait]
impl DeploymentService for Fake {
    async fn deploy(
        &self,
        request: Request<DeployRequest>,
    ) -> Result<Response<DeployResponse>, Status> {
        self.check()?;
        let text = |name: &str| {
            let value = request.metadata().get(name);
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (correlation, token) = (text(oprc_grpc::CORRELATION), text("authorization"));
        let request = request.into_inner();
        let mut state = self.state.lock().unwrap();
        state.deploys += 1;
        state.created += 1;
        (state.correlation, state.token) = (correlation, token);
        let uid = state.created.to_string();
        let class = state.classes.entry(request.deployment_id.clone()).or_insert(ClassRuntime {
            deployment_id: request.deployment_id,
            namespace: "default".to_owned(),
            uid,
            ..ClassRuntime::default()
        });
        if class.spec != request.spec {
            class.generation += 1;
            let unit = request.spec.as_ref().and_then(|spec| spec.deployment_unit.clone());
            let unit = unit.unwrap_or_default();
            class.package = unit.package.unwrap_or_default();
            class.package_version = unit.package_version.unwrap_or_default();
            class.class = unit.class.unwrap_or_default();
            let odgm = request.spec.iter().any(|spec| spec.addons.iter().any(|it| it == "odgm"));
            let odgm = odgm.then(|| OdgmStatus {
                service: "odgm:8081".to_owned(),
                replicas: 1,
                ..OdgmStatus::default()
            });
            let functions = request.spec.iter().flat_map(|spec| &spec.functions);
            let functions = functions
                .map(|it| FunctionStatus { key: it.key.clone(), ..FunctionStatus::default() })
                .collect();
            class.spec = request.spec;
            class.status = Some(ClassStatus {
                phase: "Available".to_owned(),
                observed_generation: class.generation,
                functions,
                odgm,
                ..ClassStatus::default()
            });
        }
        let class = class.clone();
        self.send(Kind::Changed, &class);
        if std::mem::take(&mut state.lose_answers) {
            return Err(Status::unavailable("lost"));
        }
        answer(DeployResponse { class_runtime: Some(class), ..DeployResponse::default() })
    }

    async fn get_deployment_status(
        &self,
        request: Request<GetDeploymentStatusRequest>,
    ) -> Result<Response<GetDeploymentStatusResponse>, Status> {
        self.check()?;
        let class =
            self.state.lock().unwrap().classes.get(&request.get_ref().deployment_id).cloned();
        let class_runtime = Some(class.ok_or_else(|| Status::not_found("none"))?);
        answer(GetDeploymentStatusResponse { class_runtime, ..Default::default() })
    }

    async fn delete_deployment(
        &self,
        request: Request<DeleteDeploymentRequest>,
    ) -> Result<Response<DeleteDeploymentResponse>, Status> {
        self.check()?;
        let class = self.state.lock().unwrap().classes.remove(&request.get_ref().deployment_id);
        let class = class.ok_or_else(|| Status::not_found("none"))?;
        self.send(Kind::Deleted, &class);
        answer(DeleteDeploymentResponse { accepted: true, ..Default::default() })
    }

    async fn list_class_runtimes(
        &self,
        _: Request<ListClassRuntimesRequest>,
    ) -> Result<Response<ListClassRuntimesResponse>, Status> {
        Err(Status::unimplemented("not used"))
    }

    type WatchClassRuntimesStream = Pin<Box<dyn Stream<Item = Result<WatchEvent, Status>> + Send>>;

    async fn watch_class_runtimes(
        &self,
        _: Request<WatchClassRuntimesRequest>,
    ) -> Result<Response<Self::WatchClassRuntimesStream>, Status> {
        use futures::{StreamExt as _, stream};
        self.check_reachable()?;
        let state = self.state.lock().unwrap();
        let coming = self.events.subscribe();
        let event = |kind: Kind, class: Option<ClassRuntime>| {
            Ok(WatchEvent { kind: kind.into(), class_runtime: class, ..WatchEvent::default() })
        };
        let mut snapshot: Vec<_> =
            state.sends_info.then(|| Ok(state.info_event())).into_iter().collect();
        snapshot.push(event(Kind::SnapshotBegin, None));
        snapshot.extend(state.classes.values().map(|it| event(Kind::Snapshot, Some(it.clone()))));
        snapshot.push(event(Kind::SnapshotEnd, None));
        drop(state);
        let away = self.away.subscribe();
        let coming = stream::unfold((coming, away), |(mut coming, mut away)| async move {
            let event = tokio::select! {
                event = coming.recv() => event.ok(),
                _ = away.wait_for(|away| *away) => None,
            };
            event.map(|event| (Ok(event), (coming, away)))
        });
        answer(stream::iter(snapshot).chain(coming).boxed())
    }

    async fn get_cluster_info(
        &self,
        _: Request<GetClusterInfoRequest>,
    ) -> Result<Response<GetClusterInfoResponse>, Status> {
        self.check_reachable()?;
        let mut state = self.state.lock().unwrap();
        state.info_calls += 1;
        answer(state.info())
    }

    async fn get_odgm_status(
        &self,
        request: Request<GetOdgmStatusRequest>,
    ) -> Result<Response<GetOdgmStatusResponse>, Status> {
        self.check_reachable()?;
        let id = &request.get_ref().deployment_id;
        if let Some(grid) = self.state.lock().unwrap().grids.get(id) {
            return answer(grid.clone());
        }
        let details = ErrorDetails::with_error_info("ODGM_UNAVAILABLE", "oaas.io", HashMap::new());
        let message = format!("the data grid of {id} does not respond: connection refused");
        Err(Status::with_error_details(Code::Unavailable, message, details))
    }
}
