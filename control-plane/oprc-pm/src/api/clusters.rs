//! Clusters.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use oprc_rest::{Cluster, Health, Page};

use super::{
    App, Failure,
    middleware::auth::{Admin, Viewer},
    problem::Answer,
    query::{NoParams, Query},
};
use crate::error::Error;

fn find(app: &App, name: &str) -> Answer<Cluster> {
    let found = app.deployments.clusters().into_iter().find(|cluster| cluster.name == name);
    Ok(found.ok_or_else(|| Error::not_found("cluster", name))?)
}

/// Lists clusters, ordered by name.
#[utoipa::path(
    get,
    path = "/api/v1/clusters",
    responses((status = 200, description = "All clusters", body = Page<Cluster>)),
)]
pub(super) async fn list(_: Viewer, State(app): State<App>) -> Json<Page<Cluster>> {
    Json(Page { items: app.deployments.clusters(), next: None })
}

/// Returns a cluster.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{name}",
    responses((status = 200, description = "The cluster", body = Cluster)),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<Json<Cluster>> {
    Ok(Json(find(&app, &name)?))
}

/// Removes PM's records of the units of a cluster that is no longer configured.
///
/// The units keep running on the cluster.
#[utoipa::path(
    delete,
    path = "/api/v1/clusters/{name}",
    responses(
        (status = 204, description = "The records were removed"),
        (status = 404, description = "The cluster has no units"),
        (status = 409, description = "The cluster is still configured"),
    ),
)]
pub(super) async fn forget(
    Admin(caller): Admin,
    State(app): State<App>,
    Path(name): Path<String>,
    _: Query<NoParams>,
) -> Answer<StatusCode> {
    app.deployments.forget_cluster(&name, &caller).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the health of a cluster: 200 if its CRM is reachable, 503 otherwise.
///
/// The status is also 200 if the health is DEGRADED.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{name}/health",
    responses(
        (status = 200, description = "The CRM of the cluster is reachable (HEALTHY or DEGRADED)",
            body = Cluster),
        (status = 503, description = "The CRM of the cluster is unreachable"),
    ),
)]
pub(super) async fn health(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<Json<Cluster>> {
    let cluster = find(&app, &name)?;
    if cluster.health == Health::Unreachable {
        let detail = format!("cluster {name} is unreachable: {}", cluster.message);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Failure::new(status, "CLUSTER_UNREACHABLE", detail).retry_after(5));
    }
    Ok(Json(cluster))
}
