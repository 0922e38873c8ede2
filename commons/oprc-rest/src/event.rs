//! Events.

use crate::document;

document! {
    /// An event. Send its id as `Last-Event-ID` to resume a stream after it.
    pub struct Event {
        /// Id of the event.
        pub id: String,
        /// Time of the event.
        pub at: String,
        /// Type: `package.published`, `package.deprecated`, `package.undeprecated`,
        /// `package.deleted`, `deployment.created`, `deployment.updated`, `deployment.condition`,
        /// `deployment.deleted`, `unit.condition`, `cluster.health`, `orphan.found`, or `gap` if events
        /// were lost.
        #[serde(rename = "type")]
        pub kind: String,
        /// Package, deployment, unit or cluster that the event is about.
        pub subject: String,
        /// New condition of the subject.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub condition: String,
        /// Human-readable description.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// Correlation id of the request that caused it.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub correlation_id: String,
    }
}
