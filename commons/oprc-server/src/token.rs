//! Tokens that a file names.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::from_utf8,
    sync::Arc,
};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{
    Error, Identity,
    reread::{INTERVAL, Reread, read},
};

/// Shorter ones can be guessed.
const MIN_CHARACTERS: usize = 16;

/// A file of bearer tokens, read again when it changes. Cheap to clone.
///
/// A line is `TOKEN` or `NAME TOKEN`; what follows a `#` at the start of a word is a comment. A
/// name may have several tokens, so that they can be rotated. A change that can't be read or is
/// wrong is logged and leaves the tokens as they were; a file without tokens lets nobody in. A file
/// is best replaced by renaming another one over it.
#[derive(Clone)]
pub struct TokenFile {
    path: Arc<Path>,
    tokens: Arc<Reread<Vec<Token>>>,
}

/// A token's digest: of one length for tokens of any, and no secret.
struct Token {
    name: Option<String>,
    digest: [u8; 32],
}

impl TokenFile {
    /// Reads a file, which must hold a token: that it holds none is a mistake when a program
    /// starts, though later it may be how everybody is locked out.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let file = path.clone();
        let tokens =
            Reread::new(vec![path.clone()], INTERVAL, move || parse(&file, &read(&file)?))?;
        if tokens.current().is_empty() {
            return Err(Error::File { path, reason: "holds no token".to_owned() });
        }
        Ok(Self { path: path.into(), tokens: Arc::new(tokens) })
    }

    /// Whose token this is, if it is one; takes as long for one token as for another.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Identity> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let tokens = self.tokens.current();
        let mut found = Choice::from(0);
        let mut at = 0_u64;
        for (index, known) in (0_u64..).zip(tokens.iter()) {
            let equal = known.digest.ct_eq(&digest);
            at.conditional_assign(&index, equal);
            found |= equal;
        }
        if !bool::from(found) {
            return None;
        }
        let token = tokens.get(usize::try_from(at).ok()?)?;
        Some(Identity { name: token.name.clone() })
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TokenFile").field(&self.path).finish()
    }
}

fn parse(path: &Path, content: &[u8]) -> Result<Vec<Token>, Error> {
    let Ok(content) = from_utf8(content) else {
        return Err(Error::File { path: path.to_owned(), reason: "isn't UTF-8".to_owned() });
    };
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(content.lines()) {
        let wrong = |reason| Error::Token { path: path.to_owned(), line, reason };
        let mut words = text.split_whitespace().take_while(|word| !word.starts_with('#'));
        let (name, token) = match (words.next(), words.next(), words.next()) {
            (None, ..) => continue,
            (Some(token), None, _) => (None, token),
            (Some(name), Some(token), None) => (Some(name.to_owned()), token),
            _ => return Err(wrong("a line is a token, or a name and a token")),
        };
        if token.chars().count() < MIN_CHARACTERS {
            return Err(wrong("a token has at least 16 characters"));
        }
        tokens.push(Token { name, digest: Sha256::digest(token).into() });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(content: &[u8]) -> String {
        parse(Path::new("/tokens"), content).err().unwrap().to_string()
    }

    #[test]
    fn names_the_line_and_not_the_token() {
        let short = error(b"# comment\n\n0123456789abcdef\nname secret\n");
        assert_eq!(short, "/tokens: line 4: a token has at least 16 characters");
        let words = error(b"one two three");
        assert_eq!(words, "/tokens: line 1: a line is a token, or a name and a token");
        assert_eq!(error(b"\xff"), "/tokens: isn't UTF-8");
    }

    #[test]
    fn a_comment_may_follow_a_token() {
        let tokens =
            parse(Path::new(""), b"  0123456789abcdef # of the operator's laptop\n").unwrap();
        assert_eq!(tokens.len(), 1);
        assert_eq!(tokens[0].name, None);
        let digest: [u8; 32] = Sha256::digest("0123456789abcdef").into();
        assert_eq!(tokens[0].digest, digest);
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
