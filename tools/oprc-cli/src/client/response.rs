//! Bodies and errors of responses.

use std::fmt::Write as _;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{StatusCode, body::Body};
use oprc_rest::{Problem, ProblemExtensions};

use crate::{error::CliError, output::sanitize};

const MAX_RESPONSE_BYTES: usize = 64 << 20;
pub(super) const MAX_PROBLEM_BYTES: usize = 1 << 20;
/// Of a response that is no problem document.
const MAX_SHOWN_CHARS: usize = 300;

pub(crate) async fn read_body<B>(body: B) -> Result<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
    let body = body.map_err(|error| {
        CliError::Unavailable(format!(
            "the connection was lost while reading the response: {error}"
        ))
    })?;
    Ok(body.to_bytes())
}

/// The error for a status other than success.
pub(super) fn to_error(status: StatusCode, body: &[u8]) -> CliError {
    let problem = serde_json::from_slice::<Problem>(body).ok();
    let message = match problem.filter(|it| it.title.is_some() || it.detail.is_some()) {
        Some(problem) => describe(&problem),
        None => {
            let text = String::from_utf8_lossy(body);
            // Any server may have responded: strip terminal control characters.
            let shown = text.chars().take(MAX_SHOWN_CHARS).filter(|it| !it.is_control());
            let text: String = shown.collect();
            format!("{status}: {text}")
        }
    };
    match status {
        StatusCode::NOT_FOUND => CliError::NotFound(message),
        StatusCode::UNAUTHORIZED => CliError::Rejected(format!(
            "{message}\n  hint: set a valid token with --token-file or `oprc context set NAME --token-file FILE`"
        )),
        StatusCode::TOO_MANY_REQUESTS => CliError::Unavailable(message),
        _ if status.is_server_error() => CliError::Unavailable(message),
        _ => CliError::Rejected(message),
    }
}

/// Detail, reason, violations and blocking objects, without terminal control characters.
fn describe(problem: &Problem) -> String {
    let ProblemExtensions { reason, correlation_id, errors, blockers } = &problem.extensions;
    let summary = problem.detail.as_deref().or(problem.title.as_deref());
    let mut text = sanitize(summary.unwrap_or_default());
    if !reason.is_empty() {
        let _ = write!(text, " ({})", sanitize(reason));
    }
    for error in errors {
        let _ = write!(text, "\n  {}", sanitize(&error.to_string()));
    }
    if !blockers.is_empty() {
        let _ = write!(text, "\n  blocked by: {}", sanitize(&blockers.join(", ")));
    }
    if !correlation_id.is_empty() {
        let _ = write!(text, "\n  correlation id: {}", sanitize(correlation_id));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_all_fields_of_a_problem() {
        let body = br#"{"type":"/problems/in-use","title":"In use","status":409,
            "detail":"hello 0.1.0 is in use","reason":"IN_USE","correlationId":"c1",
            "blockers":["deployment hello"],
            "errors":[{"path":"classes[0].key","source":"a.yaml","line":3,"column":7,
                       "message":"is missing","hint":"give it one"}]}"#;
        let error = to_error(StatusCode::CONFLICT, body);
        assert!(matches!(error, CliError::Rejected(_)));
        assert_eq!(
            error.to_string(),
            "hello 0.1.0 is in use (IN_USE)\n  \
             a.yaml:3:7: classes[0].key: is missing; give it one\n  \
             blocked by: deployment hello\n  correlation id: c1"
        );
    }

    #[test]
    fn strips_control_characters_from_other_responses() {
        let error = to_error(StatusCode::BAD_GATEWAY, b"<html>\x1b[2Jproxy\n");
        assert!(matches!(error, CliError::Unavailable(_)));
        assert_eq!(error.to_string(), "502 Bad Gateway: <html>[2Jproxy");
        assert!(matches!(to_error(StatusCode::NOT_FOUND, b"{}"), CliError::NotFound(_)));
        let body = br#"{"detail":"a\u001b[2Jb","reason":"\u001b]0;c","correlationId":"d\r",
            "blockers":["e\u009b2J"],"errors":[{"path":"f\u0007","message":"g\u0008"}]}"#;
        let text = to_error(StatusCode::CONFLICT, body).to_string();
        assert!(!text.contains(|it: char| it.is_control() && it != '\n'), "{text:?}");
        assert!("abcdefg".chars().all(|it| text.contains(it)), "{text:?}");
    }
}
