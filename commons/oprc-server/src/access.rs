//! Authentication and authorization of requests.

use std::time::SystemTime;

use axum::http::HeaderValue;

use crate::{Denied, Identity, Peer, Role, TokenFile};

/// The policy that guards routes. Cheap to clone.
///
/// If it requires both a certificate and a token, a request needs a verified client certificate
/// *and* a token of the file.
#[derive(Debug, Clone)]
pub struct Access {
    require_certificate: bool,
    tokens: Option<TokenFile>,
    minimum_role: Role,
}

impl Access {
    #[cfg(test)]
    pub(crate) fn open() -> Self {
        Self::new(false, None)
    }

    /// Requires a client certificate if `require_certificate` is set, and a token with the role
    /// admin if there are `tokens`. Clients can only present a certificate if the server has
    /// [`crate::TlsFiles::client_ca`]; without it, requiring one denies every request.
    pub fn new(require_certificate: bool, tokens: Option<TokenFile>) -> Self {
        Self { require_certificate, tokens, minimum_role: Role::Admin }
    }

    /// Also admits tokens with lower roles, for routes that check [`Identity::role`] themselves.
    #[must_use]
    pub fn minimum_role(self, minimum_role: Role) -> Self {
        Self { minimum_role, ..self }
    }

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
            if found.role < self.minimum_role {
                return Err(Denied::InsufficientRole);
            }
            identity.role = found.role;
            identity.name = found.name.or(identity.name);
        }
        Ok(identity)
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
    fn requires_everything_that_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, "operator 0123456789abcdef\nfedcba9876543210\n").unwrap();
        let tokens = TokenFile::load(&path, false).unwrap();
        let named_token = header("Bearer 0123456789abcdef");
        let bare_token = header("bearer  fedcba9876543210");
        let wrong = header("Bearer 0123456789abcdee");
        let basic = header("Basic 0123456789abcdef");
        let client = peer(Some("gateway"));

        let anonymous = Identity { name: None, role: Role::Admin };
        assert_eq!(Access::open().check(None, None), Ok(anonymous.clone()));

        let token = Access::new(false, Some(tokens.clone()));
        assert_eq!(token.check(None, Some(&named_token)), Ok(named("operator")));
        assert_eq!(token.check(None, Some(&bare_token)), Ok(anonymous));
        assert_eq!(token.check(Some(&client), None), Err(Denied::NoToken));
        assert_eq!(token.check(None, Some(&basic)), Err(Denied::NoToken));
        assert_eq!(token.check(None, Some(&wrong)), Err(Denied::InvalidToken));
        assert_eq!(token.check(None, Some(&header("Bearer "))), Err(Denied::InvalidToken));

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
    fn admits_lower_roles_only_down_to_the_minimum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, "eve 0123456789abcdef role=viewer").unwrap();
        let access = Access::new(false, Some(TokenFile::load(&path, false).unwrap()));
        let token = header("Bearer 0123456789abcdef");
        assert_eq!(access.check(None, Some(&token)), Err(Denied::InsufficientRole));
        let eve = Identity { name: Some("eve".to_owned()), role: Role::Viewer };
        assert_eq!(access.minimum_role(Role::Viewer).check(None, Some(&token)), Ok(eve));
    }

    #[test]
    fn reloads_the_token_file_and_keeps_tokens_on_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let replace = |content: &str| {
            let other = folder.path().join("other");
            fs::write(&other, content).unwrap();
            fs::rename(&other, &path).unwrap();
        };
        replace("old 0123456789abcdef");
        let access = Access::new(false, Some(TokenFile::load(&path, false).unwrap()));
        let (old, new) = (header("Bearer 0123456789abcdef"), header("Bearer fedcba9876543210"));
        assert_eq!(access.check(None, Some(&old)), Ok(named("old")));
        replace("new fedcba9876543210");
        assert_eq!(access.check(None, Some(&old)), Err(Denied::InvalidToken));
        assert_eq!(access.check(None, Some(&new)), Ok(named("new")));
        replace("short");
        assert_eq!(access.check(None, Some(&new)), Ok(named("new")));
        fs::remove_file(&path).unwrap();
        assert_eq!(access.check(None, Some(&new)), Ok(named("new")));
        replace("");
        assert_eq!(access.check(None, Some(&new)), Err(Denied::InvalidToken));
        assert!(!format!("{access:?}").contains("0123456789"));
    }
}
