//! Outcomes of authentication.

use crate::Role;

/// The authenticated caller; an extension of requests behind [`crate::require`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token's name; if it has none, the common name of the required client certificate.
    pub name: Option<String>,
    /// The token's role; admin where no token is required.
    pub role: Role,
}

/// Why a request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("a client certificate is required")]
    NoCertificate,
    #[error("a bearer token is required")]
    NoToken,
    /// The token file doesn't contain the token.
    #[error("the bearer token is not valid")]
    InvalidToken,
    #[error("the bearer token has expired")]
    ExpiredToken,
    /// The token is valid, but the route needs a higher role.
    #[error("the bearer token lacks the role admin")]
    InsufficientRole,
}
