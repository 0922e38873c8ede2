//! Failures as canonical codes, with their reason.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{Error, member::Member};

/// The domain of `ErrorInfo`.
const DOMAIN: &str = "oaas.io";
/// It travels in headers.
const MAX_MESSAGE_CHARS: usize = 1024;

fn code(error: &Error) -> Code {
    match error {
        Error::InvalidId(_)
        | Error::InvalidIdempotencyKey(_)
        | Error::UnknownReference(_)
        | Error::InvalidState { .. }
        | Error::ConditionFailed { .. }
        | Error::TooLarge { .. }
        | Error::TooMany { .. }
        | Error::UnresolvedReference(_)
        | Error::Unstorable(_) => Code::InvalidArgument,
        Error::UnknownCollection(_) | Error::NotFound(_) | Error::UnknownMethod(_) => {
            Code::NotFound
        }
        Error::Forbidden { .. } | Error::CallEnded => Code::PermissionDenied,
        Error::Changed { .. } => Code::Aborted,
        Error::ConditionFalse(_)
        | Error::Reentrant(_)
        | Error::TooDeep(_)
        | Error::IdempotencyKeyReused
        | Error::Refused { .. }
        | Error::OtherMember(_)
        | Error::OtherGrid { status: 400..=499, .. } => Code::FailedPrecondition,
        Error::Overloaded { .. } | Error::EventsPending(_) | Error::ResultsFull(_) => {
            Code::ResourceExhausted
        }
        Error::Running
        | Error::FunctionUnreachable(_)
        | Error::NotOwner(_)
        | Error::Unavailable(_)
        | Error::OtherGrid { status: 503, .. } => Code::Unavailable,
        Error::FunctionTimeout(_)
        | Error::DeadlineExceeded(_)
        | Error::OtherGrid { status: 504, .. } => Code::DeadlineExceeded,
        Error::FunctionFailed(_)
        | Error::InvalidResponse(_)
        | Error::Immutable(_)
        | Error::OtherGrid { .. } => Code::Internal,
        Error::UnknownOutcome(_) => Code::Unknown,
        Error::Corrupt(_) => Code::DataLoss,
        // The object of the macro exists, and the caller may call it.
        Error::StepFailed { error, .. } => match code(error) {
            Code::NotFound | Code::PermissionDenied | Code::Aborted => Code::FailedPrecondition,
            code => code,
        },
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut metadata = HashMap::new();
        if let Error::StepFailed { step, error } = &error {
            metadata.insert("step".to_owned(), step.clone());
            metadata.insert("cause".to_owned(), error.reason().to_owned());
        }
        if let Error::OtherMember(other) = &error {
            let Member { id, cluster, environment, url } = &other.member;
            metadata.insert("member".to_owned(), id.to_string());
            metadata.insert("cluster".to_owned(), cluster.clone());
            let optional = [("environment", environment), ("url", url)];
            let optional = optional.into_iter().filter_map(|(key, it)| Some((key, it.clone()?)));
            metadata.extend(optional.map(|(key, value)| (key.to_owned(), value)));
        }
        let details = ErrorDetails::with_error_info(error.reason(), DOMAIN, metadata);
        let message: String = error.to_string().chars().take(MAX_MESSAGE_CHARS).collect();
        Status::with_error_details(code(&error), message, details)
    }
}
