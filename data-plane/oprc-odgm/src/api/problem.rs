//! Failures as problem documents (RFC 9457).

use std::fmt::Display;

use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use problem_details::ProblemDetails;
use serde::Serialize;

use crate::Error;

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// For programs.
    reason: &'static str,
    /// For people.
    detail: String,
    /// Of an invalid state.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Extensions {
    reason: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl Problem {
    pub(crate) fn invalid(what: &str, error: &dyn Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", format!("{what} is invalid: {error}"))
    }

    pub(crate) fn bad_header(name: &str, allowed: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_HEADER", format!("{name} {allowed}"))
    }

    pub(crate) fn new(status: StatusCode, reason: &'static str, detail: String) -> Self {
        Self { status, reason, detail, problems: Vec::new() }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        let (status, reason) = match &error {
            Error::InvalidId(_) => (StatusCode::BAD_REQUEST, "INVALID_ID"),
            Error::InvalidIdempotencyKey(_) => (StatusCode::BAD_REQUEST, "INVALID_IDEMPOTENCY_KEY"),
            Error::UnknownCollection(_) => (StatusCode::NOT_FOUND, "UNKNOWN_COLLECTION"),
            Error::NotFound(_) => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            Error::UnknownMethod(_) => (StatusCode::NOT_FOUND, "UNKNOWN_METHOD"),
            Error::Forbidden { .. } => (StatusCode::FORBIDDEN, "FORBIDDEN"),
            Error::Changed { .. } => (StatusCode::PRECONDITION_FAILED, "CHANGED"),
            Error::InvalidState { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "INVALID_STATE"),
            Error::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE"),
            Error::IdempotencyKeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "IDEMPOTENCY_KEY_REUSED")
            }
            Error::Reentrant(_) => (StatusCode::CONFLICT, "REENTRANT"),
            Error::Unstorable(_) => (StatusCode::UNPROCESSABLE_ENTITY, "UNSTORABLE"),
            Error::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, "OVERLOADED"),
            Error::Refused { status, .. } => {
                let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
                (status, "REFUSED_BY_FUNCTION")
            }
            Error::FunctionFailed(_) => (StatusCode::BAD_GATEWAY, "FUNCTION_FAILED"),
            Error::FunctionTimeout(_) => (StatusCode::GATEWAY_TIMEOUT, "FUNCTION_TIMEOUT"),
            Error::FunctionUnreachable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "FUNCTION_UNREACHABLE")
            }
            Error::InvalidResponse(_) => (StatusCode::BAD_GATEWAY, "INVALID_RESPONSE"),
            Error::Unavailable(_) | Error::NotOwner(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE")
            }
            Error::UnknownOutcome(_) => (StatusCode::GATEWAY_TIMEOUT, "UNKNOWN_OUTCOME"),
            Error::Corrupt(_) => (StatusCode::INTERNAL_SERVER_ERROR, "CORRUPT"),
        };
        let mut problem = Self::new(status, reason, detail);
        if let Error::InvalidState { problems } = error {
            problem.problems = problems;
        }
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, reason, detail, problems } = self;
        let document =
            oprc_server::problem(status, detail).with_extensions(Extensions { reason, problems });
        let mut response = ProblemDetails::into_response(document);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
