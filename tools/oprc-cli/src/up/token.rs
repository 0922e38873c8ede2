//! Admin tokens of package managers that `oprc up` starts.

use std::{fs::File, io::Read as _};

use anyhow::{Context as _, Result};

pub(super) fn generate() -> Result<String> {
    let mut bytes = [0; 24];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("generating a token")?;
    Ok(hex::encode(bytes))
}

/// The line of the package manager's token file.
pub(super) fn token_file_line(secret: &str) -> String {
    format!("admin {secret} role=admin\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn tokens_differ() {
        assert_ne!(super::generate().unwrap(), super::generate().unwrap());
    }
}
