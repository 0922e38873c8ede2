//! Deployments, plans and revisions.

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use oprc_models::{Body, Document, OClassDeployment};
use oprc_rest::{Deployment, DeploymentStatus, Page, Plan, Revision, Rollback, UnitGrid};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    App,
    body::{Text, small},
    etag::{Conditions, tagged},
    middleware::auth::{Deployer, Viewer},
    packages::documents,
    problem::{Answer, Failure},
    query::{NoParams, Query},
};
use crate::{
    blocking::run_blocking,
    error::Error,
    paging::page_size,
    service::{DeploymentFilter, Precondition},
};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListParams {
    /// Only deployments whose key has this prefix.
    prefix: Option<String>,
    /// Only deployments of this package.
    package: Option<String>,
    /// Only deployments in this condition, such as `RUNNING`.
    condition: Option<String>,
    /// Only deployments with units on this cluster.
    cluster: Option<String>,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page.
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DryRunParams {
    /// Validates the request and returns the plan without storing anything. Alias: `dryRun`.
    #[serde(alias = "dryRun")]
    #[param(required = false)]
    dry_run: bool,
}

/// The response of a write: the deployment, or its plan for a dry run.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Applied {
    Deployment(Box<Deployment>),
    Plan(Plan),
}

/// Parses a body that holds one valid deployment.
fn parse_deployment(text: &str) -> Answer<OClassDeployment> {
    match parse_with_packages(text)? {
        (deployment, packages) if packages.is_empty() => Ok(deployment),
        _ => Err(Failure::invalid(
            "The body contains a package. Publish packages with POST /api/v1/packages.",
        )),
    }
}

/// Parses a body that holds one valid deployment and any number of packages.
fn parse_with_packages(text: &str) -> Answer<(OClassDeployment, Vec<Document>)> {
    let (mut found, mut packages) = (None, Vec::new());
    for document in documents(text)? {
        if matches!(document.body, Body::Package(_)) {
            packages.push(document);
            continue;
        }
        document.check().map_err(Error::from)?;
        if let Body::Deployment(deployment) = document.body
            && found.replace(*deployment).is_some()
        {
            return Err(Failure::invalid(
                "The body contains more than one deployment. Send one per request.",
            ));
        }
    }
    let none = "The body contains no deployment. Publish packages with POST /api/v1/packages.";
    Ok((found.ok_or_else(|| Failure::invalid(none))?, packages))
}

fn respond(status: StatusCode, deployment: Deployment) -> Response {
    let location = format!("/api/v1/deployments/{}", deployment.deployment.key);
    let revision = deployment.revision.clone();
    let document = Applied::Deployment(Box::new(deployment));
    let mut response = tagged(&revision, &Conditions::default(), &document);
    *response.status_mut() = status;
    if status == StatusCode::CREATED
        && let Ok(location) = HeaderValue::from_str(&location)
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn respond_with_plan(plan: Result<Plan, Error>) -> Answer<Response> {
    Ok(Json(Applied::Plan(plan?)).into_response())
}

/// Lists deployments, ordered by key.
#[utoipa::path(
    get,
    path = "/api/v1/deployments",
    params(ListParams),
    responses((status = 200, description = "A page of deployments", body = Page<Deployment>)),
)]
pub(super) async fn list(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<ListParams>,
) -> Answer<Json<Page<Deployment>>> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let condition = given(params.condition).map(|word| {
        let message = format!("unknown condition {word:?}");
        serde_json::from_value(word.into()).map_err(|_| Error::parameter("condition", message))
    });
    let filter = DeploymentFilter {
        prefix: given(params.prefix),
        package: given(params.package),
        cluster: given(params.cluster),
        condition: condition.transpose()?,
    };
    let limit = page_size(params.limit)?;
    Ok(Json(app.deployments.list(&filter, params.cursor.as_deref(), limit)))
}

/// Creates a deployment.
///
/// The deployment is stored before the response is sent. It is rolled out to the clusters
/// afterwards; follow its status.
#[utoipa::path(
    post,
    path = "/api/v1/deployments",
    params(DryRunParams),
    request_body(
        content((OClassDeployment = "application/json"), (OClassDeployment = "application/yaml"))
    ),
    responses(
        (status = 200, description = "The plan (`dry_run`)", body = Plan),
        (status = 201, description = "The deployment was stored", body = Deployment),
        (status = 404, description = "The package or version was not found"),
        (status = 409, description = "The deployment exists, or no plan satisfies it"),
    ),
)]
pub(super) async fn create(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Query(params): Query<DryRunParams>,
    Text(text): Text,
) -> Answer<Response> {
    let deployment = run_blocking(move || parse_deployment(&text)).await??;
    if params.dry_run {
        let plan = app.deployments.plan_upsert(&deployment, &Precondition::Absent, &caller).await;
        return respond_with_plan(plan);
    }
    let deployment = app.deployments.create(deployment, &caller).await?;
    Ok(respond(StatusCode::CREATED, deployment))
}

/// Returns the plan of a deployment without storing anything.
///
/// The body may also contain packages, as YAML with several documents; they are treated as if they
/// were published.
#[utoipa::path(
    post,
    path = "/api/v1/plan",
    request_body(
        content((OClassDeployment = "application/json"), (OClassDeployment = "application/yaml"))
    ),
    responses(
        (status = 200, description = "The plan", body = Plan),
        (status = 404, description = "The package or version was not found"),
        (status = 409, description = "No plan satisfies the deployment"),
    ),
)]
pub(super) async fn plan(
    _: Viewer,
    State(app): State<App>,
    _: Query<NoParams>,
    Text(text): Text,
) -> Answer<Json<Plan>> {
    let (deployment, packages) = run_blocking(move || parse_with_packages(&text)).await??;
    Ok(Json(app.deployments.plan(&deployment, &packages).await?))
}

/// Returns a deployment.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}",
    responses((status = 200, description = "The deployment", body = Deployment)),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Response> {
    app.deployments.refresh_measurements(&key).await;
    // The status changes within a revision, so the ETag isn't compared.
    let deployment = app.deployments.get(&key)?;
    Ok(respond(StatusCode::OK, deployment))
}

/// Creates or updates a deployment.
///
/// With `If-Match`, only that revision is updated. With `If-None-Match: *`, the deployment is only
/// created.
#[utoipa::path(
    put,
    path = "/api/v1/deployments/{key}",
    params(
        DryRunParams,
        ("If-Match" = Option<String>, Header,
            description = "ETag that the deployment must currently have, or `*` for any"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: create only"),
    ),
    request_body(
        content((OClassDeployment = "application/json"), (OClassDeployment = "application/yaml"))
    ),
    responses(
        (status = 200, description = "The deployment, updated or unchanged; or the plan (`dry_run`)",
            body = Applied),
        (status = 201, description = "The deployment was created", body = Deployment),
        (status = 404, description = "The package or version was not found"),
        (status = 409, description = "No plan satisfies the deployment, or it is being deleted"),
    ),
)]
pub(super) async fn put(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path(key): Path<String>,
    conditions: Conditions,
    Query(params): Query<DryRunParams>,
    Text(text): Text,
) -> Answer<Response> {
    let deployment = run_blocking(move || parse_deployment(&text)).await??;
    if deployment.key != key {
        let own = deployment.key;
        let detail = format!("The body has key {own:?}, the path has {key:?}. They must be equal.");
        return Err(Failure::invalid(detail));
    }
    let precondition = conditions.precondition();
    let as_precondition = |error| match error {
        // `If-None-Match: *` failed.
        Error::Conflict { reason: "EXISTS", .. } => Error::Changed("present".to_owned()),
        error => error,
    };
    if params.dry_run {
        let plan = app.deployments.plan_upsert(&deployment, &precondition, &caller).await;
        return respond_with_plan(plan.map_err(as_precondition));
    }
    let applied = app.deployments.upsert(deployment, &precondition, &caller).await;
    let (deployment, created) = applied.map_err(as_precondition)?;
    Ok(respond(if created { StatusCode::CREATED } else { StatusCode::OK }, deployment))
}

/// Deletes a deployment.
///
/// Deletion is asynchronous: the deployment disappears once all of its units are deleted from their
/// clusters.
#[utoipa::path(
    delete,
    path = "/api/v1/deployments/{key}",
    params(
        ("If-Match" = Option<String>, Header,
            description = "ETag that the deployment must currently have"),
    ),
    responses(
        (status = 202, description = "Deletion was accepted", body = Deployment),
        (status = 409, description = "Concurrent updates; retry"),
    ),
)]
pub(super) async fn delete(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path(key): Path<String>,
    conditions: Conditions,
    _: Query<NoParams>,
) -> Answer<Response> {
    let precondition = conditions.precondition();
    let deployment = app.deployments.delete(&key, precondition.revision(), &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(deployment)).into_response())
}

/// Returns the status of a deployment.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}/status",
    responses((status = 200, description = "The status", body = DeploymentStatus)),
)]
pub(super) async fn status(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Json<DeploymentStatus>> {
    app.deployments.refresh_measurements(&key).await;
    Ok(Json(app.deployments.status(&key)?))
}

/// Lists the data grids of a deployment: one for each unit whose class has state.
///
/// Each grid is queried for this request. The item of one that doesn't respond has an `error`.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}/grid",
    responses((status = 200, description = "The data grids", body = Page<UnitGrid>)),
)]
pub(super) async fn grid(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Json<Page<UnitGrid>>> {
    Ok(Json(Page { items: app.deployments.grids(&key).await?, next: None }))
}

/// Lists the revisions of a deployment, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}/history",
    responses((status = 200, description = "The revisions", body = Page<Revision>)),
)]
pub(super) async fn history(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Json<Page<Revision>>> {
    Ok(Json(Page { items: app.deployments.history(&key).await?, next: None }))
}

/// Rolls a deployment back to an earlier revision, as a new revision.
#[utoipa::path(
    post,
    path = "/api/v1/deployments/{key}/rollback",
    params(
        ("If-Match" = Option<String>, Header,
            description = "ETag that the deployment must currently have"),
    ),
    request_body = Rollback,
    responses(
        (status = 200, description = "The deployment was stored", body = Deployment),
        (status = 404, description = "The deployment or revision was not found"),
        (status = 409, description = "No plan satisfies the earlier revision"),
    ),
)]
pub(super) async fn rollback(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path(key): Path<String>,
    conditions: Conditions,
    _: Query<NoParams>,
    Text(text): Text,
) -> Answer<Response> {
    let Rollback { revision } = run_blocking(move || small(&text, "revision")).await??;
    let precondition = conditions.precondition();
    let (deployments, to) = (&app.deployments, revision.as_deref());
    let back = deployments.rollback(&key, to, precondition.revision(), &caller).await?;
    Ok(respond(StatusCode::OK, back))
}
