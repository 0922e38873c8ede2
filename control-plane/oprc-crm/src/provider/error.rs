use super::MAX_BODY_BYTES;

/// Why a query has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("cannot reach Prometheus: {0}")]
    Unreachable(String),
    #[error("Prometheus did not answer in time")]
    Timeout,
    #[error("Prometheus answered with HTTP status {0}")]
    Status(u16),
    /// For example the HTML page of a login proxy.
    #[error("the server is not a Prometheus API: {0}")]
    NotPrometheus(String),
    /// The answer is well-formed and contradicts the query or itself.
    #[error("the answer is invalid: {0}")]
    Invalid(String),
    /// The answer, or all answers of a pass together.
    #[error("the answer is larger than {} MiB or has too many series or points", MAX_BODY_BYTES >> 20)]
    TooLarge,
    #[error("Prometheus rejected the query: {0}")]
    BadQuery(String),
    #[error("cannot read credentials: {0}")]
    Credentials(String),
    #[error("queries are paused after repeated failures")]
    BreakerOpen,
}

impl QueryError {
    /// A label for metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "Unreachable",
            Self::Timeout => "Timeout",
            Self::Status(_) => "Status",
            Self::NotPrometheus(_) => "NotPrometheus",
            Self::Invalid(_) => "Invalid",
            Self::TooLarge => "TooLarge",
            Self::BadQuery(_) => "BadQuery",
            Self::Credentials(_) => "Credentials",
            Self::BreakerOpen => "BreakerOpen",
        }
    }

    /// Whether another attempt may succeed at once.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Status(code) => *code >= 500,
            _ => false,
        }
    }

    /// Whether the failure is the server's. Those of a single query don't open the breaker.
    pub(super) fn is_outage(&self) -> bool {
        !matches!(self, Self::Invalid(_) | Self::TooLarge | Self::BadQuery(_) | Self::BreakerOpen)
    }
}
