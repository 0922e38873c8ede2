//! ClassRuntimes of all clusters, and orphans among them.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use oprc_rest::{Adoption, ClassRuntime, Deployment, Page};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App,
    body::{Text, small},
    middleware::auth::{Admin, Viewer},
    problem::Answer,
    query::{NoParams, Query},
};
use crate::{blocking::run_blocking, error::Error, paging::page_size, service::RuntimeFilter};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListParams {
    /// Only ClassRuntimes on this cluster.
    cluster: Option<String>,
    /// Only ClassRuntimes of this package.
    package: Option<String>,
    /// Only ClassRuntimes in this environment.
    environment: Option<String>,
    /// Only ClassRuntimes of this deployment.
    deployment: Option<String>,
    /// Only ClassRuntimes with this ownership: `managed`, `orphan` or `unmanaged`.
    ownership: Option<String>,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page.
    cursor: Option<String>,
}

/// [`ListParams`] without `ownership`.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct OrphanListParams {
    /// Only ClassRuntimes on this cluster.
    cluster: Option<String>,
    /// Only ClassRuntimes of this package.
    package: Option<String>,
    /// Only ClassRuntimes in this environment.
    environment: Option<String>,
    /// Only ClassRuntimes of this deployment.
    deployment: Option<String>,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page.
    cursor: Option<String>,
}

fn page(app: &App, params: ListParams) -> Answer<Json<Page<ClassRuntime>>> {
    let ListParams { cluster, package, environment, deployment, ownership, limit, cursor } = params;
    if ownership
        .as_ref()
        .is_some_and(|it| !["managed", "orphan", "unmanaged"].contains(&it.as_str()))
    {
        return Err(Error::parameter("ownership", "must be managed, orphan or unmanaged").into());
    }
    let filter = RuntimeFilter { cluster, package, environment, deployment, ownership };
    Ok(Json(app.deployments.class_runtimes(&filter, cursor.as_deref(), page_size(limit)?)))
}

/// Lists ClassRuntimes, ordered by cluster and id.
#[utoipa::path(
    get,
    path = "/api/v1/class-runtimes",
    params(ListParams),
    responses((status = 200, description = "A page of ClassRuntimes", body = Page<ClassRuntime>)),
)]
pub(super) async fn list(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<ListParams>,
) -> Answer<Json<Page<ClassRuntime>>> {
    page(&app, params)
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClusterParams {
    /// Name of the cluster; the default is the first cluster that contains the ClassRuntime.
    cluster: Option<String>,
}

/// Returns a ClassRuntime by its id, with its latest measurements. Encode a slash in the id as `%2F`.
#[utoipa::path(
    get,
    path = "/api/v1/class-runtimes/{id}",
    params(ClusterParams),
    responses((status = 200, description = "The ClassRuntime", body = ClassRuntime)),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(id): Path<String>,
    Query(ClusterParams { cluster }): Query<ClusterParams>,
) -> Answer<Json<ClassRuntime>> {
    Ok(Json(app.deployments.class_runtime(&id, cluster.as_deref()).await?))
}

/// Lists orphans: ClassRuntimes created by a package manager but unknown to this one.
#[utoipa::path(
    get,
    path = "/api/v1/orphans",
    params(OrphanListParams),
    responses((status = 200, description = "A page of orphans", body = Page<ClassRuntime>)),
)]
pub(super) async fn orphans(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<OrphanListParams>,
) -> Answer<Json<Page<ClassRuntime>>> {
    let OrphanListParams { cluster, package, environment, deployment, limit, cursor } = params;
    let ownership = Some("orphan".to_owned());
    page(&app, ListParams { cluster, package, environment, deployment, ownership, limit, cursor })
}

/// Adopts an orphan into a deployment without changing it.
#[utoipa::path(
    post,
    path = "/api/v1/orphans/{cluster}/{id}/adopt",
    request_body = Adoption,
    responses(
        (status = 200, description = "The deployment, with the adopted unit", body = Deployment),
        (status = 409, description = "The deployment can't adopt the orphan, because of its state or \
            environments"),
    ),
)]
pub(super) async fn adopt(
    Admin(caller): Admin,
    State(app): State<App>,
    Path((cluster, id)): Path<(String, String)>,
    _: Query<NoParams>,
    Text(text): Text,
) -> Answer<Json<Deployment>> {
    let Adoption { deployment } = run_blocking(move || small(&text, "deployment")).await??;
    if deployment.is_empty() {
        return Err(Error::parameter("deployment", "must name a deployment").into());
    }
    Ok(Json(app.deployments.adopt(&cluster, &id, &deployment, &caller).await?))
}

/// Deletes an orphan from its cluster.
#[utoipa::path(
    delete,
    path = "/api/v1/orphans/{cluster}/{id}",
    responses(
        (status = 202, description = "Deletion was accepted"),
        (status = 409, description = "The ClassRuntime is not an orphan"),
    ),
)]
pub(super) async fn delete_orphan(
    Admin(caller): Admin,
    State(app): State<App>,
    Path((cluster, id)): Path<(String, String)>,
    _: Query<NoParams>,
) -> Answer<StatusCode> {
    app.deployments.delete_orphan(&cluster, &id, &caller).await?;
    Ok(StatusCode::ACCEPTED)
}
