//! The token file.

use std::{
    path::{Path, PathBuf},
    str::from_utf8,
    sync::Arc,
    time::SystemTime,
};

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{
    Denied, Error, Identity, Role,
    reload::{CHECK_INTERVAL, Reloaded, read},
};

/// Shorter tokens can be guessed.
const MIN_TOKEN_CHARACTERS: usize = 16;
const LINE_FORMAT: &str = "expected [NAME] TOKEN [role=ROLE] [expires=TIME]";
const EXPIRES_FORMAT: &str = "expires must be a time such as 2030-01-31T12:00:00Z";
const UNKNOWN_ROLE: &str = "unknown role: use viewer, deployer or admin";
const MISSING_ROLE: &str = "a token needs a role: add role=viewer, role=deployer or role=admin";

/// A file of bearer tokens that is reloaded when it changes. Cheap to clone.
///
/// A line is `TOKEN` or `NAME TOKEN`, optionally followed by `role=viewer|deployer|admin` and
/// `expires=` with an RFC 3339 time. A word that starts with `#` starts a comment. A token without
/// a role has the role admin, or is an error where roles are required. A name may have several
/// tokens, so that they can be rotated. A changed file with errors is logged and ignored; a file
/// without tokens denies all requests. Replace the file by renaming another one over it.
#[derive(Debug, Clone)]
pub struct TokenFile(Arc<Reloaded<Vec<Token>>>);

/// Only the token's digest is kept: it is not secret, and all digests have the same length.
struct Token {
    name: Option<String>,
    role: Role,
    expires: Option<SystemTime>,
    digest: [u8; 32],
}

impl TokenFile {
    /// With `require_roles`, a token without a role is an error: it may have been meant to have
    /// fewer permissions than admin. Otherwise it has the role admin. A file without tokens is an
    /// error at start; later it is a way to deny all requests.
    pub fn load(path: impl Into<PathBuf>, require_roles: bool) -> Result<Self, Error> {
        let path = path.into();
        let file = path.clone();
        let load = move || parse(&file, &read(&file)?, require_roles);
        let tokens = Reloaded::new(vec![path.clone()], CHECK_INTERVAL, load)?;
        if tokens.current().is_empty() {
            return Err(Error::file(&path, "contains no token"));
        }
        Ok(Self(Arc::new(tokens)))
    }

    /// The owner of a token. The time this takes doesn't depend on the token.
    pub(crate) fn find(&self, token: &[u8], now: SystemTime) -> Result<Identity, Denied> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let tokens = self.0.current();
        let mut found = Choice::from(0);
        let mut at = 0_u64;
        for (index, known) in (0_u64..).zip(tokens.iter()) {
            let equal = known.digest.ct_eq(&digest);
            at.conditional_assign(&index, equal);
            found |= equal;
        }
        let at = bool::from(found).then(|| usize::try_from(at).ok()).flatten();
        let token = at.and_then(|at| tokens.get(at)).ok_or(Denied::InvalidToken)?;
        if token.expires.is_some_and(|end| end <= now) {
            return Err(Denied::ExpiredToken);
        }
        Ok(Identity { name: token.name.clone(), role: token.role })
    }
}

fn parse(path: &Path, content: &[u8], require_roles: bool) -> Result<Vec<Token>, Error> {
    let content = from_utf8(content).map_err(|_| Error::file(path, "not UTF-8"))?;
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(content.lines()) {
        let invalid = |reason| Error::Token { path: path.to_owned(), line, reason };
        let mut words =
            text.split_whitespace().take_while(|word| !word.starts_with('#')).peekable();
        let Some(first) = words.next() else { continue };
        if first.starts_with("role=") || first.starts_with("expires=") {
            return Err(invalid(LINE_FORMAT));
        }
        let (name, token) = match words.next_if(|word| !is_option(word)) {
            Some(token) => (Some(first.to_owned()), token),
            None => (None, first),
        };
        let (mut role, mut expires) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("role", name)) if role.is_none() => {
                    role = Some(Role::parse(name).ok_or_else(|| invalid(UNKNOWN_ROLE))?);
                }
                Some(("expires", end)) if expires.is_none() => {
                    let end: Result<Timestamp, _> = end.parse();
                    expires = Some(end.map_err(|_| invalid(EXPIRES_FORMAT))?.into());
                }
                _ => return Err(invalid(LINE_FORMAT)),
            }
        }
        if token.chars().count() < MIN_TOKEN_CHARACTERS {
            return Err(invalid("a token needs at least 16 characters"));
        }
        if require_roles && role.is_none() {
            return Err(invalid(MISSING_ROLE));
        }
        let role = role.unwrap_or(Role::Admin);
        tokens.push(Token { name, role, expires, digest: Sha256::digest(token).into() });
    }
    Ok(tokens)
}

/// Whether a word is an option, known or misspelt. A misspelt option must not be read as a token,
/// with the token before it as its name. Padding of a base64 token has no value after the `=`.
fn is_option(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        let named = !name.is_empty() && name.chars().all(|it| it.is_ascii_alphabetic());
        named && !value.trim_end_matches('=').is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(content: &[u8]) -> String {
        parse(Path::new("/tokens"), content, false).err().unwrap().to_string()
    }

    #[test]
    fn errors_name_the_line_and_not_the_token() {
        let short = error(b"# comment\n\n0123456789abcdef\nname secret\n");
        assert_eq!(short, "/tokens: line 4: a token needs at least 16 characters");
        let words = error(b"one two three");
        assert_eq!(words, "/tokens: line 1: expected [NAME] TOKEN [role=ROLE] [expires=TIME]");
        let token = "0123456789abcdef";
        for (rest, reason) in [
            ("role=root", "unknown role: use viewer, deployer or admin"),
            ("expires=tomorrow", EXPIRES_FORMAT),
            ("role=admin role=admin", "expected [NAME] TOKEN [role=ROLE] [expires=TIME]"),
            ("until=2030", "expected [NAME] TOKEN [role=ROLE] [expires=TIME]"),
        ] {
            let message = error(format!("name {token} {rest}").as_bytes());
            assert_eq!(message, format!("/tokens: line 1: {reason}"));
            assert!(!message.contains(token));
        }
        assert_eq!(error(b"\xff"), "/tokens: not UTF-8");
    }

    #[test]
    fn rejects_misspelt_options() {
        for line in [
            "0123456789abcdef expire=2030-01-31T12:00:00Z",
            "0123456789abcdef Role=viewer-and-some-more",
            "role=viewer 0123456789abcdef",
            "expires=2030-01-31T12:00:00Z",
        ] {
            let message = error(line.as_bytes());
            assert_eq!(message, format!("/tokens: line 1: {LINE_FORMAT}"), "{line}");
        }
        // Padding is part of a token.
        let line = b"eve abcdefghijklmnopqrstuv==\n";
        let tokens = parse(Path::new(""), line, false).unwrap();
        assert_eq!(tokens[0].name.as_deref(), Some("eve"));
    }

    #[test]
    fn ignores_comments() {
        let line = b"  0123456789abcdef # of the operator's laptop\n";
        let tokens = parse(Path::new(""), line, false).unwrap();
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens[0].name, None);
        let digest: [u8; 32] = Sha256::digest("0123456789abcdef").into();
        assert_eq!(tokens[0].digest, digest);
    }

    #[test]
    fn parses_role_and_expiry() {
        let lines = b"0123456789abcdef role=viewer\n\
            eve 0123456789abcdeg expires=2030-01-31T12:00:00+01:00 role=deployer # for a while\n\
            adam 0123456789abcdeh\n";
        let tokens = parse(Path::new(""), lines, false).unwrap();
        let [bare, eve, adam] = tokens.as_slice() else { panic!("three lines") };
        assert_eq!((bare.name.as_deref(), bare.role, bare.expires), (None, Role::Viewer, None));
        assert_eq!((eve.name.as_deref(), eve.role), (Some("eve"), Role::Deployer));
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(526_691);
        assert_eq!(eve.expires, Some(end));
        assert_eq!((adam.role, adam.expires), (Role::Admin, None));
    }

    #[test]
    fn requires_a_role_with_roles() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let good = "eve 0123456789abcdef role=viewer\n";
        for bad in ["adam 0123456789abcdeg", "0123456789abcdeg expires=2030-01-31T12:00:00Z"] {
            std::fs::write(file.path(), format!("{good}{bad}\n")).unwrap();
            let message = TokenFile::load(file.path(), true).unwrap_err().to_string();
            assert_eq!(message, format!("{}: line 2: {MISSING_ROLE}", file.path().display()));
            assert!(!message.contains("0123456789"));
            TokenFile::load(file.path(), false).unwrap();
        }
        std::fs::write(file.path(), good).unwrap();
        let tokens = TokenFile::load(file.path(), true).unwrap();
        let found = tokens.find(b"0123456789abcdef", SystemTime::now()).unwrap();
        assert_eq!(found.role, Role::Viewer);
    }

    #[test]
    fn rejects_expired_tokens() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = "eve 0123456789abcdef role=viewer expires=2030-01-31T11:00:00Z";
        std::fs::write(file.path(), line).unwrap();
        let tokens = TokenFile::load(file.path(), false).unwrap();
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(526_691);
        let before = end - std::time::Duration::from_secs(1);
        let eve = Identity { name: Some("eve".to_owned()), role: Role::Viewer };
        assert_eq!(tokens.find(b"0123456789abcdef", before), Ok(eve));
        assert_eq!(tokens.find(b"0123456789abcdef", end), Err(Denied::ExpiredToken));
        assert_eq!(tokens.find(b"0123456789abcdeg", end), Err(Denied::InvalidToken));
    }

    #[test]
    fn fails_to_load_a_file_without_tokens() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = TokenFile::load(file.path(), false).unwrap_err().to_string();
        assert_eq!(error, format!("{}: contains no token", file.path().display()));
        let error = TokenFile::load("/not/there", false).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /not/there: "), "{error}");
    }
}
