//! Responses of the proxy itself: problem documents (RFC 9457), or trailers-only responses for gRPC.

use std::time::Duration;

use bytes::Bytes;
use hyper::{
    HeaderMap, StatusCode,
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};

use crate::{
    grpc,
    metrics::{Outcome, RejectReason},
};

/// Why the proxy answers instead of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No connection to the function.
    Unreachable,
    /// The function closed the connection before it answered.
    ConnectionLost,
    Timeout,
    QueueFull,
    BreakerOpen {
        retry_after: Duration,
    },
}

impl Problem {
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Unreachable | Self::ConnectionLost => Outcome::Unreachable,
            Self::Timeout => Outcome::Timeout,
            Self::QueueFull | Self::BreakerOpen { .. } => Outcome::Rejected,
        }
    }

    pub(crate) fn reject_reason(self) -> Option<RejectReason> {
        match self {
            Self::QueueFull => Some(RejectReason::QueueFull),
            Self::BreakerOpen { .. } => Some(RejectReason::Breaker),
            Self::Unreachable | Self::ConnectionLost | Self::Timeout => None,
        }
    }

    /// Status, headers and body of the response.
    pub(crate) fn render(self, is_grpc: bool) -> (StatusCode, HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if is_grpc {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(grpc::MEDIA_TYPE));
            headers.insert(grpc::STATUS, HeaderValue::from(self.grpc_status()));
            headers.insert(grpc::MESSAGE, HeaderValue::from_static(self.detail()));
            return (StatusCode::OK, headers, Bytes::new());
        }
        let status = self.status();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        // The texts have no characters that JSON escapes.
        let body = format!(
            "{{\"title\":\"{}\",\"status\":{},\"detail\":\"{}\"}}\n",
            status.canonical_reason().unwrap_or_default(),
            status.as_u16(),
            self.detail()
        );
        (status, headers, body.into())
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Unreachable | Self::ConnectionLost => StatusCode::BAD_GATEWAY,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::QueueFull | Self::BreakerOpen { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn grpc_status(self) -> u16 {
        match self {
            Self::Unreachable | Self::ConnectionLost => grpc::UNAVAILABLE,
            Self::Timeout => grpc::DEADLINE_EXCEEDED,
            Self::QueueFull | Self::BreakerOpen { .. } => grpc::RESOURCE_EXHAUSTED,
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::Unreachable => "The function is not reachable.",
            Self::ConnectionLost => "The function closed the connection before it answered.",
            Self::Timeout => "The function did not answer within the timeout.",
            Self::QueueFull => "The function is at its concurrency limit and the queue is full.",
            Self::BreakerOpen { .. } => {
                "Most calls exceeded the hard latency. Calls are rejected until the function recovers."
            }
        }
    }

    fn retry_after_seconds(self) -> Option<u64> {
        match self {
            Self::QueueFull => Some(1),
            Self::BreakerOpen { retry_after } => {
                let rounded_up = retry_after + Duration::from_millis(999);
                Some(rounded_up.as_secs().max(1))
            }
            Self::Unreachable | Self::ConnectionLost | Self::Timeout => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_calls_get_a_problem_document() {
        let retry_after = Duration::from_millis(4100);
        let (status, headers, body) = Problem::BreakerOpen { retry_after }.render(false);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(headers[RETRY_AFTER], "5");
        assert_eq!(headers[CONTENT_TYPE], "application/problem+json");
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.starts_with(r#"{"title":"Service Unavailable","status":503,"detail":"Most"#));
    }

    #[test]
    fn grpc_calls_get_a_status() {
        let (status, headers, body) = Problem::Timeout.render(true);
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers[grpc::STATUS], "4");
        assert!(body.is_empty());
    }
}
