//! What can go wrong for a client.

use oprc_unit::{Rejection, Violation};

/// Why something wasn't done. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is wrong, field by field.
    #[error("{}", join(.0))]
    Invalid(Vec<Violation>),
    /// The request is right, and can't be met here or now.
    #[error("{}", .0.message)]
    Precondition(Rejection),
    /// There is no such class.
    #[error("there is no class {0:?}")]
    NotFound(String),
    /// The name is taken by another class.
    #[error("{0}")]
    AlreadyExists(String),
    /// It may work another time.
    #[error("{message}")]
    Unavailable {
        /// In one word.
        reason: &'static str,
        /// In one sentence.
        message: String,
    },
    /// Something that can't be, was.
    #[error("{0}")]
    Internal(String),
}

fn join(violations: &[Violation]) -> String {
    let all: Vec<_> = violations.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    all.join("; ")
}

impl Error {
    /// One field is wrong.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid(vec![Violation { field: field.into(), message: message.into() }])
    }

    /// The class is going.
    pub(super) fn deleting(id: &str) -> Self {
        let message = format!("{id} is being deleted; try again when it is gone");
        Self::Unavailable { reason: "DELETING", message }
    }

    fn undefined() -> Self {
        Self::Unavailable {
            reason: "CRD_MISSING",
            message: "the ClassRuntime definition isn't installed".to_owned(),
        }
    }

    fn away() -> Self {
        Self::Unavailable {
            reason: "API_SERVER_UNAVAILABLE",
            message: "the Kubernetes API server doesn't answer".to_owned(),
        }
    }

    /// What a read that failed means.
    pub(super) fn of_read(error: Option<kube::Error>) -> Self {
        match error {
            Some(kube::Error::Api(status)) if status.code == 404 => Self::undefined(),
            Some(kube::Error::Api(status)) if status.code == 403 => {
                Self::Internal(format!("CRM may not do this: {}", status.message))
            }
            Some(error) => {
                tracing::debug!(%error, "a read failed");
                Self::away()
            }
            None => Self::away(),
        }
    }

    /// What a write that failed means.
    pub(super) fn of_write(error: Option<kube::Error>, id: &str) -> Self {
        let Some(kube::Error::Api(status)) = error else {
            if let Some(error) = error {
                tracing::debug!(%error, "a write failed");
            }
            return Self::away();
        };
        match status.code {
            400 | 422 => {
                if status.message.contains(TAKEN) {
                    return Self::AlreadyExists(format!(
                        "the name that {id:?} would get belongs to another class"
                    ));
                }
                let causes =
                    status.details.as_ref().map(|it| it.causes.as_slice()).unwrap_or_default();
                let violations: Vec<_> = causes
                    .iter()
                    .map(|cause| Violation {
                        field: cause.field.clone(),
                        message: cause.message.clone(),
                    })
                    .collect();
                if violations.is_empty() {
                    Self::invalid("spec", status.message.clone())
                } else {
                    Self::Invalid(violations)
                }
            }
            // The API server's own words for somebody who may not.
            403 if status.message.contains("is forbidden: User \"") => {
                Self::Internal(format!("CRM may not do this: {}", status.message))
            }
            403 => Self::Precondition(Rejection::precondition(
                "ClusterRefuses",
                "namespace",
                status.message.clone(),
            )),
            413 => Self::invalid("spec", "is larger than the API server takes"),
            404 if status.message.contains("namespaces") => Self::Precondition(
                Rejection::precondition("NamespaceMissing", "namespace", status.message.clone()),
            ),
            404 if status.message.contains("classruntimes") => Self::NotFound(id.to_owned()),
            404 => Self::undefined(),
            // Somebody who is to be asked before a class is taken doesn't answer: the server does.
            500 if status.message.contains("failed calling webhook") => {
                Self::Unavailable { reason: "WEBHOOK_UNAVAILABLE", message: status.message.clone() }
            }
            409 => Self::Unavailable { reason: "CONFLICT", message: status.message.clone() },
            _ => Self::away(),
        }
    }
}

/// What the definition says to a change of a class's id.
pub(super) const TAKEN: &str = "the unit's id can't be changed";

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn reason(message: &str) -> &'static str {
        let status = Status::failure(message, "InternalError").with_code(500).boxed();
        match Error::of_write(Some(kube::Error::Api(status)), "shop") {
            Error::Unavailable { reason, .. } => reason,
            other => panic!("{other}"),
        }
    }

    /// A cluster isn't away because somebody in it is.
    #[test]
    fn a_webhook_that_fails_is_told_from_a_server_that_does() {
        let webhook = "Internal error occurred: failed calling webhook \"a.b.c\": no endpoints";
        assert_eq!(reason(webhook), "WEBHOOK_UNAVAILABLE");
        assert_eq!(reason("etcdserver: no leader"), "API_SERVER_UNAVAILABLE");
    }
}
