//! The OpenAPI document: generated from the handlers, completed here with what all operations share.

use oprc_rest::ProblemExtensions;
use utoipa::{
    PartialSchema as _,
    openapi::{
        ContentBuilder, Info, ObjectBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr,
        Required, Response, ResponseBuilder, Schema, Type,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::examples;

/// Parameters by their place in a path, their descriptions, and the resource that isn't found if
/// there is no such value.
const PATH_PARAMETERS: [(&str, &str, &str); 8] = [
    ("packages/{name}", "Name of the package", "package"),
    ("versions/{version}", "The version", "version"),
    ("deployments/{key}", "Key of the deployment", "deployment"),
    ("clusters/{name}", "Name of the cluster", "cluster"),
    ("orphans/{cluster}", "Name of the cluster", "orphan"),
    ("{cluster}/{id}", "Id of the orphan", "orphan"),
    ("class-runtimes/{id}", "Id of the ClassRuntime", "ClassRuntime"),
    ("deployment-records/{id}", "Id of the ClassRuntime", "ClassRuntime"),
];

/// Further paths of operations, and what these do.
const ALIASES: [(&str, &str, &str); 2] = [
    ("/api/v1/deployment-records", "/api/v1/class-runtimes", "Lists ClassRuntimes"),
    ("/api/v1/deployment-records/{id}", "/api/v1/class-runtimes/{id}", "Returns a ClassRuntime"),
];

pub(super) fn base() -> OpenApi {
    let mut info = Info::new("OaaS Package Manager", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Publishes packages of classes and deploys them to clusters. Every failure is a problem \
         document (RFC 9457) with a machine-readable `reason`."
            .to_owned(),
    );
    OpenApiBuilder::new().info(info).build()
}

/// Adds aliases, operation ids, tags, path parameters, examples, security and common responses.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("Bearer token from the token file of the server"))
        .build();
    components.security_schemes.insert("bearer".to_owned(), SecurityScheme::Http(bearer).into());
    components.schemas.insert("Problem".to_owned(), problem_schema());
    let none: [&str; 0] = [];
    document.security = Some(vec![SecurityRequirement::new("bearer", none)]);
    let paths = &mut document.paths.paths;
    for (alias, path, what) in ALIASES {
        let mut item = paths.get(path).cloned().unwrap_or_default();
        for (_, operation) in operations(&mut item) {
            operation.summary = Some(format!("{what}; an alias of `{path}`."));
        }
        paths.insert(alias.to_owned(), item);
    }
    for (path, item) in paths {
        for (method, operation) in operations(item) {
            operation.operation_id = Some(operation_id(method, path));
            operation.tags = Some(vec![tag(path).to_owned()]);
            add_path_parameters(path, operation);
            examples::add(method, path, operation);
            let body = operation.request_body.is_some();
            let cached = method == "get" && has_parameter(operation, "If-None-Match");
            for (applies, status, description) in [
                (cached, "304", "Not modified"),
                (true, "400", "Malformed request."),
                (true, "401", "Missing, invalid or expired token."),
                (true, "403", "The token's role doesn't allow this request."),
                (
                    has_parameter(operation, "If-Match"),
                    "412",
                    "The precondition in If-Match failed",
                ),
                (body, "413", "The body exceeds the size limit."),
                (body, "415", "The content type is neither JSON nor YAML."),
                (body, "422", "The document is invalid; `errors` lists the problems."),
                (true, "429", "Rate limit exceeded; retry after the time in Retry-After."),
                (true, "500", "Internal error."),
                (true, "503", "Temporarily unavailable; retry after the time in Retry-After."),
                (true, "504", "The request timed out."),
            ] {
                if applies {
                    add(operation, status, description);
                }
            }
            for (status, response) in &mut operation.responses.responses {
                if status.starts_with(['4', '5'])
                    && let RefOr::T(response) = response
                {
                    as_problem(response);
                }
            }
        }
    }
    document
}

/// The members of RFC 9457 and ours.
fn problem_schema() -> RefOr<Schema> {
    let member = |kind, description: &str| {
        ObjectBuilder::new().schema_type(kind).description(Some(description)).build()
    };
    let mut schema = ProblemExtensions::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.description = Some("Problem document (RFC 9457).".to_owned());
        for (name, kind, description) in [
            ("type", Type::String, "URI of the problem type."),
            ("title", Type::String, "Reason phrase of the status."),
            ("status", Type::Integer, "HTTP status code."),
            ("detail", Type::String, "What failed in this request."),
        ] {
            object.properties.insert(name.to_owned(), member(kind, description).into());
        }
    }
    schema
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let all = [("get", get), ("put", put), ("post", post), ("delete", delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The group of an operation: the first segment of its path, or the one that this belongs to.
fn tag(path: &str) -> &str {
    match path.trim_start_matches("/api/v1/").split('/').next().unwrap_or_default() {
        "validate" => "packages",
        "classes" | "functions" => "catalogue",
        "plan" => "deployments",
        "class-runtimes" | "deployment-records" | "orphans" => "clusters",
        own => own,
    }
}

/// The operation id, such as `getPackagesByName`. Handler names alone aren't unique.
fn operation_id(method: &str, path: &str) -> String {
    let mut id = method.to_owned();
    for part in path.trim_start_matches("/api/v1/").split('/') {
        if part.starts_with('{') {
            id.push_str("By");
        }
        for word in part.trim_matches(['{', '}']).split('-') {
            let mut letters = word.chars();
            id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            id.push_str(letters.as_str());
        }
    }
    id
}

/// Adds status 404, and the parameters of the path that the operation doesn't describe itself.
fn add_path_parameters(path: &str, operation: &mut Operation) {
    let in_path = || PATH_PARAMETERS.into_iter().filter(|(place, ..)| path.contains(place));
    if let Some((.., resource)) = in_path().next_back() {
        add(operation, "404", &format!("The {resource} was not found"));
    }
    let mut parameters: Vec<RefOr<Parameter>> = Vec::new();
    for (place, description, _) in in_path() {
        let name = place.rsplit(['{', '}']).nth(1).unwrap_or_default();
        if !has_parameter(operation, name) {
            let parameter = ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(description))
                .schema(Some(String::schema()));
            parameters.push(RefOr::T(parameter.build()));
        }
    }
    parameters.extend(operation.parameters.take().into_iter().flatten());
    operation.parameters = Some(parameters).filter(|all| !all.is_empty());
}

fn has_parameter(operation: &Operation, name: &str) -> bool {
    let mut parameters = operation.parameters.iter().flatten();
    parameters.any(|it| matches!(it, RefOr::T(it) if it.name == name))
}

fn add(operation: &mut Operation, status: &str, description: &str) {
    let response = || ResponseBuilder::new().description(description).build().into();
    operation.responses.responses.entry(status.to_owned()).or_insert_with(response);
}

fn as_problem(response: &mut Response) {
    let problem = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(problem)).build();
    response.content.insert("application/problem+json".to_owned(), content.into());
}
