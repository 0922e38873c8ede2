//! What went wrong, as RFC 9457 has it.

use oprc_models::Diagnostic;

use crate::document;

document! {
    /// A problem document (`application/problem+json`).
    pub struct Problem {
        /// What kind of problem it is: a path of this server.
        #[serde(rename = "type")]
        pub kind: String,
        /// The kind, in words.
        pub title: String,
        /// The HTTP status.
        pub status: u16,
        /// What went wrong this time.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub detail: String,
        /// A word that programs can go by, such as `IN_USE`.
        pub reason: String,
        /// The request's correlation id.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub correlation_id: String,
        /// What is wrong with a document, place by place.
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub faults: Vec<Diagnostic>,
        /// Who or what stands in the way, such as the deployments that use a package.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub blockers: Vec<String>,
    }
}
