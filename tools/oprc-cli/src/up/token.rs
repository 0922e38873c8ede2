//! Admin tokens of package managers that `oprc up` starts.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result};

pub(super) fn generate() -> Result<String> {
    let mut bytes = [0; 24];
    fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("generating a token")?;
    Ok(hex::encode(bytes))
}

/// The line of the package manager's token file.
pub(super) fn token_file_line(secret: &str) -> String {
    format!("admin {secret} role=admin\n")
}

/// Replaces a file atomically; readable by its owner only.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    let write = || -> Result<()> {
        let folder = path.parent().context("the path has no parent directory")?;
        // Temporary files are created with mode 0600.
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
    fn private_files_are_readable_by_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(generate().unwrap(), generate().unwrap());
    }
}
