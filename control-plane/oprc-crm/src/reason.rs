//! Why something is as it is: one closed set for conditions, status, Events, metrics and gRPC.
//! `docs/troubleshooting.md` explains each reason that asks for action.

use std::fmt;

use oprc_unit::{PassiveReason, RejectionReason};

/// How a reason is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonClass {
    /// Not a failure.
    Normal,
    /// Reported at once: CRM can't resolve it.
    Permanent,
    /// May resolve by itself: reported when it persists.
    Transient,
}

/// What a changed message means while the reason stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageChange {
    /// Worth a status write.
    Significant,
    /// Not worth a write if only words with digits differ: the API server's messages contain
    /// request ids, ports and counters.
    NumbersVary,
    /// Never worth a write: the message contains generated pod names and counters.
    Volatile,
}

macro_rules! reasons {
    ($($name:ident: $class:ident $message:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($name,)* }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The reason in conditions, status and Events, and the metric label `reason`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub fn class(self) -> ReasonClass {
                match self { $(Self::$name => ReasonClass::$class,)* }
            }

            pub fn message_change(self) -> MessageChange {
                match self { $(Self::$name => MessageChange::$message,)* }
            }
        }
    };
}

reasons! {
    // Conditions and Events of classes without a failure.
    Applied: Normal Significant,
    AsExpected: Normal Significant,
    Available: Normal Significant,
    Complete: Normal Significant,
    Deleting: Normal Significant,
    Disabled: Normal Significant,
    ForeignAutoscaler: Normal Significant,
    NoContainer: Normal Significant,
    NotEnforced: Normal Significant,
    Paused: Normal Significant,
    Progressing: Normal Significant,
    TemplateSelected: Normal Significant,
    WaitingForDataGrid: Normal Significant,
    WaitingForDeletion: Normal Significant,
    // The specification is rejected.
    DataAtRisk: Permanent Significant,
    InvalidSpec: Permanent Significant,
    NoSuitableTemplate: Permanent Significant,
    OdgmDisabled: Permanent Significant,
    TemplateRejected: Permanent Significant,
    UnknownTemplate: Permanent Significant,
    // An object can't be written.
    ApiServerFails: Transient NumbersVary,
    Conflict: Transient NumbersVary,
    Forbidden: Permanent NumbersVary,
    KindMissing: Permanent Significant,
    NameTaken: Permanent Significant,
    QuotaExceeded: Transient Volatile,
    Rejected: Permanent NumbersVary,
    // A component doesn't become ready.
    ContainerNotCreated: Permanent Volatile,
    CrashLoop: Permanent Volatile,
    ImagePullFailed: Permanent Volatile,
    JobFailed: Permanent Significant,
    KnativeNotReady: Permanent Significant,
    PodsNotCreated: Permanent Volatile,
    ProgressDeadlineExceeded: Permanent Significant,
    RolledBack: Permanent Significant,
    Unschedulable: Transient Volatile,
    VolumeNotBound: Transient Significant,
    // An Event for a class that became Degraded; its note begins with the reason.
    Failed: Permanent Significant,
    // Only in gRPC responses.
    ApiServerThrottled: Transient Significant,
    ApiServerUnauthenticated: Permanent Significant,
    ApiServerUnavailable: Transient Significant,
    ClusterRefuses: Permanent Significant,
    CrdMissing: Transient Significant,
    Internal: Permanent Significant,
    NamespaceMissing: Permanent Significant,
    NoAddress: Transient Significant,
    NoOdgm: Permanent Significant,
    NotFound: Permanent Significant,
    NotReady: Transient Significant,
    OdgmUnavailable: Transient Significant,
    TooLarge: Permanent Significant,
    WebhookUnavailable: Transient Significant,
}

impl Reason {
    /// A reason as it was read from a status. None for one that this version doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    pub fn is_transient(self) -> bool {
        self.class() == ReasonClass::Transient
    }

    /// The reason in `google.rpc.ErrorInfo`, such as `NO_SUITABLE_TEMPLATE`.
    pub fn grpc(self) -> String {
        let mut text = String::with_capacity(self.as_str().len() + 4);
        for (at, letter) in self.as_str().chars().enumerate() {
            if at > 0 && letter.is_ascii_uppercase() {
                text.push('_');
            }
            text.push(letter.to_ascii_uppercase());
        }
        text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl From<RejectionReason> for Reason {
    fn from(reason: RejectionReason) -> Self {
        match reason {
            RejectionReason::InvalidSpec => Self::InvalidSpec,
            RejectionReason::OdgmDisabled => Self::OdgmDisabled,
            RejectionReason::DataAtRisk => Self::DataAtRisk,
            RejectionReason::UnknownTemplate => Self::UnknownTemplate,
            RejectionReason::TemplateRejected => Self::TemplateRejected,
            RejectionReason::NoSuitableTemplate => Self::NoSuitableTemplate,
        }
    }
}

impl From<PassiveReason> for Reason {
    fn from(reason: PassiveReason) -> Self {
        match reason {
            PassiveReason::Disabled => Self::Disabled,
            PassiveReason::NoContainer => Self::NoContainer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_on_the_troubleshooting_page() {
        let page = std::fs::read_to_string(crate::workspace().join("docs/troubleshooting.md"));
        let page = page.unwrap();
        let missing: Vec<_> =
            Reason::ALL.iter().filter(|it| !page.contains(&format!("| `{it}` |"))).collect();
        assert!(missing.is_empty(), "not in docs/troubleshooting.md: {missing:?}");
    }

    #[test]
    fn reasons_are_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(Reason::parse("Unheard"), None);
        assert_eq!(Reason::NoSuitableTemplate.grpc(), "NO_SUITABLE_TEMPLATE");
    }
}
