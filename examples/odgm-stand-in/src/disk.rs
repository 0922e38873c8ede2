//! The disk of a node: what is on it tells whether it outlives pods.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

/// Counts one more start in the file `node`: the node's id on a line, the number on the next.
pub(crate) fn count_start(dir: &Path, node: &str) -> Result<(), String> {
    let expected = "a folder to write to";
    let dir_text = dir.to_string_lossy();
    write(dir, node)
        .map_err(|error| format!("ODGM_DATA_DIR={dir_text:?}; expected: {expected}, but {error}"))
}

fn write(dir: &Path, node: &str) -> io::Result<()> {
    let file = dir.join("node");
    let before = match fs::read_to_string(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        text => count(&text?)?,
    };
    // A process that is killed here must not leave half a file to the next.
    let new = dir.join("node.new");
    fs::write(&new, format!("{node}\n{}\n", before.saturating_add(1)))?;
    fs::rename(new, file)
}

fn count(text: &str) -> io::Result<u64> {
    let count = text.lines().nth(1).and_then(|line| line.parse().ok());
    count.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "its file `node` isn't ours"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        count_start(dir.path(), "grid-0").unwrap();
        count_start(dir.path(), "grid-0").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("node")).unwrap(), "grid-0\n2\n");
    }

    #[test]
    fn what_cannot_be_written_to_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = count_start(&dir.path().join("missing"), "grid-0").unwrap_err();
        assert!(error.starts_with("ODGM_DATA_DIR="), "{error}");
        fs::write(dir.path().join("node"), "nonsense").unwrap();
        assert!(count_start(dir.path(), "grid-0").unwrap_err().contains("isn't ours"));
    }
}
