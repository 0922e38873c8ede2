//! Packages, their versions, and the catalogue of what is in them.

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
    caller::{Admin, Deployer, Viewer},
    conditional::{Conditions, tagged},
    problem::{Answer, Failure},
    query::{Nothing, Query},
};
use crate::{
    blocking::run_blocking,
    registry::{Filter, Paging, etag, labels},
};

/// What a list is narrowed to, and which part of it is wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// How the package's name begins.
    prefix: Option<String>,
    /// The package's name.
    package: Option<String>,
    /// A version that the package has. Classes and functions are those of that version, and need the
    /// package's name too; where it is left out, those of the latest.
    version: Option<String>,
    /// Tags that the package has, separated by commas.
    tags: Option<String>,
    /// Labels that the package has, such as `team=geometry,tier`.
    labels: Option<String>,
    /// Words that stand in names, descriptions and tags.
    q: Option<String>,
    /// How much is wanted at most.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Where the page before said that the next begins.
    cursor: Option<String>,
}

impl Wanted {
    fn read(self) -> Answer<(Filter, Paging)> {
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

/// The documents of a body.
pub(super) fn documents(text: &str) -> Answer<Vec<Document>> {
    Ok(oprc_models::parse(text, "body").map_err(crate::error::Error::from)?)
}

/// The documents of a body, which are packages all of them.
fn only_packages(text: &str) -> Answer<Vec<Document>> {
    let documents = documents(text)?;
    let deployments = documents.iter().filter(|it| matches!(it.body, Body::Deployment(_))).count();
    if deployments > 0 || documents.is_empty() {
        let detail = match deployments {
            0 => "There is no package in the body.".to_owned(),
            _ => "There is a deployment in the body: those go to /api/v1/deployments.".to_owned(),
        };
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Failure::new(status, "INVALID_DOCUMENT", detail));
    }
    Ok(documents)
}

/// Packages, by name.
#[utoipa::path(
    get,
    path = "/api/v1/packages",
    tag = "packages",
    params(Wanted),
    responses((status = 200, description = "A page of packages", body = Page<PackageSummary>)),
)]
pub(super) async fn list(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Page<PackageSummary>>> {
    let (filter, paging) = wanted.read()?;
    Ok(Json(app.registry.list(&filter, &paging)?))
}

/// Publishes the packages of a file: all of them, or none.
///
/// A version never changes: the same again is unchanged, other content is refused
/// (`VERSION_EXISTS`).
#[utoipa::path(
    post,
    path = "/api/v1/packages",
    tag = "packages",
    request_body(content((OPackage = "application/json"), (OPackage = "application/yaml"))),
    responses(
        (status = 200, description = "All of it was there already", body = Vec<Published>),
        (status = 201, description = "Published", body = Vec<Published>),
        (status = 404, description = "A package that it depends on isn't there"),
        (status = 409, description = "The version is there with other content"),
    ),
)]
pub(super) async fn publish(
    Deployer(caller): Deployer,
    State(app): State<App>,
    _: Query<Nothing>,
    Text(text): Text,
) -> Answer<Response> {
    let documents = run_blocking(move || only_packages(&text)).await??;
    let published = app.registry.publish(&documents, caller.name.as_deref()).await?;
    let mut created = false;
    for it in published.iter().filter(|it| !it.unchanged) {
        created = true;
        tell(&app, "package.published", &it.name, &it.version, &caller.correlation_id);
    }
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(published)).into_response())
}

fn tell(app: &App, kind: &str, name: &str, version: &str, correlation_id: &str) {
    app.deployments.tell(oprc_rest::Event {
        kind: kind.to_owned(),
        subject: name.to_owned(),
        message: version.to_owned(),
        correlation_id: correlation_id.to_owned(),
        ..oprc_rest::Event::default()
    });
}

/// Checks a file as publishing would, its deployments too, and changes nothing.
#[utoipa::path(
    post,
    path = "/api/v1/validate",
    tag = "packages",
    request_body(content((OPackage = "application/json"), (OPackage = "application/yaml"))),
    responses(
        (status = 200, description = "Nothing is wrong with it", body = Vec<Published>),
        (status = 404, description = "A package that it depends on isn't there"),
        (status = 409, description = "The version is there with other content"),
    ),
)]
pub(super) async fn validate(
    _: Viewer,
    State(app): State<App>,
    _: Query<Nothing>,
    Text(text): Text,
) -> Answer<Json<Vec<Published>>> {
    let check = move || -> Answer<_> { Ok(app.registry.validate(&documents(&text)?)?) };
    Ok(Json(run_blocking(check).await??))
}

/// A package.
#[utoipa::path(
    get,
    path = "/api/v1/packages/{name}",
    tag = "packages",
    params(
        ("name" = String, Path, description = "The package"),
        ("If-None-Match" = Option<String>, Header, description = "The ETag of what you have"),
    ),
    responses(
        (status = 200, description = "The package", body = PackageSummary),
        (status = 304, description = "You have it already"),
        (status = 404, description = "There is no such package"),
    ),
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

/// Deletes a package, if nothing uses it.
#[utoipa::path(
    delete,
    path = "/api/v1/packages/{name}",
    tag = "packages",
    params(
        ("name" = String, Path, description = "The package"),
        ("If-Match" = Option<String>, Header, description = "The ETag that it must have"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "There is no such package"),
        (status = 409, description = "It is in use; `blockers` says by whom"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn delete(
    Admin(caller): Admin,
    State(app): State<App>,
    Path(name): Path<String>,
    conditions: Conditions,
    _: Query<Nothing>,
) -> Answer<StatusCode> {
    app.registry.delete_package(&name, conditions.expected()?).await?;
    tell(&app, "package.deleted", &name, "", &caller.correlation_id);
    Ok(StatusCode::NO_CONTENT)
}

/// The versions of a package, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/packages/{name}/versions",
    tag = "packages",
    params(("name" = String, Path, description = "The package")),
    responses(
        (status = 200, description = "Its versions", body = Vec<VersionSummary>),
        (status = 404, description = "There is no such package"),
    ),
)]
pub(super) async fn versions(
    _: Viewer,
    State(app): State<App>,
    Path(name): Path<String>,
) -> Answer<Json<Vec<VersionSummary>>> {
    Ok(Json(app.registry.versions(&name)?))
}

/// A version of a package, as it was published.
#[utoipa::path(
    get,
    path = "/api/v1/packages/{name}/versions/{version}",
    tag = "packages",
    params(
        ("name" = String, Path, description = "The package"),
        ("version" = String, Path, description = "The version, or `latest`"),
        ("If-None-Match" = Option<String>, Header, description = "The ETag of what you have"),
    ),
    responses(
        (status = 200, description = "The version", body = PackageVersion),
        (status = 304, description = "You have it already"),
        (status = 404, description = "There is no such version"),
    ),
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

/// Deletes a version, if nothing uses it.
#[utoipa::path(
    delete,
    path = "/api/v1/packages/{name}/versions/{version}",
    tag = "packages",
    params(
        ("name" = String, Path, description = "The package"),
        ("version" = String, Path, description = "The version"),
        ("If-Match" = Option<String>, Header, description = "The ETag that it must have"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "There is no such version"),
        (status = 409, description = "It is in use; `blockers` says by whom"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn delete_version(
    Admin(caller): Admin,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
    _: Query<Nothing>,
) -> Answer<StatusCode> {
    app.registry.delete_version(&name, &version, conditions.expected()?).await?;
    tell(&app, "package.deleted", &name, &version, &caller.correlation_id);
    Ok(StatusCode::NO_CONTENT)
}

/// Says that a version shouldn't be used any more, and why.
#[utoipa::path(
    put,
    path = "/api/v1/packages/{name}/versions/{version}/deprecation",
    tag = "packages",
    params(
        ("name" = String, Path, description = "The package"),
        ("version" = String, Path, description = "The version"),
        ("If-Match" = Option<String>, Header, description = "The ETag that it must have"),
    ),
    request_body = Deprecation,
    responses(
        (status = 200, description = "Deprecated", body = PackageVersion),
        (status = 404, description = "There is no such version"),
        (status = 409, description = "Others change it all the time"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn deprecate(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
    _: Query<Nothing>,
    Text(text): Text,
) -> Answer<Response> {
    let Deprecation { reason } = run_blocking(move || small(&text)).await??;
    let expected = conditions.expected()?;
    let changed = app.registry.deprecate(&name, &version, Some(&reason), expected).await?;
    tell(&app, "package.deprecated", &name, &version, &caller.correlation_id);
    Ok(tagged(&etag(&changed), &Conditions::default(), &changed))
}

/// Takes a deprecation back.
#[utoipa::path(
    delete,
    path = "/api/v1/packages/{name}/versions/{version}/deprecation",
    tag = "packages",
    params(
        ("name" = String, Path, description = "The package"),
        ("version" = String, Path, description = "The version"),
        ("If-Match" = Option<String>, Header, description = "The ETag that it must have"),
    ),
    responses(
        (status = 200, description = "Not deprecated any more", body = PackageVersion),
        (status = 404, description = "There is no such version"),
        (status = 409, description = "Others change it all the time"),
        (status = 412, description = "It isn't any more what If-Match says"),
    ),
)]
pub(super) async fn undeprecate(
    Deployer(caller): Deployer,
    State(app): State<App>,
    Path((name, version)): Path<(String, String)>,
    conditions: Conditions,
    _: Query<Nothing>,
) -> Answer<Response> {
    let changed = app.registry.deprecate(&name, &version, None, conditions.expected()?).await?;
    tell(&app, "package.undeprecated", &name, &version, &caller.correlation_id);
    Ok(tagged(&etag(&changed), &Conditions::default(), &changed))
}

/// Classes of packages, each of the latest version.
#[utoipa::path(
    get,
    path = "/api/v1/classes",
    tag = "catalogue",
    params(Wanted),
    responses(
        (status = 200, description = "A page of classes", body = Page<ClassEntry>),
        (status = 404, description = "There is no such version"),
    ),
)]
pub(super) async fn classes(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Page<ClassEntry>>> {
    let (filter, paging) = wanted.read()?;
    Ok(Json(app.registry.classes(&filter, &paging)?))
}

/// Functions of packages, each of the latest version, and how they are where they run: in any
/// version, or in the one that was asked for.
#[utoipa::path(
    get,
    path = "/api/v1/functions",
    tag = "catalogue",
    params(Wanted),
    responses(
        (status = 200, description = "A page of functions", body = Page<FunctionEntry>),
        (status = 404, description = "There is no such version"),
    ),
)]
pub(super) async fn functions(
    _: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Answer<Json<Page<FunctionEntry>>> {
    let (filter, paging) = wanted.read()?;
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
