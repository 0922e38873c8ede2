//! What happens, as it happens.

use crate::document;

document! {
    /// Something that has happened. Its id is where a stream goes on after a break
    /// (`Last-Event-ID`).
    pub struct Event {
        /// Its id.
        pub id: String,
        /// When.
        pub at: String,
        /// What: `package.published`, `package.deprecated`, `package.undeprecated`,
        /// `package.deleted`, `deployment.created`, `deployment.updated`, `deployment.condition`,
        /// `deployment.deleted`, `unit.condition`, `cluster.health`, `orphan.found`.
        #[serde(rename = "type")]
        pub kind: String,
        /// What it is about: a package, deployment, unit or cluster.
        pub subject: String,
        /// How it is now, in a word.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub condition: String,
        /// In a sentence.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// The correlation id of what led to it.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub correlation_id: String,
    }
}
