//! What clusters have: class runtimes, and among them those that nobody here knows.

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
    caller::{Admin, Viewer},
    problem::Answer,
    query::{Nothing, Query, limit},
};
use crate::{blocking::run_blocking, error::Error, service::RuntimeFilter};

/// What a list is narrowed to, and which part of it is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// The cluster.
    cluster: Option<String>,
    /// The package.
    package: Option<String>,
    /// The environment.
    environment: Option<String>,
    /// The deployment.
    deployment: Option<String>,
    /// `driven`, `orphan` or `foreign`.
    ownership: Option<String>,
    /// How much is wanted at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Where the page before said that the next begins.
    cursor: Option<String>,
}

/// The same for orphans, whose ownership is no question.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WantedOrphans {
    /// The cluster.
    cluster: Option<String>,
    /// The package.
    package: Option<String>,
    /// The environment.
    environment: Option<String>,
    /// The deployment.
    deployment: Option<String>,
    /// How much is wanted at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Where the page before said that the next begins.
    cursor: Option<String>,
}

fn page(app: &App, wanted: Wanted) -> Answer<Json<Page<ClassRuntime>>> {
    let Wanted { cluster, package, environment, deployment, ownership, limit: most, cursor } =
        wanted;
    if ownership.as_ref().is_some_and(|it| !["driven", "orphan", "foreign"].contains(&it.as_str()))
    {
        let message = "must be driven, orphan or foreign".to_owned();
        return Err(Error::Parameter { field: "ownership", message }.into());
    }
    let filter = RuntimeFilter { cluster, package, environment, deployment, ownership };
    Ok(Json(app.deployments.runtimes(&filter, cursor.as_deref(), limit(most)?)))
}

/// What clusters have, by cluster and id.
#[utoipa::path(
    get,
    path = "/api/v1/class-runtimes",
    tag = "clusters",
    params(Wanted),
    responses((status = 200, description = "A page of class runtimes", body = Page<ClassRuntime>)),
)]
pub(super) async fn list(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Page<ClassRuntime>>> {
    page(&app, wanted)
}

/// The same as `/api/v1/class-runtimes`.
#[utoipa::path(
    get,
    path = "/api/v1/deployment-records",
    tag = "clusters",
    params(Wanted),
    responses((status = 200, description = "A page of class runtimes", body = Page<ClassRuntime>)),
)]
pub(super) async fn list_records(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Page<ClassRuntime>>> {
    page(&app, wanted)
}

/// Where a class runtime is looked for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Where {
    /// The cluster; the first that has it, where none is said.
    cluster: Option<String>,
}

/// What a cluster has, by its id. A slash in an id is written as `%2F`.
#[utoipa::path(
    get,
    path = "/api/v1/class-runtimes/{id}",
    tag = "clusters",
    params(("id" = String, Path, description = "The class runtime"), Where),
    responses(
        (status = 200, description = "The class runtime", body = ClassRuntime),
        (status = 404, description = "No cluster has it"),
    ),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(id): Path<String>,
    Query(Where { cluster }): Query<Where>,
) -> Answer<Json<ClassRuntime>> {
    Ok(Json(app.deployments.runtime(&id, cluster.as_deref())?))
}

/// The same as `/api/v1/class-runtimes/{id}`.
#[utoipa::path(
    get,
    path = "/api/v1/deployment-records/{id}",
    tag = "clusters",
    params(("id" = String, Path, description = "The class runtime"), Where),
    responses(
        (status = 200, description = "The class runtime", body = ClassRuntime),
        (status = 404, description = "No cluster has it"),
    ),
)]
pub(super) async fn get_record(
    viewer: Viewer,
    app: State<App>,
    id: Path<String>,
    query: Query<Where>,
) -> Answer<Json<ClassRuntime>> {
    get(viewer, app, id, query).await
}

/// What clusters have of a package manager's that this one doesn't know.
#[utoipa::path(
    get,
    path = "/api/v1/orphans",
    tag = "clusters",
    params(WantedOrphans),
    responses((status = 200, description = "A page of orphans", body = Page<ClassRuntime>)),
)]
pub(super) async fn orphans(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<WantedOrphans>,
) -> Answer<Json<Page<ClassRuntime>>> {
    let WantedOrphans { cluster, package, environment, deployment, limit, cursor } = wanted;
    let ownership = Some("orphan".to_owned());
    page(&app, Wanted { cluster, package, environment, deployment, ownership, limit, cursor })
}

/// Has a deployment have an orphan, which goes on as it is.
#[utoipa::path(
    post,
    path = "/api/v1/orphans/{cluster}/{id}/adopt",
    tag = "clusters",
    params(
        ("cluster" = String, Path, description = "The cluster"),
        ("id" = String, Path, description = "The orphan"),
    ),
    request_body = Adoption,
    responses(
        (status = 200, description = "The deployment that has it", body = Deployment),
        (status = 404, description = "There is no such orphan"),
        (status = 409, description = "It isn't one that the deployment could have"),
    ),
)]
pub(super) async fn adopt(
    Admin(caller): Admin,
    State(app): State<App>,
    Path((cluster, id)): Path<(String, String)>,
    _: Query<Nothing>,
    Text(text): Text,
) -> Answer<Json<Deployment>> {
    let Adoption { deployment } = run_blocking(move || small(&text)).await??;
    if deployment.is_empty() {
        let message = "must name a deployment".to_owned();
        return Err(Error::Parameter { field: "deployment", message }.into());
    }
    Ok(Json(app.deployments.adopt(&cluster, &id, &deployment, &caller).await?))
}

/// Deletes an orphan from its cluster.
#[utoipa::path(
    delete,
    path = "/api/v1/orphans/{cluster}/{id}",
    tag = "clusters",
    params(
        ("cluster" = String, Path, description = "The cluster"),
        ("id" = String, Path, description = "The orphan"),
    ),
    responses(
        (status = 202, description = "The cluster deletes it"),
        (status = 404, description = "There is no such orphan"),
        (status = 409, description = "It is no orphan"),
    ),
)]
pub(super) async fn delete_orphan(
    Admin(caller): Admin,
    State(app): State<App>,
    Path((cluster, id)): Path<(String, String)>,
    _: Query<Nothing>,
) -> Answer<StatusCode> {
    app.deployments.delete_orphan(&cluster, &id, &caller).await?;
    Ok(StatusCode::ACCEPTED)
}
