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
#[error("{}", self.as_str())]
pub enum Denied {
    NoCertificate,
    NoToken,
    /// The token file doesn't contain the token.
    InvalidToken,
    ExpiredToken,
    /// The token is valid, but the route needs a higher role.
    InsufficientRole,
}

impl Denied {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoCertificate => "a client certificate is required",
            Self::NoToken => "a bearer token is required",
            Self::InvalidToken => "the bearer token is not valid",
            Self::ExpiredToken => "the bearer token has expired",
            Self::InsufficientRole => "the bearer token lacks the role admin",
        }
    }
}
