//! Errors of the data grid, of the API server in front of it, and what to do about them.

use std::fmt::Write as _;

use hyper::StatusCode;
use serde::Deserialize;

use crate::{error::CliError, output::sanitize};

const MAX_SHOWN_CHARS: usize = 300;

/// A response other than success.
#[derive(Debug)]
pub(super) struct GridProblem {
    pub(super) status: StatusCode,
    /// Empty if the data grid didn't respond.
    pub(super) reason: String,
    detail: String,
    /// Where the object is, if another member of the deployment has it.
    pub(super) member: Option<MemberPlace>,
}

/// The place of a member of a deployment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemberPlace {
    pub(super) cluster: String,
    /// Empty: no environment.
    pub(super) environment: String,
}

/// The fields of a problem document, or of the `Status` of an API server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProblemDocument {
    kind: String,
    message: String,
    title: String,
    detail: String,
    reason: String,
    cluster: String,
    environment: String,
}

impl GridProblem {
    pub(super) fn parse(status: StatusCode, body: &[u8]) -> Self {
        let document: ProblemDocument = serde_json::from_slice(body).unwrap_or_default();
        let ProblemDocument { kind, message, title, detail, reason, cluster, environment } =
            document;
        if kind == "Status" && !message.is_empty() {
            let (reason, detail) = (String::new(), sanitize(&message));
            return Self { status, reason, detail, member: None };
        }
        let detail = match (detail.as_str(), title.as_str()) {
            ("", "") => {
                let text: String =
                    String::from_utf8_lossy(body).chars().take(MAX_SHOWN_CHARS).collect();
                format!("{status}: {text}")
            }
            ("", title) => title.to_owned(),
            (detail, _) => detail.to_owned(),
        };
        let is_elsewhere = reason == "OTHER_MEMBER";
        let member = is_elsewhere.then_some(MemberPlace { cluster, environment });
        Self { status, reason: sanitize(&reason), detail: sanitize(&detail), member }
    }

    /// Whether the data grid says that the request had no effect and may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE && !self.reason.is_empty()
    }

    /// Whether the request may have had an effect, but may also succeed if it is sent again.
    pub(super) fn is_ambiguous(&self) -> bool {
        let by_api_server = self.reason.is_empty()
            && matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY);
        by_api_server || matches!(self.reason.as_str(), "UNKNOWN_OUTCOME" | "DEADLINE_EXCEEDED")
    }

    /// In one line.
    pub(super) fn summary(&self) -> &str {
        &self.detail
    }

    /// `name` is what the user calls the class.
    pub(super) fn into_error(self, name: &str) -> CliError {
        let Self { status, reason, detail, .. } = &self;
        let mut text = detail.clone();
        if !reason.is_empty() {
            let _ = write!(text, " ({reason})");
        }
        let _ = write!(text, "\nhint: {}", hint(*status, reason).replace("NAME", name));
        match reason.as_str() {
            "REFUSED_BY_FUNCTION"
            | "FUNCTION_FAILED"
            | "INVALID_RESPONSE"
            | "IMMUTABLE"
            | "STEP_FAILED" => CliError::Failed(text),
            _ if *status == StatusCode::NOT_FOUND => CliError::NotFound(text),
            _ if *status == StatusCode::TOO_MANY_REQUESTS => CliError::Unavailable(text),
            _ if status.is_server_error() => CliError::Unavailable(text),
            _ => CliError::Rejected(text),
        }
    }
}

/// What to do, with `NAME` for the class.
fn hint(status: StatusCode, reason: &str) -> &'static str {
    match reason {
        "NOT_FOUND" => "create it with `oprc object put NAME`, or see `oprc object list NAME`",
        "OTHER_MEMBER" => {
            "omit --cluster, --env, --grid-url, --kubeconfig and --kube-context, or give those of this member"
        }
        "UNKNOWN_METHOD" => "`oprc class list` and `oprc class get` show the methods of a class",
        "UNKNOWN_COLLECTION" => "`oprc grid status NAME` lists the collections",
        "INVALID_ID" | "INVALID_REQUEST" | "INVALID_HEADER" | "INVALID_IDEMPOTENCY_KEY" => {
            "correct the argument; `--help` has examples"
        }
        "FORBIDDEN" => {
            "what is PRIVATE is only for the functions of its class; change the access in the package"
        }
        "ADMIN_ONLY" => {
            "run `kubectl port-forward POD 8084` with a pod of the data grid, and repeat with \
             --grid-url http://localhost:8084"
        }
        "CHANGED" => "read it again with `oprc object get NAME`, then repeat with its ETag",
        "INVALID_STATE" | "UNKNOWN_REFERENCE" => {
            "`oprc class get` shows the keys and references of the state"
        }
        "IMMUTABLE" => {
            "set accessMode of the function to READ_WRITE, or don't return another state"
        }
        "CONDITION_FALSE" | "CONDITION_FAILED" => {
            "the binding has a condition; check the state of the object and the arguments"
        }
        "STEP_FAILED" | "UNRESOLVED_REFERENCE" | "OTHER_GRID" => {
            "earlier steps of the macro stay as they are; correct the cause and repeat the call"
        }
        "EVENTS_PENDING" => "`oprc grid events NAME` shows events that block the object",
        "TOO_LARGE" | "UNSTORABLE" => "send less, or split the object",
        "IDEMPOTENCY_KEY_REUSED" => "use a new --idempotency-key for each call",
        "REENTRANT" => {
            "a function can't call the object that it was called for; return the change instead"
        }
        "OVERLOADED" => "retry later, or spread the calls over more objects",
        "REFUSED_BY_FUNCTION" => "correct the arguments, or the state of the object",
        "FUNCTION_FAILED" | "INVALID_RESPONSE" | "FUNCTION_TIMEOUT" => {
            "`oprc logs NAME` shows the log of the function"
        }
        "FUNCTION_UNREACHABLE" => "`oprc status NAME --pods` shows the pods of the function",
        "UNKNOWN_OUTCOME" | "DEADLINE_EXCEEDED" => {
            "repeat the call with the same --idempotency-key"
        }
        "CORRUPT" => "deploy a new class and restore a backup with `oprc grid restore`",
        "NOT_EMPTY" => "restore into a new class, or delete its objects first",
        "" if status == StatusCode::NOT_FOUND => {
            "the data grid has no Service, or it doesn't support this; see `oprc status NAME --pods`"
        }
        "" if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN => {
            "the credentials of the kubeconfig need the verbs get and create for services/proxy"
        }
        _ => {
            "`oprc grid status NAME` and `oprc status NAME --pods` show the state of the data grid"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, body: &str) -> CliError {
        let status = StatusCode::from_u16(status).unwrap();
        GridProblem::parse(status, body.as_bytes()).into_error("shop")
    }

    #[test]
    fn errors_say_what_to_do() {
        let body =
            r#"{"title":"Not Found","detail":"there is no object \"a\"","reason":"NOT_FOUND"}"#;
        let found = error(404, body);
        assert!(matches!(found, CliError::NotFound(_)));
        assert_eq!(
            found.to_string(),
            "there is no object \"a\" (NOT_FOUND)\n\
             hint: create it with `oprc object put shop`, or see `oprc object list shop`"
        );
        let refused = error(409, r#"{"detail":"sold out","reason":"REFUSED_BY_FUNCTION"}"#);
        assert!(matches!(refused, CliError::Failed(_)));
        let changed = error(412, r#"{"detail":"version 3","reason":"CHANGED"}"#);
        assert!(matches!(changed, CliError::Rejected(_)));
        let private = error(403, r#"{"detail":"PRIVATE","reason":"ADMIN_ONLY"}"#).to_string();
        assert!(private.contains("--grid-url http://localhost:8084"), "{private}");
        let body = r#"{"kind":"Status","message":"no endpoints available for service","reason":"ServiceUnavailable"}"#;
        let down = error(503, body);
        assert!(matches!(down, CliError::Unavailable(_)));
        assert!(down.to_string().starts_with("no endpoints available for service\nhint: "));
        // Of a later version of the data grid.
        let unknown = error(409, r#"{"detail":"no","reason":"SOMETHING_NEW"}"#).to_string();
        assert!(unknown.contains("hint: `oprc grid status shop`"), "{unknown}");
        assert!(error(502, "<html>\u{1b}[2J").to_string().starts_with("502 Bad Gateway: <html>"));
    }

    #[test]
    fn another_member_is_named_by_its_place() {
        let parse =
            |body: &str| GridProblem::parse(StatusCode::MISDIRECTED_REQUEST, body.as_bytes());
        let elsewhere = parse(r#"{"detail":"d","reason":"OTHER_MEMBER","cluster":"west"}"#);
        let place = MemberPlace { cluster: "west".to_owned(), environment: String::new() };
        assert_eq!(elsewhere.member, Some(place));
        assert!(elsewhere.into_error("shop").to_string().contains("hint: omit --cluster"));
        assert_eq!(parse(r#"{"detail":"d","reason":"OTHER","cluster":"west"}"#).member, None);
    }

    #[test]
    fn only_the_data_grid_knows_that_nothing_was_changed() {
        let parsed = |status: u16, body: &str| {
            let problem =
                GridProblem::parse(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            (problem.is_transient(), problem.is_ambiguous())
        };
        assert_eq!(parsed(503, r#"{"detail":"no","reason":"UNAVAILABLE"}"#), (true, false));
        assert_eq!(parsed(503, r#"{"kind":"Status","message":"EOF"}"#), (false, true));
        assert_eq!(parsed(504, r#"{"detail":"no","reason":"UNKNOWN_OUTCOME"}"#), (false, true));
        assert_eq!(parsed(504, r#"{"detail":"no","reason":"FUNCTION_TIMEOUT"}"#), (false, false));
        assert_eq!(parsed(404, r#"{"detail":"no","reason":"NOT_FOUND"}"#), (false, false));
    }
}
