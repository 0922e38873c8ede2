//! Deployments: what is wanted, and how it is.

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use oprc_models::{Body, Document, OClassDeployment};
use oprc_rest::{Deployment, DeploymentStatus, Page, Plan, Revision, Rollback};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    App, Expected,
    body::{Text, small},
    caller::{Deployer, Viewer},
    conditional::{Conditions, tagged},
    packages::documents,
    problem::{Answer, Failure},
    query::{Nothing, Query, limit},
};
use crate::{blocking::run_blocking, error::Error, service::DeploymentFilter};

/// What a list is narrowed to, and which part of it is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// How the key begins.
    prefix: Option<String>,
    /// The package.
    package: Option<String>,
    /// How it is, such as `RUNNING`.
    condition: Option<String>,
    /// A cluster that it goes to.
    cluster: Option<String>,
    /// How much is wanted at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Where the page before said that the next begins.
    cursor: Option<String>,
}

/// How a change is made.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct How {
    /// Whether nothing is to be stored: the answer is the plan that would be, refused where that
    /// would be. `dryRun` says the same.
    #[serde(alias = "dryRun")]
    dry_run: Option<bool>,
}

impl How {
    fn is_dry(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }
}

/// What a change is answered with: the deployment, or what it would come to.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Applied {
    /// What is stored.
    Deployment(Box<Deployment>),
    /// What would be.
    Plan(Plan),
}

/// The one deployment of a body, checked for itself.
fn one(text: &str) -> Answer<OClassDeployment> {
    match one_of(text)? {
        (deployment, packages) if packages.is_empty() => Ok(deployment),
        _ => Err(wrong("There is a package in the body: those go to /api/v1/packages.")),
    }
}

/// The one deployment of a body, checked for itself, and the packages beside it.
fn one_of(text: &str) -> Answer<(OClassDeployment, Vec<Document>)> {
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
            return Err(wrong("There must be one deployment in the body, and no more."));
        }
    }
    match found {
        Some(deployment) => Ok((deployment, packages)),
        None => Err(wrong("There is no deployment in the body. Packages go to /api/v1/packages.")),
    }
}

fn wrong(detail: &str) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_DOCUMENT", detail)
}

fn expected(conditions: &Conditions) -> Answer<Expected> {
    Ok(Expected {
        revision: conditions.expected()?.map(str::to_owned),
        some: conditions.must_exist,
        none: conditions.must_not_exist,
    })
}

fn answer(status: StatusCode, deployment: Deployment) -> Response {
    let place = format!("/api/v1/deployments/{}", deployment.deployment.key);
    let revision = deployment.revision.clone();
    let document = Applied::Deployment(Box::new(deployment));
    let mut response = tagged(&revision, &Conditions::default(), &document);
    *response.status_mut() = status;
    if status == StatusCode::CREATED
        && let Ok(place) = HeaderValue::from_str(&place)
    {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn dry(plan: Result<Plan, Error>) -> Answer<Response> {
    Ok(Json(Applied::Plan(plan?)).into_response())
}

/// Deployments, by key.
#[utoipa::path(
    get,
    path = "/api/v1/deployments",
    tag = "deployments",
    params(Wanted),
    responses((status = 200, description = "A page of deployments", body = Page<Deployment>)),
)]
pub(super) async fn list(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Page<Deployment>>> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let condition = given(wanted.condition).map(|word| {
        let message = format!("there is no condition {word:?}");
        serde_json::from_value(word.into())
            .map_err(|_| Error::Parameter { field: "condition", message })
    });
    let filter = DeploymentFilter {
        prefix: given(wanted.prefix),
        package: given(wanted.package),
        cluster: given(wanted.cluster),
        condition: condition.transpose()?,
    };
    let limit = limit(wanted.limit)?;
    Ok(Json(app.deployments.list(&filter, wanted.cursor.as_deref(), limit)))
}

/// Makes a deployment. It is stored when this is answered, and clusters are brought to it then.
#[utoipa::path(
    post,
    path = "/api/v1/deployments",
    tag = "deployments",
    params(How),
    request_body(
        content((OClassDeployment = "application/json"), (OClassDeployment = "application/yaml"))
    ),
    responses(
        (status = 200, description = "What it would come to (`dry_run`)", body = Plan),
        (status = 201, description = "Stored", body = Deployment),
        (status = 404, description = "There is no such package or version"),
        (status = 409, description = "There is one already, or it can't be planned"),
    ),
)]
pub(super) async fn create(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Query(how): Query<How>,
    Text(text): Text,
) -> Answer<Response> {
    let deployment = run_blocking(move || one(&text)).await??;
    let expected = Expected { none: true, ..Expected::default() };
    if how.is_dry() {
        return dry(app.deployments.try_out(&deployment, &expected, &caller).await);
    }
    let (deployment, _) = app.deployments.apply(deployment, &expected, &caller).await?;
    Ok(answer(StatusCode::CREATED, deployment))
}

/// What a deployment would come to, and why; nothing is changed. Packages may stand beside it, in
/// YAML of several documents: they count as if they were published.
#[utoipa::path(
    post,
    path = "/api/v1/plan",
    tag = "deployments",
    request_body(
        content((OClassDeployment = "application/json"), (OClassDeployment = "application/yaml"))
    ),
    responses(
        (status = 200, description = "The plan", body = Plan),
        (status = 404, description = "There is no such package or version"),
        (status = 409, description = "It can't be planned"),
    ),
)]
pub(super) async fn plan(
    _: Viewer,
    State(app): State<App>,
    _: Query<Nothing>,
    Text(text): Text,
) -> Answer<Json<Plan>> {
    let (deployment, packages) = run_blocking(move || one_of(&text)).await??;
    Ok(Json(app.deployments.plan(&deployment, &packages).await?))
}

/// A deployment.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}",
    tag = "deployments",
    params(("key" = String, Path, description = "The deployment")),
    responses(
        (status = 200, description = "The deployment", body = Deployment),
        (status = 404, description = "There is no such deployment"),
    ),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Response> {
    // Its status changes within a revision: it is sent each time.
    let deployment = app.deployments.get(&key)?;
    Ok(answer(StatusCode::OK, deployment))
}

/// Makes a deployment or changes it. If-Match has it change one revision only, `If-None-Match: *`
/// has it make one only.
#[utoipa::path(
    put,
    path = "/api/v1/deployments/{key}",
    tag = "deployments",
    params(
        ("key" = String, Path, description = "The deployment"),
        How,
        ("If-Match" = Option<String>, Header, description = "The revision to change"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none"),
    ),
    request_body(
        content((OClassDeployment = "application/json"), (OClassDeployment = "application/yaml"))
    ),
    responses(
        (status = 200, description = "Changed, or unchanged; or what it would come to (`dry_run`)",
            body = Applied),
        (status = 201, description = "Made", body = Deployment),
        (status = 404, description = "There is no such package or version"),
        (status = 409, description = "It can't be planned, or is being taken away"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn put(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path(key): Path<String>,
    conditions: Conditions,
    Query(how): Query<How>,
    Text(text): Text,
) -> Answer<Response> {
    let deployment = run_blocking(move || one(&text)).await??;
    if deployment.key != key {
        let detail = format!("The body is of {:?}, the path of {key:?}.", deployment.key);
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Failure::new(status, "INVALID_DOCUMENT", detail));
    }
    let expected = expected(&conditions)?;
    let refusal = |error| match error {
        // It was to be made only if there is none.
        Error::Conflict { reason: "EXISTS", .. } => Error::Changed("one".to_owned()),
        error => error,
    };
    if how.is_dry() {
        let plan = app.deployments.try_out(&deployment, &expected, &caller).await;
        return dry(plan.map_err(refusal));
    }
    let applied = app.deployments.apply(deployment, &expected, &caller).await;
    let (deployment, made) = applied.map_err(refusal)?;
    Ok(answer(if made { StatusCode::CREATED } else { StatusCode::OK }, deployment))
}

/// Has a deployment be taken away. It is gone once its clusters have nothing of it any more.
#[utoipa::path(
    delete,
    path = "/api/v1/deployments/{key}",
    tag = "deployments",
    params(
        ("key" = String, Path, description = "The deployment"),
        ("If-Match" = Option<String>, Header, description = "The revision to take away"),
    ),
    responses(
        (status = 202, description = "It is being taken away", body = Deployment),
        (status = 404, description = "There is no such deployment"),
        (status = 409, description = "Others change it all the time"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn delete(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path(key): Path<String>,
    conditions: Conditions,
    _: Query<Nothing>,
) -> Answer<Response> {
    let deployment = app.deployments.delete(&key, &expected(&conditions)?, &caller).await?;
    Ok((StatusCode::ACCEPTED, Json(deployment)).into_response())
}

/// How a deployment is.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}/status",
    tag = "deployments",
    params(("key" = String, Path, description = "The deployment")),
    responses(
        (status = 200, description = "How it is", body = DeploymentStatus),
        (status = 404, description = "There is no such deployment"),
    ),
)]
pub(super) async fn status(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Json<DeploymentStatus>> {
    Ok(Json(app.deployments.status(&key)?))
}

/// What was wanted, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/deployments/{key}/history",
    tag = "deployments",
    params(("key" = String, Path, description = "The deployment")),
    responses(
        (status = 200, description = "Its revisions", body = Page<Revision>),
        (status = 404, description = "There is no such deployment"),
    ),
)]
pub(super) async fn history(
    _: Viewer,
    State(app): State<App>,
    Path(key): Path<String>,
) -> Answer<Json<Page<Revision>>> {
    Ok(Json(Page { items: app.deployments.history(&key).await?, next: None }))
}

/// Goes back to a former revision, as a new one.
#[utoipa::path(
    post,
    path = "/api/v1/deployments/{key}/rollback",
    tag = "deployments",
    params(
        ("key" = String, Path, description = "The deployment"),
        ("If-Match" = Option<String>, Header, description = "The revision to go back from"),
    ),
    request_body = Rollback,
    responses(
        (status = 200, description = "Stored", body = Deployment),
        (status = 404, description = "There is no such deployment or revision"),
        (status = 409, description = "There is nothing to go back to, or it can't be planned"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn rollback(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path(key): Path<String>,
    conditions: Conditions,
    _: Query<Nothing>,
    Text(text): Text,
) -> Answer<Response> {
    let Rollback { revision } = run_blocking(move || small(&text)).await??;
    let expected = expected(&conditions)?;
    let deployments = &app.deployments;
    let back = deployments.rollback(&key, revision.as_deref(), &expected, &caller).await?;
    Ok(answer(StatusCode::OK, back))
}
