//! Maps errors to gRPC statuses: canonical codes with machine-readable details.

use std::{collections::HashMap, time::Duration};

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

pub(super) fn status(error: &Error) -> Status {
    let message = truncate(&error.to_string(), MAX_MESSAGE);
    let info = |details: &mut ErrorDetails, reason: Reason| {
        details.set_error_info(reason.grpc(), DOMAIN, HashMap::new());
    };
    let mut details = ErrorDetails::new();
    let code = match error {
        Error::Invalid(violations) => {
            info(&mut details, Reason::InvalidSpec);
            let all = violations.iter().take(MAX_VIOLATIONS);
            let all = all.map(|it| {
                FieldViolation::new(
                    truncate(&it.field, MAX_FIELD),
                    truncate(&it.message, MAX_FIELD),
                )
            });
            let all: Vec<_> = all.collect();
            details.set_bad_request(all);
            Code::InvalidArgument
        }
        Error::Precondition { reason, violations, .. } => {
            info(&mut details, *reason);
            let all = violations.iter().take(MAX_VIOLATIONS);
            let all = all.map(|it| {
                let (field, message) =
                    (truncate(&it.field, MAX_FIELD), truncate(&it.message, MAX_FIELD));
                PreconditionViolation::new(reason.as_str(), field, message)
            });
            let all: Vec<_> = all.collect();
            details.set_precondition_failure(all);
            Code::FailedPrecondition
        }
        Error::NotFound(_) => {
            info(&mut details, Reason::NotFound);
            Code::NotFound
        }
        Error::AlreadyExists(_) => {
            info(&mut details, Reason::NameTaken);
            Code::AlreadyExists
        }
        Error::Unavailable { reason, .. } => {
            info(&mut details, *reason);
            details.set_retry_info(Some(RETRY_DELAY));
            Code::Unavailable
        }
        Error::Throttled(pause) => {
            info(&mut details, Reason::ApiServerThrottled);
            details.set_retry_info(Some(*pause));
            Code::ResourceExhausted
        }
        // Not UNAUTHENTICATED, which would be about the caller's credentials, and not UNAVAILABLE,
        // which clients retry without end.
        Error::Unauthenticated(_) => {
            info(&mut details, Reason::ApiServerUnauthenticated);
            Code::FailedPrecondition
        }
        Error::Internal(_) => {
            info(&mut details, Reason::Internal);
            Code::Internal
        }
    };
    Status::with_error_details(code, message, details)
}

/// The status for a message over the size limit. Unlike with others of its code, a retry is of no
/// use.
pub(super) fn too_large() -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(Reason::TooLarge.grpc(), DOMAIN, HashMap::new());
    let message = format!("the message is larger than the limit of {} bytes", super::MAX_MESSAGE);
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// Cuts a text to at max `max` bytes.
fn truncate(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut kept = String::with_capacity(max);
    for letter in text.chars() {
        if kept.len() + letter.len_utf8() + 4 > max {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use oprc_unit::{Rejection, RejectionReason};

    use super::*;

    #[test]
    fn precondition_carries_reason_and_field() {
        let reason = RejectionReason::NoSuitableTemplate;
        let rejection = Rejection::precondition(reason, "constraints", "too slow");
        let status = status(&Error::from(rejection));
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
        let status =
            status(&Error::invalid("spec.functions[0].port", "0 isn't between 1 and 65535"));
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_error_details();
        assert_eq!(
            details.bad_request().unwrap().field_violations[0].field,
            "spec.functions[0].port"
        );
    }

    #[test]
    fn api_server_errors_have_reasons_of_their_own() {
        let throttled = status(&Error::Throttled(Duration::from_secs(7)));
        assert_eq!(throttled.code(), Code::ResourceExhausted);
        let details = throttled.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "API_SERVER_THROTTLED");
        let delay = details.retry_info().unwrap().retry_delay;
        assert_eq!(delay, Some(Duration::from_secs(7)));

        let rejected = status(&Error::Unauthenticated("Unauthorized".to_owned()));
        assert_eq!(rejected.code(), Code::FailedPrecondition);
        let details = rejected.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "API_SERVER_UNAUTHENTICATED");
        assert!(details.retry_info().is_none());
    }
}
