//! Errors that the server reports, and those of answers that aren't understood.

use serde::Deserialize;

use crate::provider::QueryError;

/// Bound on texts of the server in error messages.
pub(super) const MAX_MESSAGE: usize = 300;

#[derive(Default, Deserialize)]
pub(super) struct ErrorFields {
    #[serde(rename = "errorType")]
    pub(super) error_type: Option<String>,
    pub(super) error: Option<String>,
}

/// The error in an answer with another HTTP status.
pub(in crate::provider) fn parse_error(status: u16, body: &[u8]) -> QueryError {
    let answer = serde_json::from_slice::<ErrorFields>(body).ok();
    answer.as_ref().and_then(rejection).unwrap_or(QueryError::Status(status))
}

pub(super) fn rejection(answer: &ErrorFields) -> Option<QueryError> {
    let message = || shortened(answer.error.as_deref().unwrap_or("no message"));
    match answer.error_type.as_deref()? {
        "timeout" => Some(QueryError::Timeout),
        "bad_data" | "execution" => Some(QueryError::BadQuery(message())),
        _ => None,
    }
}

pub(super) fn not_json(error: &serde_json::Error) -> QueryError {
    // Only `LimitedReader` fails.
    if error.is_io() { QueryError::TooLarge } else { not_prometheus(&error.to_string()) }
}

pub(super) fn not_prometheus(reason: &str) -> QueryError {
    QueryError::NotPrometheus(shortened(reason))
}

/// On one line, because it ends up in logs and conditions.
pub(super) fn shortened(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_MESSAGE).map(plain).collect()
}
