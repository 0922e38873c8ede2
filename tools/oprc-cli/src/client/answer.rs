//! What the package manager says no with, in words for people.

use std::fmt::Write as _;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{StatusCode, body::Incoming};
use oprc_rest::Problem;

use crate::{failure::Failure, output::clean};

/// How much of a problem is read.
pub(super) const MAX_PROBLEM: usize = 1 << 20;
/// How much of an answer is shown that is no problem document.
const SHOWN: usize = 300;

/// Everything that an error says, its causes included.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(told, ": {cause}");
        next = cause.source();
    }
    told
}

/// A body, whole.
pub(super) async fn whole(body: Limited<Incoming>) -> Result<Bytes> {
    let collected = body.collect().await;
    let collected =
        collected.map_err(|error| Failure::Away(format!("the answer broke off: {error}")))?;
    Ok(collected.to_bytes())
}

/// What an answer other than a success means.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    let problem = serde_json::from_slice::<Problem>(body).ok();
    let told = match problem.filter(|it| !it.title.is_empty() || !it.detail.is_empty()) {
        Some(problem) => tell(&problem),
        None => {
            let text: String = String::from_utf8_lossy(body).chars().take(SHOWN).collect();
            // What answers here may be anything: nothing that it says may steer a terminal.
            let text: String = text.chars().filter(|it| !it.is_control()).collect();
            format!("{status}: {text}")
        }
    };
    match status {
        StatusCode::NOT_FOUND => Failure::Missing(told),
        StatusCode::UNAUTHORIZED => Failure::Refused(format!(
            "{told}\n  hint: `oprc context set NAME --token-file FILE`, or --token-file"
        )),
        StatusCode::TOO_MANY_REQUESTS => Failure::Away(told),
        status if status.is_server_error() => Failure::Away(told),
        _ => Failure::Refused(told),
    }
}

/// A problem in words: what, where, and who stands in the way. Whoever answered, nothing of it may
/// steer a terminal.
fn tell(problem: &Problem) -> String {
    let Problem { title, detail, reason, correlation_id, .. } = problem;
    let mut told = clean(if detail.is_empty() { title } else { detail });
    if !reason.is_empty() {
        let _ = write!(told, " ({})", clean(reason));
    }
    for fault in &problem.faults {
        let _ = write!(told, "\n  {}", clean(&fault.to_string()));
    }
    if !problem.blockers.is_empty() {
        let _ = write!(told, "\n  in the way: {}", clean(&problem.blockers.join(", ")));
    }
    if !correlation_id.is_empty() {
        let _ = write!(told, "\n  correlation id: {}", clean(correlation_id));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_with_all_that_they_say() {
        let body = br#"{"type":"/problems/in-use","title":"In use","status":409,
            "detail":"hello 0.1.0 is in use","reason":"IN_USE","correlationId":"c1",
            "blockers":["deployment hello"],
            "faults":[{"path":"classes[0].key","source":"a.yaml","line":3,"column":7,
                       "message":"is missing","hint":"give it one"}]}"#;
        let failure = refusal(StatusCode::CONFLICT, body);
        assert!(matches!(failure, Failure::Refused(_)));
        assert_eq!(
            failure.to_string(),
            "hello 0.1.0 is in use (IN_USE)\n  \
             a.yaml:3:7: classes[0].key: is missing; give it one\n  \
             in the way: deployment hello\n  correlation id: c1"
        );
    }

    #[test]
    fn other_answers_are_shown_without_what_steers_terminals() {
        let failure = refusal(StatusCode::BAD_GATEWAY, b"<html>\x1b[2Jproxy\n");
        assert!(matches!(failure, Failure::Away(_)));
        assert_eq!(failure.to_string(), "502 Bad Gateway: <html>[2Jproxy");
        assert!(matches!(refusal(StatusCode::NOT_FOUND, b"{}"), Failure::Missing(_)));
        let body = br#"{"detail":"a\u001b[2Jb","reason":"\u001b]0;c","correlationId":"d\r",
            "blockers":["e\u009b2J"],"faults":[{"path":"f\u0007","message":"g\u0008"}]}"#;
        let told = refusal(StatusCode::CONFLICT, body).to_string();
        assert!(!told.contains(|it: char| it.is_control() && it != '\n'), "{told:?}");
        assert!("abcdefg".chars().all(|it| told.contains(it)), "{told:?}");
    }
}
