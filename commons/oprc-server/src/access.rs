//! Who may use a route.

use std::time::SystemTime;

use axum::http::HeaderValue;

use crate::{Peer, Role, TokenFile};

/// Who may use a route. Cheap to clone.
///
/// What is asked for must all be there: with a certificate and tokens, a verified client
/// certificate *and* a token of the file.
#[derive(Debug, Clone)]
pub struct Access {
    require_certificate: bool,
    tokens: Option<TokenFile>,
    least: Role,
}

/// Who was let in; an extension of requests behind [`crate::require`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The token's name; if it has none, the common name of the certificate that was asked for.
    pub name: Option<String>,
    /// How much they may do: what their token says, and everything where no token is asked for.
    pub role: Role,
}

/// Why somebody isn't let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.as_str())]
pub enum Denied {
    /// No client certificate was shown.
    NoCertificate,
    /// No bearer token was sent.
    NoToken,
    /// The bearer token isn't in the file.
    WrongToken,
    /// The bearer token was good until some time ago.
    ExpiredToken,
    /// The bearer token is good, and for less than this.
    WeakToken,
}

impl Access {
    /// For everybody: nobody is asked for anything.
    #[cfg(test)]
    pub(crate) fn open() -> Self {
        Self::new(false, None)
    }

    /// For those who show a client certificate, if it is required, and have a token, if there are
    /// tokens. A certificate can be shown only where the server has
    /// [`crate::TlsFiles::client_ca`]: nobody is let in elsewhere. Tokens must be those of an
    /// admin, as they are where the file doesn't say.
    pub fn new(require_certificate: bool, tokens: Option<TokenFile>) -> Self {
        Self { require_certificate, tokens, least: Role::Admin }
    }

    /// Lets weaker tokens in too, for routes that look at [`Identity::role`] themselves.
    #[must_use]
    pub fn least(self, least: Role) -> Self {
        Self { least, ..self }
    }

    /// Who it is that sent a request, if they may.
    pub fn check(
        &self,
        peer: Option<&Peer>,
        authorization: Option<&HeaderValue>,
    ) -> Result<Identity, Denied> {
        let mut identity = Identity { name: None, role: Role::Admin };
        if self.require_certificate {
            let certificate = peer.and_then(|peer| peer.certificate.as_ref());
            identity.name.clone_from(&certificate.ok_or(Denied::NoCertificate)?.common_name);
        }
        if let Some(tokens) = &self.tokens {
            let token = authorization.and_then(bearer).ok_or(Denied::NoToken)?;
            let found = tokens.find(token, SystemTime::now())?;
            if found.role < self.least {
                return Err(Denied::WeakToken);
            }
            identity.role = found.role;
            identity.name = found.name.or(identity.name);
        }
        Ok(identity)
    }
}

impl Denied {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoCertificate => "a client certificate is required",
            Self::NoToken => "a bearer token is required",
            Self::WrongToken => "the bearer token is not valid",
            Self::ExpiredToken => "the bearer token has expired",
            Self::WeakToken => "the bearer token is not that of an admin",
        }
    }
}

fn bearer(authorization: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = authorization.as_bytes().split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;
    use crate::ClientCertificate;

    fn header(value: &'static str) -> HeaderValue {
        HeaderValue::from_static(value)
    }

    fn peer(common_name: Option<&str>) -> Peer {
        let common_name = common_name.map(str::to_owned);
        Peer {
            address: ([127, 0, 0, 1], 1).into(),
            certificate: Some(Arc::new(ClientCertificate { common_name })),
        }
    }

    fn named(name: &str) -> Identity {
        Identity { name: Some(name.to_owned()), role: Role::Admin }
    }

    #[test]
    fn asks_for_everything_that_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, "operator 0123456789abcdef\nfedcba9876543210\n").unwrap();
        let tokens = TokenFile::load(&path).unwrap();
        let named_token = header("Bearer 0123456789abcdef");
        let bare_token = header("bearer  fedcba9876543210");
        let wrong = header("Bearer 0123456789abcdee");
        let basic = header("Basic 0123456789abcdef");
        let client = peer(Some("gateway"));

        let nobody = Identity { name: None, role: Role::Admin };
        assert_eq!(Access::open().check(None, None), Ok(nobody.clone()));

        let token = Access::new(false, Some(tokens.clone()));
        assert_eq!(token.check(None, Some(&named_token)), Ok(named("operator")));
        assert_eq!(token.check(None, Some(&bare_token)), Ok(nobody));
        assert_eq!(token.check(Some(&client), None), Err(Denied::NoToken));
        assert_eq!(token.check(None, Some(&basic)), Err(Denied::NoToken));
        assert_eq!(token.check(None, Some(&wrong)), Err(Denied::WrongToken));
        assert_eq!(token.check(None, Some(&header("Bearer "))), Err(Denied::WrongToken));

        let certificate = Access::new(true, None);
        assert_eq!(certificate.check(Some(&client), None), Ok(named("gateway")));
        assert_eq!(certificate.check(None, Some(&named_token)), Err(Denied::NoCertificate));

        let both = Access::new(true, Some(tokens));
        assert_eq!(both.check(Some(&client), Some(&named_token)), Ok(named("operator")));
        assert_eq!(both.check(Some(&client), Some(&bare_token)), Ok(named("gateway")));
        assert_eq!(both.check(Some(&client), None), Err(Denied::NoToken));
        assert_eq!(both.check(None, Some(&named_token)), Err(Denied::NoCertificate));
    }

    #[test]
    fn weaker_tokens_are_let_in_only_where_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, "eve 0123456789abcdef role=viewer").unwrap();
        let access = Access::new(false, Some(TokenFile::load(&path).unwrap()));
        let token = header("Bearer 0123456789abcdef");
        assert_eq!(access.check(None, Some(&token)), Err(Denied::WeakToken));
        let eve = Identity { name: Some("eve".to_owned()), role: Role::Viewer };
        assert_eq!(access.least(Role::Viewer).check(None, Some(&token)), Ok(eve));
    }

    #[test]
    fn follows_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let replace = |content: &str| {
            let other = folder.path().join("other");
            fs::write(&other, content).unwrap();
            fs::rename(&other, &path).unwrap();
        };
        replace("old 0123456789abcdef");
        let access = Access::new(false, Some(TokenFile::load(&path).unwrap()));
        let (old, new) = (header("Bearer 0123456789abcdef"), header("Bearer fedcba9876543210"));
        assert_eq!(access.check(None, Some(&old)), Ok(named("old")));
        replace("new fedcba9876543210");
        assert_eq!(access.check(None, Some(&old)), Err(Denied::WrongToken));
        assert_eq!(access.check(None, Some(&new)), Ok(named("new")));
        replace("short");
        assert_eq!(access.check(None, Some(&new)), Ok(named("new")));
        fs::remove_file(&path).unwrap();
        assert_eq!(access.check(None, Some(&new)), Ok(named("new")));
        replace("");
        assert_eq!(access.check(None, Some(&new)), Err(Denied::WrongToken));
        assert!(!format!("{access:?}").contains("0123456789"));
    }
}
