//! Errors of client requests.

use std::time::Duration;

use oprc_unit::{Rejection, Violation, names};

use crate::reason::Reason;

/// The pause for clients when the API server names none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Nothing was changed when a request fails with one of these.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", join(.0))]
    Invalid(Vec<Violation>),
    /// The request is valid, but can't be served in the current state of the class or the cluster.
    #[error("{message}")]
    Precondition { reason: Reason, message: String, violations: Vec<Violation> },
    #[error("class {0:?} not found")]
    NotFound(String),
    /// Another class has the name.
    #[error("{0}")]
    AlreadyExists(String),
    /// Worth a retry.
    #[error("{message}")]
    Unavailable { reason: Reason, message: String },
    /// The API server throttles CRM.
    #[error("the Kubernetes API server throttles CRM's requests; retry after {} s", .0.as_secs().max(1))]
    Throttled(Duration),
    /// The API server rejects CRM's own credentials, not those of the caller.
    #[error("the Kubernetes API server rejects CRM's credentials: {0}; check its service account")]
    Unauthenticated(String),
    /// Invariant violated; a bug.
    #[error("{0}")]
    Internal(String),
}

fn join(violations: &[Violation]) -> String {
    let all = violations.iter().map(|it| format!("{}: {}", it.field, it.message));
    all.collect::<Vec<_>>().join("; ")
}

impl Error {
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Violation { field: field.into(), message: message.into() }])
    }

    /// One field can't be served in the current state of the class or the cluster.
    pub(super) fn precondition(reason: Reason, field: &str, message: String) -> Self {
        let violation = Violation { field: field.to_owned(), message: message.clone() };
        Self::Precondition { reason, message, violations: vec![violation] }
    }

    pub(super) fn deleting(id: &str) -> Self {
        let message = format!("{id} is being deleted; retry after it is deleted");
        Self::Unavailable { reason: Reason::Deleting, message }
    }

    pub(super) fn name_conflict(id: &str) -> Self {
        let name = names::class_runtime(id);
        Self::AlreadyExists(format!("{id:?} needs the name {name}, which another ClassRuntime has"))
    }

    fn crd_missing() -> Self {
        Self::Unavailable {
            reason: Reason::CrdMissing,
            message: "the ClassRuntime CRD is not installed; apply k8s/crds".to_owned(),
        }
    }

    fn permission_missing(message: &str) -> Self {
        Self::Internal(format!("CRM lacks a permission in the cluster: {message}"))
    }

    fn api_server_unavailable() -> Self {
        Self::Unavailable {
            reason: Reason::ApiServerUnavailable,
            message: "the Kubernetes API server is unavailable".to_owned(),
        }
    }

    /// The error for a failed read; `None` is a timeout. `retry_after` is the delay that the
    /// API server requested last.
    pub(super) fn of_read(error: Option<kube::Error>, retry_after: Option<Duration>) -> Self {
        if let Some(error) = Self::of_any(error.as_ref(), retry_after) {
            return error;
        }
        match error {
            Some(kube::Error::Api(status)) if status.code == 404 => Self::crd_missing(),
            Some(kube::Error::Api(status)) if status.code == 403 => {
                Self::permission_missing(&status.message)
            }
            Some(error) => {
                tracing::debug!(%error, "read failed");
                Self::api_server_unavailable()
            }
            None => Self::api_server_unavailable(),
        }
    }

    /// Errors that mean the same for reads and writes.
    fn of_any(error: Option<&kube::Error>, retry_after: Option<Duration>) -> Option<Self> {
        let Some(kube::Error::Api(status)) = error else { return None };
        match status.code {
            401 => Some(Self::Unauthenticated(status.message.clone())),
            429 => {
                let seconds = status.details.as_ref().map_or(0, |it| it.retry_after_seconds);
                let in_body = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                Some(Self::Throttled(in_body.or(retry_after).unwrap_or(DEFAULT_RETRY_AFTER)))
            }
            _ => None,
        }
    }

    /// The error for a failed write, with the same arguments as [`Self::of_read`].
    pub(super) fn of_write(
        error: Option<kube::Error>,
        id: &str,
        retry_after: Option<Duration>,
    ) -> Self {
        if let Some(error) = Self::of_any(error.as_ref(), retry_after) {
            return error;
        }
        let Some(kube::Error::Api(status)) = error else {
            if let Some(error) = error {
                tracing::debug!(%error, "write failed");
            }
            return Self::api_server_unavailable();
        };
        let status = *status;
        let message = status.message;
        match status.code {
            400 | 422 if message.contains(TAKEN) => Self::name_conflict(id),
            400 | 422 => {
                let causes = status.details.into_iter().flat_map(|it| it.causes);
                let violations: Vec<_> = causes
                    .map(|cause| Violation { field: cause.field, message: cause.message })
                    .collect();
                if violations.is_empty() {
                    Self::invalid("spec", message)
                } else {
                    Self::Invalid(violations)
                }
            }
            // The text of the API server's RBAC authorizer.
            403 if message.contains("is forbidden: User \"") => Self::permission_missing(&message),
            403 => Self::precondition(Reason::AdmissionDenied, "namespace", message),
            413 => Self::invalid("spec", "is larger than the API server accepts"),
            404 if message.contains("namespaces") => {
                Self::precondition(Reason::NamespaceMissing, "namespace", message)
            }
            404 if message.contains("classruntimes") => Self::NotFound(id.to_owned()),
            404 => Self::crd_missing(),
            // A webhook is unavailable, and the API server isn't.
            500 if message.contains("failed calling webhook") => {
                Self::Unavailable { reason: Reason::WebhookUnavailable, message }
            }
            409 => Self::Unavailable { reason: Reason::Conflict, message },
            _ => Self::api_server_unavailable(),
        }
    }
}

impl From<Rejection> for Error {
    fn from(mut rejection: Rejection) -> Self {
        for violation in &mut rejection.violations {
            violation.field = format!("spec.{}", violation.field);
        }
        let Rejection { reason, precondition, message, violations } = rejection;
        if precondition {
            Self::Precondition { reason: reason.into(), message, violations }
        } else {
            Self::Invalid(violations)
        }
    }
}

/// The CRD's validation message for a change of a class's id.
pub(super) const TAKEN: &str = "deployment_unit.id is immutable";

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn reason(message: &str) -> Reason {
        let status = Status::failure(message, "InternalError").with_code(500).boxed();
        match Error::of_write(Some(kube::Error::Api(status)), "shop", None) {
            Error::Unavailable { reason, .. } => reason,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn unavailable_webhook_is_not_an_unavailable_api_server() {
        let webhook = "Internal error occurred: failed calling webhook \"a.b.c\": no endpoints";
        assert_eq!(reason(webhook), Reason::WebhookUnavailable);
        assert_eq!(reason("etcdserver: no leader"), Reason::ApiServerUnavailable);
    }

    fn api_error(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("no", "").with_code(code).boxed())
    }

    #[test]
    fn rejected_credentials_and_throttling_are_not_an_unavailable_api_server() {
        let requested = Some(Duration::from_secs(7));
        for error in [
            Error::of_read(Some(api_error(401)), None),
            Error::of_write(Some(api_error(401)), "", None),
        ] {
            assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
        }
        for (error, pause) in [
            (Error::of_read(Some(api_error(429)), requested), 7),
            (Error::of_write(Some(api_error(429)), "shop", requested), 7),
            (Error::of_read(Some(api_error(429)), None), 1),
        ] {
            assert!(matches!(error, Error::Throttled(it) if it.as_secs() == pause), "{error}");
        }
        for error in
            [Error::of_read(Some(api_error(503)), requested), Error::of_read(None, requested)]
        {
            assert!(
                matches!(error, Error::Unavailable { reason: Reason::ApiServerUnavailable, .. }),
                "{error}"
            );
        }
    }
}
