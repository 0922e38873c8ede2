//! A data grid with a few objects, behind an API server that forwards to it. It can be made to fail in
//! ways that a real one rarely does.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Query, Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use oprc_grpc::odgm::{
    GetClusterInfoRequest, GetClusterInfoResponse, GetCollectionStatusRequest,
    GetCollectionStatusResponse, Node,
    data_service_server::{DataService, DataServiceServer},
};
use serde_json::{Value, json};

/// The path by which an API server forwards to the grid of the fixtures.
const PROXY: &str = "/api/v1/namespaces/oaas-dev/services/odgm:8081/proxy";

#[derive(Debug, Default)]
pub(crate) struct Grid {
    /// State and version by id.
    pub(crate) objects: BTreeMap<String, (Value, u64)>,
    /// Requests as `METHOD PATH?QUERY`, each with its interesting headers.
    pub(crate) requests: Vec<String>,
    /// Responses to send instead of the next ones.
    pub(crate) failures: Vec<(u16, Value)>,
    /// Results by idempotency key.
    results: HashMap<String, Value>,
    /// Lines of each watch; the last one stays open.
    pub(crate) watches: Vec<String>,
    pub(crate) backup: String,
    pub(crate) restored: Option<String>,
    pub(crate) parked: Vec<Value>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FakeGrid(Arc<Mutex<Grid>>);

impl FakeGrid {
    /// With the objects `a`, `b` and `c`, whose values are 1, 2 and 3.
    pub(crate) fn new() -> Self {
        let grid = Self::default();
        for (id, value) in [("a", 1), ("b", 2), ("c", 3)] {
            grid.lock().objects.insert(id.to_owned(), (json!({"value": value}), value));
        }
        grid
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Grid> {
        self.0.lock().unwrap()
    }

    /// Returns its URL. It stops with the process.
    pub(crate) fn start(&self) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let grid = self.routes();
        let status = tonic::service::Routes::new(DataServiceServer::new(self.clone()));
        let routes = status.into_axum_router().merge(grid.clone()).nest(PROXY, grid);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, routes).await.unwrap();
            });
        });
        url
    }

    fn routes(&self) -> Router {
        let objects = Router::new()
            .route("/objects", get(list).post(create))
            .route("/objects/{id}", get(read).put(write).patch(write).delete(delete))
            .route("/objects/{id}/{method}", post(invoke));
        Router::new()
            .merge(objects.clone())
            .nest("/collections/{collection}", objects)
            .route("/events/parked", get(parked))
            .route("/events/parked/{action}", post(unpark))
            .route("/backup", post(backup))
            .route("/restore", post(restore))
            .layer(axum::middleware::from_fn_with_state(self.clone(), record))
            .with_state(self.clone())
    }
}

async fn record(
    State(grid): State<FakeGrid>,
    request: Request,
    next: axum::middleware::Next,
) -> Response {
    let headers = ["if-match", "if-none-match"].into_iter().filter_map(|name| {
        let value = request.headers().get(name)?.to_str().ok()?;
        Some(format!(" {name}={value}"))
    });
    let headers: String = headers.collect();
    let failure = {
        let mut grid = grid.lock();
        grid.requests.push(format!("{} {}{headers}", request.method(), request.uri()));
        if grid.failures.is_empty() { None } else { Some(grid.failures.remove(0)) }
    };
    match failure {
        Some((status, body)) => (StatusCode::from_u16(status).unwrap(), Json(body)).into_response(),
        None => next.run(request).await,
    }
}

fn problem(status: StatusCode, reason: &str, detail: &str) -> Response {
    (status, Json(json!({"title": "Failed", "detail": detail, "reason": reason}))).into_response()
}

type Parts = Path<HashMap<String, String>>;
type Parameters = Query<HashMap<String, String>>;

fn document(id: &str, (state, version): &(Value, u64)) -> Value {
    json!({"id": id, "version": version, "state": state})
}

async fn list(State(grid): State<FakeGrid>, Query(query): Parameters) -> Response {
    if query.contains_key("watch") {
        return watch(&grid);
    }
    let text = |name: &str| query.get(name).cloned().unwrap_or_default();
    // Two at most, so that clients have to read several pages.
    let limit = text("limit").parse::<usize>().unwrap().min(2);
    let grid = grid.lock();
    let matching = grid.objects.iter();
    let mut matching =
        matching.filter(|(id, _)| **id > text("after") && id.starts_with(&text("prefix")));
    let page: Vec<_> = matching.by_ref().take(limit).collect();
    let next = matching.next().and_then(|_| page.last()).map(|(id, _)| (*id).clone());
    let objects: Vec<_> = page.into_iter().map(|(id, object)| document(id, object)).collect();
    let page = match next {
        Some(next) => json!({"objects": objects, "next": next}),
        None => json!({"objects": objects}),
    };
    Json(page).into_response()
}

fn watch(grid: &FakeGrid) -> Response {
    let (lines, is_last) = {
        let mut grid = grid.lock();
        if grid.watches.is_empty() {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "no watch is left");
        }
        (grid.watches.remove(0), grid.watches.is_empty())
    };
    let lines = stream::iter([Ok::<_, Infallible>(Bytes::from(lines))]);
    if is_last {
        return Body::from_stream(lines.chain(stream::pending())).into_response();
    }
    Body::from_stream(lines).into_response()
}

async fn create(State(grid): State<FakeGrid>, Json(state): Json<Value>) -> Response {
    let mut grid = grid.lock();
    grid.objects.insert("generated".to_owned(), (state, 9));
    (StatusCode::CREATED, Json(document("generated", &grid.objects["generated"]))).into_response()
}

async fn read(
    State(grid): State<FakeGrid>,
    Path(parts): Parts,
    Query(query): Parameters,
) -> Response {
    let id = &parts["id"];
    let Some(object) = grid.lock().objects.get(id).cloned() else {
        return problem(StatusCode::NOT_FOUND, "NOT_FOUND", &format!("there is no object {id:?}"));
    };
    let mut document = document(id, &object);
    if query.get("resolve").is_some_and(|it| it == "owner") {
        document["resolved"] = json!({"owner": {"id": "ann"}});
    }
    (etag(object.1), Json(document)).into_response()
}

fn etag(version: u64) -> [(&'static str, String); 1] {
    [("etag", format!("\"e-{version}\""))]
}

async fn write(
    State(grid): State<FakeGrid>,
    Path(parts): Parts,
    headers: HeaderMap,
    Json(state): Json<Value>,
) -> Response {
    let mut grid = grid.lock();
    let present = grid.objects.get(&parts["id"]).map(|it| it.1);
    let expected = headers.get("if-match").map(|it| it.to_str().unwrap());
    let present_tag = present.map(|it| format!("\"e-{it}\""));
    if expected.is_some_and(|it| Some(it) != present_tag.as_deref()) {
        let detail = format!("the object has version {}", present.unwrap_or_default());
        return problem(StatusCode::PRECONDITION_FAILED, "CHANGED", &detail);
    }
    let object = (state, present.unwrap_or_default() + 1);
    grid.objects.insert(parts["id"].clone(), object.clone());
    (etag(object.1), Json(document(&parts["id"], &object))).into_response()
}

async fn delete(State(grid): State<FakeGrid>, Path(parts): Parts) -> Response {
    match grid.lock().objects.remove(&parts["id"]) {
        Some(_) => StatusCode::NO_CONTENT.into_response(),
        None => problem(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no such object"),
    }
}

/// Any method adds `by`, once for each idempotency key.
async fn invoke(
    State(grid): State<FakeGrid>,
    Path(parts): Parts,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let arguments: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut grid = grid.lock();
    if let Some(result) = grid.results.get(&key) {
        return ([("idempotent-replayed", "true")], Json(result.clone())).into_response();
    }
    if parts["method"] == "missing" {
        return problem(StatusCode::NOT_FOUND, "UNKNOWN_METHOD", "there is no method \"missing\"");
    }
    let object = grid.objects.entry(parts["id"].clone()).or_insert((json!({"value": 0}), 0));
    let sum = object.0["value"].as_i64().unwrap() + arguments["by"].as_i64().unwrap_or(1);
    object.0["value"] = sum.into();
    object.1 += 1;
    grid.results.insert(key, sum.into());
    Json(json!(sum)).into_response()
}

async fn parked(State(grid): State<FakeGrid>) -> Json<Value> {
    Json(grid.lock().parked.clone().into())
}

async fn unpark(State(grid): State<FakeGrid>, Json(event): Json<Value>) -> Response {
    let mut grid = grid.lock();
    let before = grid.parked.len();
    grid.parked.retain(|it| it["key"] != event["key"]);
    if grid.parked.len() == before {
        return problem(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no such event");
    }
    StatusCode::NO_CONTENT.into_response()
}

async fn backup(State(grid): State<FakeGrid>) -> String {
    grid.lock().backup.clone()
}

async fn restore(State(grid): State<FakeGrid>, body: String) -> Response {
    let mut grid = grid.lock();
    if !grid.objects.is_empty() {
        return problem(StatusCode::CONFLICT, "NOT_EMPTY", "the grid has objects");
    }
    if grid.restored.as_ref() == Some(&body) {
        return Json(json!({"records": 1, "restoredBefore": true})).into_response();
    }
    grid.restored = Some(body);
    Json(json!({"records": 1})).into_response()
}

#[tonic::async_trait]
impl DataService for FakeGrid {
    async fn get_cluster_info(
        &self,
        _: tonic::Request<GetClusterInfoRequest>,
    ) -> Result<tonic::Response<GetClusterInfoResponse>, tonic::Status> {
        let node = Node {
            node_id: "crm-dev-counter000".to_owned(),
            address: "http://odgm-0:8081".to_owned(),
            status: "active".to_owned(),
            last_heartbeat: "2026-11-16T12:00:00Z".to_owned(),
        };
        Ok(tonic::Response::new(GetClusterInfoResponse {
            leader_node: node.node_id.clone(),
            nodes: vec![node],
            total_shards: 4,
            active_shards: 4,
            ..GetClusterInfoResponse::default()
        }))
    }

    type WatchClusterInfoStream = tonic::codegen::BoxStream<GetClusterInfoResponse>;

    async fn watch_cluster_info(
        &self,
        _: tonic::Request<GetClusterInfoRequest>,
    ) -> Result<tonic::Response<Self::WatchClusterInfoStream>, tonic::Status> {
        Err(tonic::Status::unimplemented("the command line doesn't watch"))
    }

    async fn get_collection_status(
        &self,
        request: tonic::Request<GetCollectionStatusRequest>,
    ) -> Result<tonic::Response<GetCollectionStatusResponse>, tonic::Status> {
        Ok(tonic::Response::new(GetCollectionStatusResponse {
            collection_name: request.into_inner().collection_name,
            partition_count: 4,
            active_partitions: 4,
            total_objects: self.lock().objects.len().try_into().unwrap_or_default(),
        }))
    }
}
