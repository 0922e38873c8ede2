//! The document that describes the API: made of the handlers themselves, and here of what holds
//! for all of them.

use utoipa::{
    ToSchema as _,
    openapi::{
        ContentBuilder, Info, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Response,
        ResponseBuilder,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::examples;

/// What any request may be answered with, beside what its handler says.
const ANYWAY: [(&str, &str); 8] = [
    ("400", "The request makes no sense."),
    ("401", "No token, or one that is wrong or has expired."),
    ("403", "The token's role is too weak."),
    ("413", "The body is too long."),
    ("429", "Too many requests; Retry-After says when to ask again."),
    ("500", "Something went wrong here."),
    ("503", "It can't be answered now; Retry-After says when to ask again."),
    ("504", "It took too long."),
];

/// What the document begins with.
pub(super) fn about() -> OpenApi {
    let mut info = Info::new("OaaS Package Manager", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Publishes packages of classes, and brings clusters to run them. Every failure is a \
         problem document (RFC 9457) with a `reason` for programs."
            .to_owned(),
    );
    OpenApiBuilder::new().info(info).build()
}

/// Adds what holds for all operations.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of the token file"))
        .build();
    components.security_schemes.insert("bearer".to_owned(), SecurityScheme::Http(bearer).into());
    let mut schemas = Vec::new();
    oprc_rest::Problem::schemas(&mut schemas);
    schemas.push((oprc_rest::Problem::name().into_owned(), schema()));
    components.schemas.extend(schemas);
    let none: [&str; 0] = [];
    document.security = Some(vec![SecurityRequirement::new("bearer", none)]);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            operation.operation_id = Some(id(method, path));
            examples::add(method, path, operation);
            let body = operation.request_body.is_some();
            for (status, description) in ANYWAY {
                if status != "413" || body {
                    add(operation, status, description);
                }
            }
            if body {
                add(operation, "415", "The body is neither JSON nor YAML.");
                add(operation, "422", "The body is wrong, place by place.");
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

fn schema() -> RefOr<utoipa::openapi::Schema> {
    <oprc_rest::Problem as utoipa::PartialSchema>::schema()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let all = [("get", get), ("put", put), ("post", post), ("delete", delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// What clients that are made from the document call an operation: `getPackagesByName`. Names of
/// handlers alone are there several times.
fn id(method: &str, path: &str) -> String {
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
