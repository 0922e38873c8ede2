//! Every answer that isn't what was asked for is a problem document.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use oprc_rest::Problem;

use crate::error::Error;

/// A problem on its way out. Its body is written by [`super::dress`], which knows the request's
/// correlation id.
#[derive(Debug)]
pub(super) struct Failure {
    problem: Box<Problem>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

/// What a handler answers.
pub(super) type Answer<T> = Result<T, Failure>;

impl Failure {
    /// A problem by status, with a word for programs and a sentence for people.
    pub(super) fn new(status: StatusCode, reason: &str, detail: impl Into<String>) -> Self {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: title(status),
            status: status.as_u16(),
            detail: detail.into(),
            reason: reason.to_owned(),
            ..Problem::default()
        };
        Self { problem: Box::new(problem), headers: Vec::new() }
    }

    /// A parameter or a body that makes no sense.
    pub(super) fn bad(reason: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason, detail)
    }

    /// With a header.
    #[must_use]
    pub(super) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// With how long to wait before the next try.
    #[must_use]
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }

    /// The document.
    #[cfg(test)]
    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }
}

/// What a status is called.
pub(super) fn title(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("Problem").to_owned()
}

/// A word for problems that only have a status, such as those of the router.
pub(super) fn word(status: StatusCode) -> String {
    title(status).to_ascii_uppercase().replace([' ', '-'], "_").replace('\'', "")
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Invalid(faults) => {
                let count = faults.all.len() + faults.omitted;
                let places = if count == 1 { "place" } else { "places" };
                let detail = format!("The document is wrong in {count} {places}.");
                let mut failure =
                    Self::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_DOCUMENT", detail);
                failure.problem.faults = faults.all;
                failure
            }
            Error::Parameter { .. } => Self::bad("INVALID_PARAMETER", detail),
            Error::NotFound { .. } => Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail),
            Error::Conflict { reason, blockers, .. } => {
                let mut failure = Self::new(StatusCode::CONFLICT, reason, detail);
                failure.problem.blockers = blockers;
                failure
            }
            Error::Changed(_) => Self::new(StatusCode::PRECONDITION_FAILED, "CHANGED", detail),
            Error::Unavailable(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", detail).retry_after(1)
            }
            Error::Internal(_) => {
                // What it is belongs into the logs: it may tell of what isn't the caller's.
                tracing::error!(error = detail, "a request failed that shouldn't have");
                let told = "Something went wrong here; the logs have it by the correlation id.";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", told)
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(Document(self.problem));
        response
    }
}

/// The document of a problem, until its body is written.
#[derive(Clone)]
pub(super) struct Document(pub(super) Box<Problem>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status() {
        let conflict = Error::Conflict {
            reason: "IN_USE",
            detail: "it is in use".to_owned(),
            blockers: vec!["deployment hello".to_owned()],
        };
        let failure = Failure::from(conflict);
        assert_eq!(failure.problem().status, 409);
        assert_eq!(failure.problem().reason, "IN_USE");
        assert_eq!(failure.problem().blockers, ["deployment hello"]);
        for (error, status) in [
            (Error::not_found("package", "a"), 404),
            (Error::Changed("x".to_owned()), 412),
            (Error::Unavailable("x".to_owned()), 503),
            (Error::Parameter { field: "limit", message: "x".to_owned() }, 400),
        ] {
            assert_eq!(Failure::from(error).problem().status, status);
        }
        let internal = Failure::from(Error::Internal("a secret".to_owned()));
        assert_eq!(internal.problem().status, 500);
        assert!(!internal.problem().detail.contains("secret"));
    }

    #[test]
    fn words_are_for_programs() {
        assert_eq!(word(StatusCode::METHOD_NOT_ALLOWED), "METHOD_NOT_ALLOWED");
        assert_eq!(word(StatusCode::URI_TOO_LONG), "URI_TOO_LONG");
    }
}
