//! Failures, as RFC 9457 problem documents.

use oprc_models::Diagnostic;
pub use problem_details::{ProblemDetails, ProblemType};

use crate::document;

/// A problem document (`application/problem+json`).
pub type Problem = ProblemDetails<ProblemExtensions>;

document! {
    /// The members of a problem document that RFC 9457 doesn't define.
    pub struct ProblemExtensions {
        /// Machine-readable reason, such as `IN_USE`.
        pub reason: String,
        /// Correlation id of the request.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub correlation_id: String,
        /// Problems found in the submitted document, each with its position.
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub errors: Vec<Diagnostic>,
        /// What blocks the request, such as the deployments that use a package.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub blockers: Vec<String>,
    }
}
