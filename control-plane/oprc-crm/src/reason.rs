//! Why something is as it is: one closed set for conditions, status, Events, metrics and gRPC.
//! `docs/troubleshooting.md` explains each reason that asks for action.

use std::fmt;

use oprc_unit::{PassiveReason, RejectionReason};

/// Why a write failed, or why a component isn't ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub message: String,
}

macro_rules! reasons {
    ($($name:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($name,)* }

        impl Reason {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The reason in conditions, status and Events, and the metric label `reason`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

reasons! {
    // Conditions and Events of classes without a failure.
    Applied,
    AsExpected,
    Available,
    Complete,
    DataGridStorageLow,
    Deleting,
    Disabled,
    ForeignAutoscaler,
    NoContainer,
    Paused,
    Progressing,
    TemplateSelected,
    WaitingForDataGrid,
    WaitingForDeletion,
    WaitingForGridNodes,
    // The specification is rejected.
    DataAtRisk,
    InvalidSpec,
    NoSuitableTemplate,
    OdgmDisabled,
    TemplateRejected,
    UnknownTemplate,
    // An object can't be written.
    ApiServerError,
    Conflict,
    Forbidden,
    KindMissing,
    NameConflict,
    QuotaExceeded,
    Rejected,
    // A component doesn't become ready.
    ContainerNotCreated,
    CrashLoop,
    ImagePullFailed,
    JobFailed,
    KnativeNotReady,
    PodsNotCreated,
    ProgressDeadlineExceeded,
    RolledBack,
    Unschedulable,
    VolumeNotBound,
    // Whether requirements are measured and met.
    Enforced,
    EnforcementDisabled,
    EnforcementFrozen,
    InstancesMissing,
    LimitReached,
    Measured,
    MissingCRDs,
    NFRApplied,
    NFRRecovered,
    NFRViolated,
    NoData,
    NoEffect,
    OOMKilled,
    PrometheusDisabled,
    PrometheusUnavailable,
    // An Event for a class that became Degraded; its note begins with the reason.
    Failed,
    // Only in gRPC responses.
    AdmissionDenied,
    ApiServerThrottled,
    ApiServerUnauthenticated,
    ApiServerUnavailable,
    CrdMissing,
    DataGridNotEnabled,
    Internal,
    NamespaceMissing,
    NotFound,
    NotReady,
    OdgmUnavailable,
    ServiceAddressPending,
    TooLarge,
    WebhookUnavailable,
}

impl Reason {
    /// A reason as it was read from a status. None for one that this version doesn't know.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// Whether a component with this problem may become ready by itself: it makes a class Degraded
    /// only after the deadline.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::QuotaExceeded
                | Self::Unschedulable
                | Self::VolumeNotBound
                | Self::WaitingForGridNodes
        )
    }

    /// The part of a message whose change, while the reason stays the same, is worth a status write.
    pub fn material_part(self, message: &str) -> String {
        match self {
            // It contains generated pod names and counters.
            Self::ContainerNotCreated
            | Self::CrashLoop
            | Self::ImagePullFailed
            | Self::PodsNotCreated
            | Self::QuotaExceeded
            | Self::Unschedulable => String::new(),
            // The API server's messages contain request ids, ports and counters.
            Self::ApiServerError | Self::Conflict | Self::Forbidden | Self::Rejected => {
                let words = message.split(|it: char| !it.is_alphanumeric());
                let plain = words.filter(|word| !word.contains(|it: char| it.is_ascii_digit()));
                plain.collect::<Vec<_>>().join(" ")
            }
            _ => message.to_owned(),
        }
    }

    /// The reason in `google.rpc.ErrorInfo`, such as `NO_SUITABLE_TEMPLATE`.
    pub fn grpc(self) -> String {
        upper_snake_case(self.as_str())
    }
}

/// The canonical name of a gRPC status code, such as `DEADLINE_EXCEEDED`.
pub fn code_name(code: tonic::Code) -> String {
    upper_snake_case(&format!("{code:?}"))
}

fn upper_snake_case(camel_case: &str) -> String {
    let mut text = String::with_capacity(camel_case.len() + 4);
    for (at, letter) in camel_case.chars().enumerate() {
        if at > 0 && letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
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
        assert_eq!(code_name(tonic::Code::Ok), "OK");
        assert_eq!(code_name(tonic::Code::DeadlineExceeded), "DEADLINE_EXCEEDED");
    }
}
