//! Responses to requests that no route handles, as REST and as gRPC.

use axum::{
    http::{
        HeaderMap, HeaderName, StatusCode,
        header::{CONTENT_TYPE, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use problem_details::{ProblemDetails, ProblemType};

use crate::Denied;

const GRPC: &str = "application/grpc";
const UNIMPLEMENTED: &str = "12";
const PERMISSION_DENIED: &str = "7";
const UNAUTHENTICATED: &str = "16";

/// A problem document (RFC 9457) whose title is the status's own. Programs add members of their
/// own with [`ProblemDetails::with_extensions`].
pub fn problem(status: StatusCode, detail: impl Into<String>) -> ProblemDetails {
    ProblemDetails::from_status_code(status).with_type(ProblemType::default()).with_detail(detail)
}

/// The router's fallback: `UNIMPLEMENTED` for gRPC requests, a problem document for others.
pub async fn fallback(headers: HeaderMap) -> Response {
    if is_grpc(&headers) {
        return trailers_only(UNIMPLEMENTED, "unknown method");
    }
    problem(StatusCode::NOT_FOUND, "no route matches this path").into_response()
}

pub(crate) fn denied(headers: &HeaderMap, denied: Denied) -> Response {
    let (authenticated, reason) = (denied == Denied::InsufficientRole, denied.to_string());
    if is_grpc(headers) {
        let status = if authenticated { PERMISSION_DENIED } else { UNAUTHENTICATED };
        return trailers_only(status, &reason);
    }
    if authenticated {
        return problem(StatusCode::FORBIDDEN, reason).into_response();
    }
    ([(WWW_AUTHENTICATE, "Bearer")], problem(StatusCode::UNAUTHORIZED, reason)).into_response()
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().get(..GRPC.len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(GRPC.as_bytes()))
}

/// gRPC puts the status into the headers of a response without messages.
fn trailers_only(status: &str, message: &str) -> Response {
    let status = (HeaderName::from_static("grpc-status"), status);
    let message = (HeaderName::from_static("grpc-message"), message);
    ([(CONTENT_TYPE, GRPC), status, message], ()).into_response()
}
