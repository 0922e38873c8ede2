//! Tokens that a file names.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::from_utf8,
    sync::Arc,
    time::SystemTime,
};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    Denied, Error, Identity, Role,
    reread::{INTERVAL, Reread, read},
};

/// Shorter ones can be guessed.
const MIN_CHARACTERS: usize = 16;
const LINE: &str = "a line is [NAME] TOKEN [role=ROLE] [expires=TIME]";
const ROLE: &str = "a role is viewer, deployer or admin";
const NO_ROLE: &str = "a token needs a role here: role=viewer, role=deployer or role=admin";

/// A file of bearer tokens, read again when it changes. Cheap to clone.
///
/// A line is `TOKEN` or `NAME TOKEN`, and behind both there may be `role=viewer|deployer|admin` and
/// `expires=` with a time as in RFC 3339; what follows a `#` at the start of a word is a comment. A
/// token without a role may do everything, or is wrong where roles matter; one without an end is good
/// until it is taken out. A name may have several tokens, so that they can be rotated. A change that
/// can't be read or is wrong is logged and leaves the tokens as they were; a file without tokens lets
/// nobody in. A file is best replaced by renaming another one over it.
#[derive(Clone)]
pub struct TokenFile {
    path: Arc<Path>,
    tokens: Arc<Reread<Vec<Token>>>,
}

/// A token's digest: of one length for tokens of any, and no secret.
struct Token {
    name: Option<String>,
    role: Role,
    expires: Option<SystemTime>,
    digest: [u8; 32],
}

impl TokenFile {
    /// Reads a file, which must hold a token: that it holds none is a mistake when a program
    /// starts, though later it may be how everybody is locked out.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::read(path.into(), Roles::Admin)
    }

    /// The same where roles matter: a token that has none is a mistake, as it might have been meant
    /// for less than everything.
    pub fn with_roles(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::read(path.into(), Roles::Said)
    }

    fn read(path: PathBuf, roles: Roles) -> Result<Self, Error> {
        let file = path.clone();
        let load = move || parse(&file, &read(&file)?, roles);
        let tokens = Reread::new(vec![path.clone()], INTERVAL, load)?;
        if tokens.current().is_empty() {
            return Err(Error::File { path, reason: "holds no token".to_owned() });
        }
        Ok(Self { path: path.into(), tokens: Arc::new(tokens) })
    }

    /// Whose token this is, if it is a good one; takes as long for one token as for another.
    pub(crate) fn find(&self, token: &[u8], now: SystemTime) -> Result<Identity, Denied> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let tokens = self.tokens.current();
        let mut found = Choice::from(0);
        let mut at = 0_u64;
        for (index, known) in (0_u64..).zip(tokens.iter()) {
            let equal = known.digest.ct_eq(&digest);
            at.conditional_assign(&index, equal);
            found |= equal;
        }
        let at = bool::from(found).then(|| usize::try_from(at).ok()).flatten();
        let token = at.and_then(|at| tokens.get(at)).ok_or(Denied::WrongToken)?;
        if token.expires.is_some_and(|end| end <= now) {
            return Err(Denied::ExpiredToken);
        }
        Ok(Identity { name: token.name.clone(), role: token.role })
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TokenFile").field(&self.path).finish()
    }
}

/// What a token without a role may do.
#[derive(Clone, Copy)]
enum Roles {
    /// Everything.
    Admin,
    /// Nothing: all must have one.
    Said,
}

fn parse(path: &Path, content: &[u8], roles: Roles) -> Result<Vec<Token>, Error> {
    let Ok(content) = from_utf8(content) else {
        return Err(Error::File { path: path.to_owned(), reason: "isn't UTF-8".to_owned() });
    };
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(content.lines()) {
        let wrong = |reason| Error::Token { path: path.to_owned(), line, reason };
        let words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
        let mut words = words.peekable();
        let Some(first) = words.next() else { continue };
        if first.starts_with("role=") || first.starts_with("expires=") {
            return Err(wrong(LINE));
        }
        let (name, token) = match words.next_if(|word| !is_option(word)) {
            Some(token) => (Some(first.to_owned()), token),
            None => (None, first),
        };
        let (mut role, mut expires) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("role", name)) if role.is_none() => {
                    let known = Role::parse(name);
                    role = Some(known.ok_or_else(|| wrong(ROLE))?);
                }
                Some(("expires", end)) if expires.is_none() => {
                    let end = OffsetDateTime::parse(end, &Rfc3339);
                    let format = "a token expires at a time such as 2030-01-31T12:00:00Z";
                    expires = Some(end.map_err(|_| wrong(format))?.into());
                }
                _ => return Err(wrong(LINE)),
            }
        }
        if token.chars().count() < MIN_CHARACTERS {
            return Err(wrong("a token has at least 16 characters"));
        }
        let role = match (role, roles) {
            (Some(role), _) => role,
            (None, Roles::Admin) => Role::Admin,
            (None, Roles::Said) => return Err(wrong(NO_ROLE)),
        };
        tokens.push(Token { name, role, expires, digest: Sha256::digest(token).into() });
    }
    Ok(tokens)
}

/// Whether a word is an option, though it stands where a token may. A misspelt one is too: it would
/// be let in as a token, and the token before it be taken for a name. `=` that only fills a token up
/// at its end has no value behind it.
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
        parse(Path::new("/tokens"), content, Roles::Admin).err().unwrap().to_string()
    }

    #[test]
    fn names_the_line_and_not_the_token() {
        let short = error(b"# comment\n\n0123456789abcdef\nname secret\n");
        assert_eq!(short, "/tokens: line 4: a token has at least 16 characters");
        let words = error(b"one two three");
        assert_eq!(words, "/tokens: line 1: a line is [NAME] TOKEN [role=ROLE] [expires=TIME]");
        let token = "0123456789abcdef";
        for (rest, reason) in [
            ("role=root", "a role is viewer, deployer or admin"),
            ("expires=tomorrow", "a token expires at a time such as 2030-01-31T12:00:00Z"),
            ("role=admin role=admin", "a line is [NAME] TOKEN [role=ROLE] [expires=TIME]"),
            ("until=2030", "a line is [NAME] TOKEN [role=ROLE] [expires=TIME]"),
        ] {
            let told = error(format!("name {token} {rest}").as_bytes());
            assert_eq!(told, format!("/tokens: line 1: {reason}"));
            assert!(!told.contains(token));
        }
        assert_eq!(error(b"\xff"), "/tokens: isn't UTF-8");
    }

    #[test]
    fn a_misspelt_option_is_no_token() {
        for line in [
            "0123456789abcdef expire=2030-01-31T12:00:00Z",
            "0123456789abcdef Role=viewer-and-some-more",
            "role=viewer 0123456789abcdef",
            "expires=2030-01-31T12:00:00Z",
        ] {
            let told = error(line.as_bytes());
            assert_eq!(told, format!("/tokens: line 1: {LINE}"), "{line}");
        }
        // What only fills a token up is a part of it.
        let line = b"eve abcdefghijklmnopqrstuv==\n";
        let tokens = parse(Path::new(""), line, Roles::Admin).unwrap();
        assert_eq!(tokens[0].name.as_deref(), Some("eve"));
    }

    #[test]
    fn a_comment_may_follow_a_token() {
        let line = b"  0123456789abcdef # of the operator's laptop\n";
        let tokens = parse(Path::new(""), line, Roles::Admin).unwrap();
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens[0].name, None);
        let digest: [u8; 32] = Sha256::digest("0123456789abcdef").into();
        assert_eq!(tokens[0].digest, digest);
    }

    #[test]
    fn a_token_may_have_a_role_and_an_end() {
        let lines = b"0123456789abcdef role=viewer\n\
            eve 0123456789abcdeg expires=2030-01-31T12:00:00+01:00 role=deployer # for a while\n\
            adam 0123456789abcdeh\n";
        let tokens = parse(Path::new(""), lines, Roles::Admin).unwrap();
        let [bare, eve, adam] = tokens.as_slice() else { panic!("three lines") };
        assert_eq!((bare.name.as_deref(), bare.role, bare.expires), (None, Role::Viewer, None));
        assert_eq!((eve.name.as_deref(), eve.role), (Some("eve"), Role::Deployer));
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(526_691);
        assert_eq!(eve.expires, Some(end));
        assert_eq!((adam.role, adam.expires), (Role::Admin, None));
    }

    #[test]
    fn where_roles_matter_a_token_has_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let good = "eve 0123456789abcdef role=viewer\n";
        for bad in ["adam 0123456789abcdeg", "0123456789abcdeg expires=2030-01-31T12:00:00Z"] {
            std::fs::write(file.path(), format!("{good}{bad}\n")).unwrap();
            let told = TokenFile::with_roles(file.path()).unwrap_err().to_string();
            assert_eq!(told, format!("{}: line 2: {NO_ROLE}", file.path().display()));
            assert!(!told.contains("0123456789"));
            TokenFile::load(file.path()).unwrap();
        }
        std::fs::write(file.path(), good).unwrap();
        let tokens = TokenFile::with_roles(file.path()).unwrap();
        let found = tokens.find(b"0123456789abcdef", SystemTime::now()).unwrap();
        assert_eq!(found.role, Role::Viewer);
    }

    #[test]
    fn a_token_is_good_until_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = "eve 0123456789abcdef role=viewer expires=2030-01-31T11:00:00Z";
        std::fs::write(file.path(), line).unwrap();
        let tokens = TokenFile::load(file.path()).unwrap();
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_hours(526_691);
        let before = end - std::time::Duration::from_secs(1);
        let eve = Identity { name: Some("eve".to_owned()), role: Role::Viewer };
        assert_eq!(tokens.find(b"0123456789abcdef", before), Ok(eve));
        assert_eq!(tokens.find(b"0123456789abcdef", end), Err(Denied::ExpiredToken));
        assert_eq!(tokens.find(b"0123456789abcdeg", end), Err(Denied::WrongToken));
    }

    #[test]
    fn a_program_does_not_start_without_tokens() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = TokenFile::load(file.path()).unwrap_err().to_string();
        assert_eq!(error, format!("{}: holds no token", file.path().display()));
        let error = TokenFile::load("/not/there").unwrap_err().to_string();
        assert!(error.starts_with("cannot read /not/there: "), "{error}");
    }
}
