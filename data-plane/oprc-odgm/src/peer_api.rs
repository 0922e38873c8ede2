//! The API that nodes of a grid serve to each other, over mutual TLS.

use std::sync::{Arc, OnceLock};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State as Shared},
    http::StatusCode,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::post,
};
use oprc_cp_storage::EtcdAdmin;
use oprc_server::{Access, require};

use crate::{
    Error, Grid,
    replica::{
        MISDIRECTED,
        cluster::Cluster,
        defragmentation::DefragmentOrder,
        join::{JoinRequest, admit},
        peer_client::MAX_BODY,
        peers::PingReply,
        roster::{Hello, Roster},
    },
    routed::{Answer, Operation},
};

/// What the calls of other nodes need. The grid opens later than the port.
#[derive(Clone, Debug)]
pub(crate) struct PeerApi {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) admin: EtcdAdmin,
    pub(crate) grid: Arc<OnceLock<Grid>>,
}

/// Only nodes with a certificate of the grid are served.
pub(crate) fn router(api: PeerApi) -> Router {
    Router::new()
        .route("/ping", post(ping))
        .route("/hello", post(hello))
        .route("/join", post(join))
        .route("/members", post(members))
        .route("/call", post(call))
        .route("/defragment", post(defragment))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(Access::new(true, None), require))
        .with_state(api)
}

fn unavailable(reason: &impl ToString) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, reason.to_string()).into_response()
}

async fn ping(Shared(api): Shared<PeerApi>) -> Json<PingReply> {
    let replica = api.grid.get().and_then(Grid::replica);
    let is_ready = replica.is_some_and(|it| it.is_ready());
    let space = replica.map(|it| it.space_report()).unwrap_or_default();
    Json(PingReply { is_ready, space })
}

async fn hello(Shared(api): Shared<PeerApi>, Json(hello): Json<Hello>) -> Response {
    match api.roster.hello(&hello) {
        Ok(reply) => Json(reply).into_response(),
        Err(error) => unavailable(&error),
    }
}

async fn join(Shared(api): Shared<PeerApi>, Json(request): Json<JoinRequest>) -> Response {
    match admit(&api.admin, api.cluster.desired(), &request).await {
        Ok(reply) => Json(reply).into_response(),
        Err(reason) => unavailable(&reason),
    }
}

/// The ids of all members, as a majority knows them.
async fn members(Shared(api): Shared<PeerApi>) -> Response {
    match api.admin.members(false).await {
        Ok(members) => Json(members.iter().map(|it| it.id).collect::<Vec<_>>()).into_response(),
        Err(error) => unavailable(&error),
    }
}

/// The leader orders this.
async fn defragment(Shared(api): Shared<PeerApi>, Json(order): Json<DefragmentOrder>) -> Response {
    let Some(grid) = api.grid.get().cloned() else { return unavailable(&"the node is starting") };
    // etcd continues even if the other node disconnects.
    let work = tokio::spawn(async move {
        let Some(replica) = grid.replica() else { return Err("the grid has one node".to_owned()) };
        replica.defragment(&api.admin, &order).await
    });
    match work.await {
        Ok(Ok(())) => Json(()).into_response(),
        Ok(Err(reason)) => unavailable(&reason),
        Err(error) => unavailable(&error),
    }
}

async fn call(Shared(api): Shared<PeerApi>, Json(operation): Json<Operation>) -> Response {
    let Some(grid) = api.grid.get().cloned() else { return unavailable(&"the node is starting") };
    // The work is finished even if the other node disconnects.
    let work = tokio::spawn(async move {
        let Some(replica) = grid.replica() else { return Ok(None) };
        grid.execute_forwarded(replica, operation).await
    });
    match work.await {
        Ok(Ok(None)) => StatusCode::from_u16(MISDIRECTED)
            .unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            .into_response(),
        Ok(Ok(Some(answer))) => Json(Ok::<_, Error>(answer)).into_response(),
        Ok(Err(error)) => Json(Err::<Answer, _>(error)).into_response(),
        // It may have been executed.
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
