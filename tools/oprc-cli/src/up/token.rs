//! Tokens for package managers that we start, in files that only their owner can read.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result};

/// A new one.
pub(super) fn secret() -> Result<String> {
    let mut bytes = [0; 24];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("making a token")?;
    Ok(hex::encode(bytes))
}

/// The line by which a package manager knows it.
pub(super) fn line(secret: &str) -> String {
    format!("admin {secret} role=admin\n")
}

/// Writes a file that only its owner can read, all of it or nothing.
pub(super) fn private(path: &Path, text: &str) -> Result<()> {
    let write = || -> Result<()> {
        let folder = path.parent().context("it has no folder")?;
        // Temporary files are made so.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        private(&path, "one").unwrap();
        private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(secret().unwrap(), secret().unwrap());
    }
}
