//! Answers that aren't those of a route, as REST and as gRPC.

use axum::{
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::Denied;

const GRPC: &str = "application/grpc";
const UNIMPLEMENTED: &str = "12";
const PERMISSION_DENIED: &str = "7";
const UNAUTHENTICATED: &str = "16";

/// A problem document as in RFC 9457.
pub fn problem(status: StatusCode, title: &str, detail: &str) -> Response {
    let document = json!({
        "type": "about:blank",
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    (status, [(CONTENT_TYPE, "application/problem+json")], document.to_string()).into_response()
}

/// Answers requests that no route takes: as gRPC asks if they are of gRPC, else with a problem
/// document.
pub async fn fallback(headers: HeaderMap) -> Response {
    if is_grpc(&headers) {
        return trailers_only(UNIMPLEMENTED, "there is no such method");
    }
    problem(StatusCode::NOT_FOUND, "Not Found", "There is nothing at this path.")
}

pub(crate) fn denied(headers: &HeaderMap, denied: Denied) -> Response {
    let (weak, reason) = (denied == Denied::WeakToken, denied.as_str());
    if is_grpc(headers) {
        return trailers_only(if weak { PERMISSION_DENIED } else { UNAUTHENTICATED }, reason);
    }
    if weak {
        return problem(StatusCode::FORBIDDEN, "Forbidden", reason);
    }
    let body = problem(StatusCode::UNAUTHORIZED, "Unauthorized", reason);
    ([(WWW_AUTHENTICATE, "Bearer")], body).into_response()
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().get(..GRPC.len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC.as_bytes()))
}

/// The status is in the headers where there is no message before it.
fn trailers_only(status: &'static str, message: &'static str) -> Response {
    let status = (HeaderName::from_static("grpc-status"), status);
    let message = (HeaderName::from_static("grpc-message"), message);
    ([(CONTENT_TYPE, GRPC), status, message], ()).into_response()
}
