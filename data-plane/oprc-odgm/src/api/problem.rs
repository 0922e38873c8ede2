//! Failures as problem documents (RFC 9457).

use std::fmt::Display;

use axum::{
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use problem_details::ProblemDetails;
use serde::Serialize;

use crate::{Error, member::Member};

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// For people.
    detail: String,
    extensions: Extensions,
}

#[derive(Debug, Default, Serialize)]
struct Extensions {
    /// For programs.
    reason: &'static str,
    /// Of an invalid state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// The step of a macro that failed, and the reason of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(flatten)]
    place: Option<Box<MemberPlace>>,
}

/// The member that has the object, and where it is.
#[derive(Debug, Serialize)]
struct MemberPlace {
    member: i32,
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl Problem {
    pub(crate) fn invalid(what: &str, error: &dyn Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", format!("{what} is invalid: {error}"))
    }

    pub(crate) fn bad_header(name: &str, allowed: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_HEADER", format!("{name} {allowed}"))
    }

    pub(crate) fn new(status: StatusCode, reason: &'static str, detail: String) -> Self {
        Self { status, detail, extensions: Extensions { reason, ..Extensions::default() } }
    }
}

fn status(error: &Error) -> StatusCode {
    // A function and another grid may have any status.
    let passed_on = |status: u16| match status {
        400..=499 => StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
        503 => StatusCode::SERVICE_UNAVAILABLE,
        504 => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    match error {
        Error::InvalidId(_) | Error::InvalidIdempotencyKey(_) | Error::UnknownReference(_) => {
            StatusCode::BAD_REQUEST
        }
        Error::UnknownCollection(_) | Error::NotFound(_) | Error::UnknownMethod(_) => {
            StatusCode::NOT_FOUND
        }
        Error::OtherMember(_) => StatusCode::MISDIRECTED_REQUEST,
        Error::Forbidden { .. } | Error::CallEnded => StatusCode::FORBIDDEN,
        Error::Changed { .. } => StatusCode::PRECONDITION_FAILED,
        Error::TooLarge { .. } | Error::TooMany { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Error::ConditionFalse(_) | Error::Reentrant(_) | Error::TooDeep(_) => StatusCode::CONFLICT,
        Error::InvalidState { .. }
        | Error::ConditionFailed { .. }
        | Error::IdempotencyKeyReused
        | Error::UnresolvedReference(_)
        | Error::Unstorable(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Refused { status, .. } | Error::OtherGrid { status, .. } => passed_on(*status),
        Error::FunctionFailed(_) | Error::InvalidResponse(_) | Error::Immutable(_) => {
            StatusCode::BAD_GATEWAY
        }
        Error::FunctionTimeout(_) | Error::UnknownOutcome(_) | Error::DeadlineExceeded(_) => {
            StatusCode::GATEWAY_TIMEOUT
        }
        Error::Overloaded { .. }
        | Error::EventsPending(_)
        | Error::ResultsFull(_)
        | Error::Running
        | Error::FunctionUnreachable(_)
        | Error::NotOwner(_)
        | Error::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        Error::StepFailed { error, .. } => status_of_step(error),
        Error::Corrupt(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The object of the macro exists, and the caller may call it.
fn status_of_step(error: &Error) -> StatusCode {
    match status(error) {
        StatusCode::NOT_FOUND
        | StatusCode::FORBIDDEN
        | StatusCode::PRECONDITION_FAILED
        | StatusCode::MISDIRECTED_REQUEST => StatusCode::CONFLICT,
        status => status,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let mut problem = Self::new(status(&error), error.reason(), error.to_string());
        match error {
            Error::InvalidState { problems } => problem.extensions.problems = problems,
            Error::OtherMember(other) => {
                let Member { id: member, cluster, environment, url } = other.member;
                let place = MemberPlace { member, cluster, environment, url };
                problem.extensions.place = Some(Box::new(place));
            }
            Error::StepFailed { step, error } => {
                problem.extensions.step = Some(step);
                problem.extensions.cause = Some(error.reason());
            }
            _ => {}
        }
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { status, detail, extensions } = self;
        let document = oprc_server::problem(status, detail).with_extensions(extensions);
        let mut response = ProblemDetails::into_response(document);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
