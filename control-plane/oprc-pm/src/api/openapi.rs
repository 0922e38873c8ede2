//! The OpenAPI document: generated from the handlers, completed here with what all operations share.

use oprc_rest::ProblemExtensions;
use utoipa::{
    PartialSchema as _,
    openapi::{
        ContentBuilder, Info, ObjectBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr,
        Response, ResponseBuilder, Schema, Type,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::examples;

/// Failures that every operation can return.
const COMMON_FAILURES: [(&str, &str); 8] = [
    ("400", "Malformed request."),
    ("401", "Missing, invalid or expired token."),
    ("403", "The token's role doesn't allow this request."),
    ("413", "The body exceeds the size limit."),
    ("429", "Rate limit exceeded; retry after the time in Retry-After."),
    ("500", "Internal error."),
    ("503", "Temporarily unavailable; retry after the time in Retry-After."),
    ("504", "The request timed out."),
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

/// Adds operation ids, examples, security and common failures.
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
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            operation.operation_id = Some(operation_id(method, path));
            examples::add(method, path, operation);
            let body = operation.request_body.is_some();
            for (status, description) in COMMON_FAILURES {
                if status != "413" || body {
                    add(operation, status, description);
                }
            }
            if body {
                add(operation, "415", "The content type is neither JSON nor YAML.");
                add(operation, "422", "The document is invalid; `faults` lists the problems.");
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

fn add(operation: &mut Operation, status: &str, description: &str) {
    let response = || ResponseBuilder::new().description(description).build().into();
    operation.responses.responses.entry(status.to_owned()).or_insert_with(response);
}

fn as_problem(response: &mut Response) {
    let problem = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(problem)).build();
    response.content.insert("application/problem+json".to_owned(), content.into());
}
