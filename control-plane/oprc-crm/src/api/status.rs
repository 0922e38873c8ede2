//! Maps errors to gRPC statuses: canonical codes with machine-readable details.

use std::{collections::HashMap, time::Duration};

use oprc_unit::Violation;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};

use crate::{reason::Reason, service::Error};

/// The domain of `ErrorInfo`.
const DOMAIN: &str = "oaas.io";
/// Bounds on what a status echoes of a request, in bytes: it travels in headers.
const MAX_MESSAGE: usize = 1024;
const MAX_FIELD: usize = 256;
const MAX_VIOLATIONS: usize = 8;
/// The pause before a retry that is requested from clients.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let (code, reason) = match &error {
            Error::Invalid(_) => (Code::InvalidArgument, Reason::InvalidSpec),
            Error::Precondition { reason, .. } => (Code::FailedPrecondition, *reason),
            Error::NotFound(_) => (Code::NotFound, Reason::NotFound),
            Error::AlreadyExists(_) => (Code::AlreadyExists, Reason::NameConflict),
            Error::Unavailable { reason, .. } => (Code::Unavailable, *reason),
            Error::Throttled(_) => (Code::ResourceExhausted, Reason::ApiServerThrottled),
            // Not UNAUTHENTICATED, which would be about the caller's credentials, and not
            // UNAVAILABLE, which clients retry without end.
            Error::Unauthenticated(_) => {
                (Code::FailedPrecondition, Reason::ApiServerUnauthenticated)
            }
            Error::Internal(_) => (Code::Internal, Reason::Internal),
        };
        let message = truncate(&error.to_string(), MAX_MESSAGE);
        let mut details = details(reason);
        match error {
            Error::Invalid(violations) => {
                let all = bounded(violations).map(|it| FieldViolation::new(it.field, it.message));
                details.set_bad_request(all.collect::<Vec<_>>());
            }
            Error::Precondition { violations, .. } => {
                let all = bounded(violations)
                    .map(|it| PreconditionViolation::new(reason.as_str(), it.field, it.message));
                details.set_precondition_failure(all.collect::<Vec<_>>());
            }
            Error::Unavailable { .. } => {
                details.set_retry_info(Some(RETRY_DELAY));
            }
            Error::Throttled(pause) => {
                details.set_retry_info(Some(pause));
            }
            _ => {}
        }
        Self::with_error_details(code, message, details)
    }
}

fn details(reason: Reason) -> ErrorDetails {
    ErrorDetails::with_error_info(reason.grpc(), DOMAIN, HashMap::new())
}

/// The status for a message over the size limit. Unlike with others of its code, a retry is of no
/// use.
pub(super) fn too_large() -> Status {
    let message = format!("the message is larger than the limit of {} bytes", super::MAX_MESSAGE);
    Status::with_error_details(Code::ResourceExhausted, message, details(Reason::TooLarge))
}

fn bounded(violations: Vec<Violation>) -> impl Iterator<Item = Violation> {
    violations.into_iter().take(MAX_VIOLATIONS).map(|it| Violation {
        field: truncate(&it.field, MAX_FIELD),
        message: truncate(&it.message, MAX_FIELD),
    })
}

/// Cuts a text to at most `max` bytes.
fn truncate(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let (kept, _) = text.split_at(text.floor_char_boundary(max.saturating_sub(4)));
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use oprc_unit::{Rejection, RejectionReason};

    use super::*;

    #[test]
    fn precondition_carries_reason_and_field() {
        let reason = RejectionReason::NoSuitableTemplate;
        let rejection = Rejection::precondition(reason, "constraints", "too slow");
        let status = Status::from(Error::from(rejection));
        assert_eq!(status.code(), Code::FailedPrecondition);
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "NO_SUITABLE_TEMPLATE");
        assert_eq!(
            details.precondition_failure().unwrap().violations[0].subject,
            "spec.constraints"
        );
    }

    #[test]
    fn invalid_argument_names_each_field() {
        let error = Error::invalid("spec.functions[0].port", "0 isn't between 1 and 65535");
        let status = Status::from(error);
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_error_details();
        assert_eq!(
            details.bad_request().unwrap().field_violations[0].field,
            "spec.functions[0].port"
        );
    }

    #[test]
    fn api_server_errors_have_reasons_of_their_own() {
        let throttled = Status::from(Error::Throttled(Duration::from_secs(7)));
        assert_eq!(throttled.code(), Code::ResourceExhausted);
        let details = throttled.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "API_SERVER_THROTTLED");
        let delay = details.retry_info().unwrap().retry_delay;
        assert_eq!(delay, Some(Duration::from_secs(7)));

        let rejected = Status::from(Error::Unauthenticated("Unauthorized".to_owned()));
        assert_eq!(rejected.code(), Code::FailedPrecondition);
        let details = rejected.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "API_SERVER_UNAUTHENTICATED");
        assert!(details.retry_info().is_none());
    }
}
