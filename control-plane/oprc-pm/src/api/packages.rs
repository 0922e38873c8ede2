//! Packages, their versions, and the catalogue of classes and functions.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use oprc_models::{Body, Document, OPackage};
use oprc_rest::{
    ClassEntry, Deprecation, FunctionEntry, FunctionStatus, PackageSummary, PackageVersion, Page,
    Published, VersionSummary,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    App,
    body::{Text, small},
    etag::{Conditions, tagged},
    middleware::auth::{Admin, Deployer, Viewer},
    problem::{Answer, Failure},
    query::{NoParams, Query},
};
use crate::{
    blocking::run_blocking,
    registry::{Filter, Paging, etag, labels},
};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListParams {
    /// Only packages whose name has this prefix.
    prefix: Option<String>,
    /// Only the package with this name.
    package: Option<String>,
    /// Version of the package; requires `package`. Defaults to the latest version. The list of
    /// packages can be filtered by version without `package`.
    version: Option<String>,
    /// Only packages with all of these tags, separated by commas.
    tags: Option<String>,
    /// Label selector, such as `team=geometry,tier`.
    labels: Option<String>,
    /// Words to search for in names, descriptions and tags.
    q: Option<String>,
    /// Maximum number of items to return.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// The `next` value of the previous page.
    cursor: Option<String>,
}

impl ListParams {
    fn parse(self) -> Answer<(Filter, Paging)> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let tags = given(self.tags).unwrap_or_default();
        let tags = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
        let filter = Filter {
            prefix: given(self.prefix),
            package: given(self.package),
            version: given(self.version),
            tags: tags.map(str::to_owned).collect(),
            labels: given(self.labels).as_deref().map(labels).transpose()?.unwrap_or_default(),
            text: given(self.q),
        };
        Ok((filter, Paging { after: self.cursor, limit: self.limit }))
    }
}

pub(super) fn documents(text: &str) -> Answer<Vec<Document>> {
    Ok(oprc_models::parse(text, "body").map_err(crate::error::Error::from)?)
}

/// Parses a body that holds packages only.
fn only_packages(text: &str) -> Answer<Vec<Document>> {
    let documents = documents(text)?;
    if documents.iter().any(|it| matches!(it.body, Body::Deployment(_))) {
        return Err(Failure::invalid(
            "The body contains a deployment. Create deployments with POST /api/v1/deployments.",
        ));
    }
    if documents.is_empty() {
        return Err(Failure::invalid("The body contains no package."));
    }
    Ok(documents)
}

/// Lists packages, ordered by name.
#[utoipa::path(
    get,
    path = "/api/v1/packages",
    params(ListParams),
    responses((status = 200, description = "A page of packages", body = Page<PackageSummary>)),
)]
pub(super) async fn list(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<ListParams>,
) -> Answer<Json<Page<PackageSummary>>> {
    let (filter, paging) = params.parse()?;
    Ok(Json(app.registry.list(&filter, &paging)?))
}

/// Publishes all packages in the request body atomically.
///
/// Versions are immutable: publishing the same content again succeeds, other content is rejected
/// with `VERSION_EXISTS`.
#[utoipa::path(
    post,
    path = "/api/v1/packages",
    request_body(content((OPackage = "application/json"), (OPackage = "application/yaml"))),
    responses(
        (status = 200, description = "All versions were already published", body = Vec<Published>),
        (status = 201, description = "The packages were published", body = Vec<Published>),
        (status = 404, description = "A dependency was not found"),
        (status = 409, description = "The version exists with other content"),
    ),
)]
pub(super) async fn publish(
    Deployer(caller): Deployer,
    State(app): State<App>,
    _: Query<NoParams>,
    Text(text): Text,
) -> Answer<Response> {
    let documents = run_blocking(move || only_packages(&text)).await??;
    let published = app.registry.publish(&documents, caller.name.as_deref()).await?;
    let mut created = false;
    for it in published.iter().filter(|it| !it.unchanged) {
        created = true;
        publish_event(&app, "package.published", &it.name, &it.version, &caller.correlation_id);
    }
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(published)).into_response())
}

fn publish_event(app: &App, kind: &str, name: &str, version: &str, correlation_id: &str) {
    app.deployments.events.publish(oprc_rest::Event {
        kind: kind.to_owned(),
        subject: name.to_owned(),
        message: version.to_owned(),
        correlation_id: correlation_id.to_owned(),
        ..oprc_rest::Event::default()
    });
}

/// Validates packages and deployments without storing anything.
#[utoipa::path(
    post,
    path = "/api/v1/validate",
    request_body(content((OPackage = "application/json"), (OPackage = "application/yaml"))),
    responses(
        (status = 200, description = "The documents are valid", body = Vec<Published>),
        (status = 404, description = "A dependency was not found"),
        (status = 409, description = "The version exists with other content"),
    ),
)]
pub(super) async fn validate(
    _: Viewer,
    State(app): State<App>,
    _: Query<NoParams>,
    Text(text): Text,
) -> Answer<Json<Vec<Published>>> {
    let check = move || -> Answer<_> { Ok(app.registry.validate(&documents(&text)?)?) };
    Ok(Json(run_blocking(check).await??))
}

/// Returns a package.
#[utoipa::path(
    get,
    path = "/api/v1/packages/{name}",
    params(("If-None-Match" = Option<String>, Header, description = "ETag of the cached version")),
    responses((status = 200, description = "The package", body = PackageSummary)),
)]
pub(super) async fn get(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
    conditions: Conditions,
) -> Answer<Response> {
    let (package, tag) = app.registry.package(&name)?;
    Ok(tagged(&tag, &conditions, &package))
}

/// Deletes a package that nothing uses.
#[utoipa::path(
    delete,
    path = "/api/v1/packages/{name}",
    params(
        ("If-Match" = Option<String>, Header, description = "ETag that the stored version must have"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "The package is in use; `blockers` lists the users"),
    ),
)]
pub(super) async fn delete(
    Admin(caller): Admin,
    State(app): State<App>,
    Path(name): Path<String>,
    conditions: Conditions,
    _: Query<NoParams>,
) -> Answer<StatusCode> {
    app.registry.delete_package(&name, conditions.required_tag()).await?;
    publish_event(&app, "package.deleted", &name, "", &caller.correlation_id);
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the versions of a package, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/packages/{name}/versions",
    responses((status = 200, description = "The versions", body = Vec<VersionSummary>)),
)]
pub(super) async fn versions(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<Json<Vec<VersionSummary>>> {
    Ok(Json(app.registry.versions(&name)?))
}

/// Returns a version of a package.
#[utoipa::path(
    get,
    path = "/api/v1/packages/{name}/versions/{version}",
    params(
        ("version" = String, Path, description = "The version, or `latest`"),
        ("If-None-Match" = Option<String>, Header, description = "ETag of the cached version"),
    ),
    responses((status = 200, description = "The version", body = PackageVersion)),
)]
pub(super) async fn get_version(
    _: Viewer,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
) -> Answer<Response> {
    let found = match version.as_str() {
        "latest" => app.registry.find(&name, None)?,
        version => app.registry.version(&name, version)?,
    };
    Ok(tagged(&etag(&found), &conditions, &*found))
}

/// Deletes a version that nothing uses.
#[utoipa::path(
    delete,
    path = "/api/v1/packages/{name}/versions/{version}",
    params(
        ("If-Match" = Option<String>, Header, description = "ETag that the stored version must have"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 409, description = "The package is in use; `blockers` lists the users"),
    ),
)]
pub(super) async fn delete_version(
    Admin(caller): Admin,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
    _: Query<NoParams>,
) -> Answer<StatusCode> {
    app.registry.delete_version(&name, &version, conditions.required_tag()).await?;
    publish_event(&app, "package.deleted", &name, &version, &caller.correlation_id);
    Ok(StatusCode::NO_CONTENT)
}

/// Deprecates a version.
#[utoipa::path(
    put,
    path = "/api/v1/packages/{name}/versions/{version}/deprecation",
    params(
        ("If-Match" = Option<String>, Header, description = "ETag that the stored version must have"),
    ),
    request_body = Deprecation,
    responses(
        (status = 200, description = "The deprecated version", body = PackageVersion),
        (status = 409, description = "Concurrent updates; retry"),
    ),
)]
pub(super) async fn deprecate(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
    _: Query<NoParams>,
    Text(text): Text,
) -> Answer<Response> {
    let Deprecation { reason } = run_blocking(move || small(&text, "reason")).await??;
    let expected = conditions.required_tag();
    let changed = app.registry.deprecate(&name, &version, Some(&reason), expected).await?;
    publish_event(&app, "package.deprecated", &name, &version, &caller.correlation_id);
    Ok(tagged(&etag(&changed), &Conditions::default(), &changed))
}

/// Removes the deprecation of a version.
#[utoipa::path(
    delete,
    path = "/api/v1/packages/{name}/versions/{version}/deprecation",
    params(
        ("If-Match" = Option<String>, Header, description = "ETag that the stored version must have"),
    ),
    responses(
        (status = 200, description = "The version, no longer deprecated", body = PackageVersion),
        (status = 409, description = "Concurrent updates; retry"),
    ),
)]
pub(super) async fn undeprecate(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
    _: Query<NoParams>,
) -> Answer<Response> {
    let changed = app.registry.deprecate(&name, &version, None, conditions.required_tag()).await?;
    publish_event(&app, "package.undeprecated", &name, &version, &caller.correlation_id);
    Ok(tagged(&etag(&changed), &Conditions::default(), &changed))
}

/// Lists the classes of packages, in their latest version by default.
#[utoipa::path(
    get,
    path = "/api/v1/classes",
    params(ListParams),
    responses(
        (status = 200, description = "A page of classes", body = Page<ClassEntry>),
        (status = 404, description = "The version was not found"),
    ),
)]
pub(super) async fn classes(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<ListParams>,
) -> Answer<Json<Page<ClassEntry>>> {
    let (filter, paging) = params.parse()?;
    Ok(Json(app.registry.classes(&filter, &paging)?))
}

/// Lists the functions of packages, in their latest version by default.
///
/// Each function has its status in all deployments, or in those of the requested version.
#[utoipa::path(
    get,
    path = "/api/v1/functions",
    params(ListParams),
    responses(
        (status = 200, description = "A page of functions", body = Page<FunctionEntry>),
        (status = 404, description = "The version was not found"),
    ),
)]
pub(super) async fn functions(
    _: Viewer,
    State(app): State<App>,
    Query(params): Query<ListParams>,
) -> Answer<Json<Page<FunctionEntry>>> {
    let (filter, paging) = params.parse()?;
    let mut page = app.registry.functions(&filter, &paging)?;
    let version = filter.version.as_deref();
    let mut known: BTreeMap<String, Vec<FunctionStatus>> = BTreeMap::new();
    for function in &mut page.items {
        let all = known
            .entry(function.package.clone())
            .or_insert_with_key(|package| app.deployments.functions(package, version));
        function.status = all.iter().filter(|it| it.key == function.key).cloned().collect();
    }
    Ok(Json(page))
}
