//! Call tokens: how the grid recognises calls of its own functions.
//!
//! Each call of a function carries a token, which the function passes on in its calls of the
//! grid. The token holds the chain of calls and is authenticated, so that a caller can neither make one
//! nor change it. A grid of another class can't verify it, and passes it on.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::{Error, invocation::CallOrigin};

/// The header of call tokens, separated by commas.
pub(crate) const CALL_TOKEN: &str = "x-oaas-call-token";
/// The longest token: it holds the longest chain.
const MAX_TOKEN_BYTES: usize = 1024;
/// Tokens of other grids that are passed on.
const MAX_FOREIGN: usize = 4;

/// Makes and verifies the call tokens of a class. All nodes of its grid must have the same key.
pub struct CallTokens {
    /// None if the system has no random numbers; then no token is valid.
    key: Option<hmac::Key>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    #[serde(rename = "c")]
    chain: Vec<String>,
    #[serde(rename = "d")]
    depth: u32,
    /// Milliseconds since 1970.
    #[serde(rename = "e")]
    expires: i64,
}

impl CallTokens {
    /// The key is secret and random.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: Some(hmac::Key::new(hmac::HMAC_SHA256, key)) }
    }

    /// With a key that only this process has.
    pub fn random() -> Self {
        let random = ring::rand::SystemRandom::new();
        Self { key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok() }
    }

    /// The value of the header of a nested call.
    pub(crate) fn header(&self, origin: &CallOrigin) -> String {
        let claims = Claims {
            chain: origin.chain.clone(),
            depth: origin.depth,
            expires: origin.expires.unwrap_or_default(),
        };
        let claims = BASE64.encode(serde_json::to_vec(&claims).unwrap_or_default());
        let sign = |key| BASE64.encode(hmac::sign(key, claims.as_bytes()));
        let own = format!("{claims}.{}", self.key.as_ref().map(sign).unwrap_or_default());
        let foreign = origin.foreign.iter().rev().take(MAX_FOREIGN);
        foreign.fold(own, |all, token| format!("{all},{token}"))
    }

    /// The origin of a call, and whether it comes from this grid. Tokens of other grids prove
    /// nothing.
    pub(crate) fn origin(&self, header: &str) -> Result<(CallOrigin, bool), Error> {
        let (mut origin, mut is_own) = (CallOrigin::default(), false);
        for token in header.split(',').map(str::trim).filter(|it| is_token(it)) {
            match self.verify(token) {
                Some(claims) if claims.expires < Timestamp::now().as_millisecond() => {
                    return Err(Error::CallEnded);
                }
                Some(claims) if !is_own => {
                    is_own = true;
                    origin.chain = claims.chain;
                    origin.depth = claims.depth;
                    origin.expires = Some(claims.expires);
                }
                None if origin.foreign.len() < MAX_FOREIGN => origin.foreign.push(token.to_owned()),
                Some(_) | None => {}
            }
        }
        Ok((origin, is_own))
    }

    fn verify(&self, token: &str) -> Option<Claims> {
        let (claims, tag) = token.split_once('.')?;
        hmac::verify(self.key.as_ref()?, claims.as_bytes(), &BASE64.decode(tag).ok()?).ok()?;
        serde_json::from_slice(&BASE64.decode(claims).ok()?).ok()
    }
}

fn is_token(text: &str) -> bool {
    let is_valid = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    !text.is_empty() && text.len() <= MAX_TOKEN_BYTES && text.chars().all(is_valid)
}

impl std::fmt::Debug for CallTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("CallTokens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> CallOrigin {
        let expires = Timestamp::now().as_millisecond() + 60_000;
        CallOrigin { depth: 2, ..CallOrigin::default() }.extended("o/C/a", expires).unwrap()
    }

    #[test]
    fn own_tokens_are_recognised_and_foreign_ones_passed_on() {
        let (own, other) = (CallTokens::new(&[1; 32]), CallTokens::new(&[2; 32]));
        let (found, is_own) = own.origin(&own.header(&origin())).unwrap();
        assert!(is_own && found == origin_of(&found) && found.contains("o/C/a"));
        assert!(!found.contains("o/C/b"));
        let (seen, is_own) = other.origin(&own.header(&found)).unwrap();
        assert!(!is_own && seen.chain.is_empty() && seen.foreign.len() == 1);
        // The other grid calls back.
        let expires = found.expires.unwrap();
        let nested = seen.extended("o/D/x", expires).unwrap();
        let (back, is_own) = own.origin(&other.header(&nested)).unwrap();
        assert!(is_own && back.contains("o/C/a") && back.foreign.len() == 1);
    }

    fn origin_of(found: &CallOrigin) -> CallOrigin {
        CallOrigin { expires: found.expires, ..origin() }
    }

    #[test]
    fn changed_and_expired_tokens_prove_nothing() {
        let tokens = CallTokens::random();
        let header = tokens.header(&origin());
        let (claims, tag) = header.split_once('.').unwrap();
        let mut forged: Claims = serde_json::from_slice(&BASE64.decode(claims).unwrap()).unwrap();
        forged.chain.clear();
        let forged = BASE64.encode(serde_json::to_vec(&forged).unwrap());
        let cut = header.split_at(header.len() - 1).0;
        for bad in [format!("{forged}.{tag}"), cut.to_owned(), "a.b".to_owned(), ".".to_owned()] {
            let (found, is_own) = tokens.origin(&bad).unwrap();
            assert!(!is_own && found.chain.is_empty(), "{bad}");
        }
        let expired = CallOrigin { expires: Some(1), ..origin() };
        assert_eq!(tokens.origin(&tokens.header(&expired)), Err(Error::CallEnded));
        assert_eq!(CallTokens::random().origin(&header).map(|it| it.1), Ok(false));
    }

    #[test]
    fn headers_stay_short() {
        let (tokens, mut longest) = (CallTokens::random(), origin());
        while let Ok(next) = longest.extended("o/C/b", i64::MAX) {
            longest = next;
        }
        let long = "x".repeat(MAX_TOKEN_BYTES + 1);
        let many = format!("{long},{}", vec!["y"; 100].join(","));
        longest.foreign = tokens.origin(&many).unwrap().0.foreign;
        assert_eq!(longest.foreign.len(), MAX_FOREIGN);
        let own = tokens.header(&longest);
        let own = own.split(',').next().unwrap();
        assert!(own.len() <= MAX_TOKEN_BYTES, "{}", own.len());
        assert!(matches!(longest.extended("o/C/c", 0), Err(Error::TooDeep(_))));
    }
}
