//! Failures, as RFC 9457 problem documents.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use oprc_rest::{Problem, ProblemDetails, ProblemExtensions, ProblemType};

use crate::error::Error;

/// A failed request. [`super::middleware::request_context`] writes the body, because it knows the
/// correlation id.
#[derive(Debug)]
pub(super) struct Failure {
    problem: Box<Problem>,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

pub(super) type Answer<T> = Result<T, Failure>;

impl Failure {
    /// `reason` is for programs, `detail` for people.
    pub(super) fn new(status: StatusCode, reason: &str, detail: impl Into<String>) -> Self {
        let extensions = ProblemExtensions { reason: reason.to_owned(), ..Default::default() };
        let mut problem = ProblemDetails::from_status_code(status)
            .with_type(ProblemType::default())
            .with_extensions(extensions)
            .boxed();
        problem.detail = Some(detail.into()).filter(|detail| !detail.is_empty());
        Self { problem, headers: Vec::new() }
    }

    pub(super) fn bad(reason: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason, detail)
    }

    /// The body can be read, but isn't a valid document.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID_DOCUMENT", detail)
    }

    /// A failure of the router, an extractor or a layer.
    pub(super) fn from_status(status: StatusCode, detail: &str) -> Self {
        if status == StatusCode::GATEWAY_TIMEOUT {
            let detail = "The request timed out and may still take effect. Check the state before \
                          you retry.";
            return Self::new(status, "TIMEOUT", detail);
        }
        Self::new(status, &reason_of(status), detail)
    }

    #[must_use]
    pub(super) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    #[must_use]
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }

    #[cfg(test)]
    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }
}

/// `405 Method Not Allowed` has the reason `METHOD_NOT_ALLOWED`.
fn reason_of(status: StatusCode) -> String {
    let phrase = status.canonical_reason().unwrap_or("Problem");
    phrase.to_ascii_uppercase().replace([' ', '-'], "_").replace('\'', "")
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        match error {
            Error::Invalid(diagnostics) => {
                let count = diagnostics.all.len() + diagnostics.omitted;
                let noun = if count == 1 { "problem" } else { "problems" };
                let mut failure =
                    Self::invalid(format!("The document has {count} {noun}, listed in `errors`."));
                failure.problem.extensions.errors = diagnostics.all;
                failure
            }
            Error::Parameter { .. } => Self::bad("INVALID_PARAMETER", detail),
            Error::NotFound { .. } => Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail),
            Error::Conflict { reason, blockers, .. } => {
                let mut failure = Self::new(StatusCode::CONFLICT, reason, detail);
                failure.problem.extensions.blockers = blockers;
                failure
            }
            Error::Changed(_) => Self::new(StatusCode::PRECONDITION_FAILED, "CHANGED", detail),
            Error::Unavailable(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", detail).retry_after(1)
            }
            Error::Internal(_) => {
                // The cause may reveal what isn't the caller's, so it is only logged.
                tracing::error!(error = detail, "internal error while handling a request");
                let detail = "Internal error. The server logs have the cause under this \
                              correlation id.";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", detail)
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.problem.status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(PendingProblem(self.problem));
        response
    }
}

/// A response extension: the problem, until its body is written.
#[derive(Clone)]
pub(super) struct PendingProblem(pub(super) Box<Problem>);

#[cfg(test)]
mod tests {
    use super::*;

    fn status(failure: &Failure) -> u16 {
        failure.problem().status.unwrap().as_u16()
    }

    #[test]
    fn each_error_has_its_status() {
        let conflict = Error::Conflict {
            reason: "IN_USE",
            detail: "it is in use".to_owned(),
            blockers: vec!["deployment hello".to_owned()],
        };
        let failure = Failure::from(conflict);
        assert_eq!(status(&failure), 409);
        assert_eq!(failure.problem().extensions.reason, "IN_USE");
        assert_eq!(failure.problem().extensions.blockers, ["deployment hello"]);
        for (error, code) in [
            (Error::not_found("package", "a"), 404),
            (Error::Changed("x".to_owned()), 412),
            (Error::Unavailable("x".to_owned()), 503),
            (Error::Parameter { field: "limit", message: "x".to_owned() }, 400),
        ] {
            assert_eq!(status(&Failure::from(error)), code);
        }
        let internal = Failure::from(Error::Internal("a secret".to_owned()));
        assert_eq!(status(&internal), 500);
        assert!(!internal.problem().detail.as_ref().unwrap().contains("secret"));
    }

    #[test]
    fn problems_keep_their_wire_format() {
        let failure = Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "package \"a\" not found");
        let expected = serde_json::json!({
            "type": "about:blank",
            "title": "Not Found",
            "status": 404,
            "detail": "package \"a\" not found",
            "reason": "NOT_FOUND",
        });
        assert_eq!(serde_json::to_value(failure.problem()).unwrap(), expected);
    }

    #[test]
    fn derives_a_reason_from_the_status() {
        assert_eq!(reason_of(StatusCode::METHOD_NOT_ALLOWED), "METHOD_NOT_ALLOWED");
        assert_eq!(reason_of(StatusCode::URI_TOO_LONG), "URI_TOO_LONG");
    }
}
