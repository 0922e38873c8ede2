//! Counts starts in the data folder, so that tests can check that the volume outlives pods.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

/// Increments the count in the file `node`: node id on the first line, number of starts on the second.
pub(crate) fn increment(dir: &Path, node: &str) -> Result<(), String> {
    let shown = dir.to_string_lossy();
    let expected = format!("ODGM_DATA_DIR={shown:?}; expected: a writable folder");
    write(dir, node).map_err(|error| format!("{expected}; {error}"))
}

fn write(dir: &Path, node: &str) -> io::Result<()> {
    let file = dir.join("node");
    let before = match fs::read_to_string(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        text => count(&text?)?,
    };
    // Atomic: a killed process must not leave a partial file.
    let new = dir.join("node.new");
    fs::write(&new, format!("{node}\n{}\n", before.saturating_add(1)))?;
    fs::rename(new, file)
}

fn count(text: &str) -> io::Result<u64> {
    let count = text.lines().nth(1).and_then(|line| line.parse().ok());
    count.ok_or_else(|| io::Error::other("its file `node` has another format"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_starts() {
        let dir = tempfile::tempdir().unwrap();
        increment(dir.path(), "grid-0").unwrap();
        increment(dir.path(), "grid-0").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("node")).unwrap(), "grid-0\n2\n");
    }

    #[test]
    fn errors_name_the_data_folder() {
        let dir = tempfile::tempdir().unwrap();
        let error = increment(&dir.path().join("missing"), "grid-0").unwrap_err();
        assert!(error.starts_with("ODGM_DATA_DIR="), "{error}");
        fs::write(dir.path().join("node"), "nonsense").unwrap();
        assert!(increment(dir.path(), "grid-0").unwrap_err().contains("has another format"));
    }
}
