//! From our errors to gRPC's: canonical codes, with details that programs can read.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, StatusExt as _};

use crate::service::Error;

/// Who says so.
const DOMAIN: &str = "oaas.io";
/// How much of what a client has sent may come back: an answer's headers aren't to grow with it.
const MESSAGE: usize = 1024;
const FIELD: usize = 256;
const VIOLATIONS: usize = 8;
/// When it may be worth another try.
const RETRY: Duration = Duration::from_secs(1);

/// What a client is told.
pub(super) fn status(error: &Error) -> Status {
    let message = bounded(&error.to_string(), MESSAGE);
    let info = |details: &mut ErrorDetails, reason: &str| {
        details.set_error_info(reason, DOMAIN, HashMap::new());
    };
    let mut details = ErrorDetails::new();
    let code = match error {
        Error::Invalid(violations) => {
            info(&mut details, "INVALID_SPEC");
            let all = violations.iter().take(VIOLATIONS);
            let all = all.map(|it| {
                FieldViolation::new(bounded(&it.field, FIELD), bounded(&it.message, FIELD))
            });
            let all: Vec<_> = all.collect();
            details.set_bad_request(all);
            Code::InvalidArgument
        }
        Error::Precondition(rejection) => {
            info(&mut details, &shouted(rejection.reason));
            let all = rejection.violations.iter().take(VIOLATIONS);
            let all = all.map(|it| {
                let (field, message) = (bounded(&it.field, FIELD), bounded(&it.message, FIELD));
                PreconditionViolation::new(rejection.reason, field, message)
            });
            let all: Vec<_> = all.collect();
            details.set_precondition_failure(all);
            Code::FailedPrecondition
        }
        Error::NotFound(_) => {
            info(&mut details, "NOT_FOUND");
            Code::NotFound
        }
        Error::AlreadyExists(_) => {
            info(&mut details, "NAME_TAKEN");
            Code::AlreadyExists
        }
        Error::Unavailable { reason, .. } => {
            info(&mut details, reason);
            details.set_retry_info(Some(RETRY));
            Code::Unavailable
        }
        Error::Internal(_) => {
            info(&mut details, "INTERNAL");
            Code::Internal
        }
    };
    Status::with_error_details(code, message, details)
}

/// What a client is told whose message has more bytes than it may have. To send it again is of no
/// use, unlike with others of its code.
pub(super) fn too_large() -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info("TOO_LARGE", DOMAIN, HashMap::new());
    let message = format!("a message may have {} bytes at most", super::MESSAGE);
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// The beginning of a text that is too long.
fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut kept = String::with_capacity(most);
    for letter in text.chars() {
        if kept.len() + letter.len_utf8() + 4 > most {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}

/// `NoSuitableTemplate` as `NO_SUITABLE_TEMPLATE`.
fn shouted(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len() + 4);
    for (at, letter) in reason.chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use oprc_unit::Rejection;

    #[test]
    fn a_precondition_carries_its_reason_and_field() {
        let rejection = Rejection::precondition("NoSuitableTemplate", "constraints", "too slow");
        let status = status(&Error::Precondition(rejection));
        assert_eq!(status.code(), Code::FailedPrecondition);
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "NO_SUITABLE_TEMPLATE");
        assert_eq!(details.precondition_failure().unwrap().violations[0].subject, "constraints");
    }

    #[test]
    fn bad_input_names_each_field() {
        let status =
            status(&Error::invalid("spec.functions[0].port", "0 isn't between 1 and 65535"));
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_error_details();
        assert_eq!(
            details.bad_request().unwrap().field_violations[0].field,
            "spec.functions[0].port"
        );
    }
}
