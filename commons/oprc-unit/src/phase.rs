//! The phase of a class, in the status of its ClassRuntime and in CRM's reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Phase of a class.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Waits to be reconciled.
    #[default]
    Pending,
    /// Objects are being applied.
    Applying,
    /// Objects are applied, but not all of them are ready.
    Progressing,
    /// All components are ready.
    Available,
    /// The class failed; see the reason.
    Degraded,
    /// The class is terminating.
    Deleting,
}

impl Phase {
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Applying,
        Self::Progressing,
        Self::Available,
        Self::Degraded,
        Self::Deleting,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Applying => "Applying",
            Self::Progressing => "Progressing",
            Self::Available => "Available",
            Self::Degraded => "Degraded",
            Self::Deleting => "Deleting",
        }
    }

    /// On the way to Available, without a failure.
    pub fn is_in_progress(self) -> bool {
        matches!(self, Self::Pending | Self::Applying | Self::Progressing)
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}
