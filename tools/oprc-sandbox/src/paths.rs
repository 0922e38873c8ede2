//! Locations: programs in the user's cache, clusters in the user's state folder, and `oprc` itself.

use std::{env, fs, path::PathBuf};

use crate::{Error, Result};

fn under_home(variable: &str, fallback: &str) -> Result<PathBuf> {
    let absolute =
        |variable| env::var_os(variable).map(PathBuf::from).filter(|it| it.is_absolute());
    let folder = absolute(variable).or_else(|| Some(absolute("HOME")?.join(fallback)));
    folder.map(|folder| folder.join("oprc")).ok_or_else(|| {
        Error::BadOption(format!("neither {variable} nor HOME is set. Set {variable} to a folder"))
    })
}

/// Environment variable with the path of the `oprc` program that runs supervisors.
pub(crate) const OPRC_VARIABLE: &str = "OPRC";

/// The folder of built and unpacked programs. It may be deleted at any time; programs are rebuilt.
pub(crate) fn cache() -> Result<PathBuf> {
    under_home("XDG_CACHE_HOME", ".cache")
}

/// The folder that contains a folder for each cluster.
pub(crate) fn clusters() -> Result<PathBuf> {
    Ok(under_home("XDG_STATE_HOME", ".local/state")?.join("sandbox"))
}

/// The `oprc` program: the one named by [`OPRC_VARIABLE`], this program, or one in the same or the
/// parent folder, where cargo puts it next to test programs.
pub(crate) fn oprc_program() -> PathBuf {
    if let Some(named) = env::var_os(OPRC_VARIABLE) {
        // A restart may happen in another working directory.
        return fs::canonicalize(&named).unwrap_or_else(|_| named.into());
    }
    let current = env::current_exe().unwrap_or_default();
    if current.file_name().is_some_and(|name| name == "oprc" || name == "kubectl-oaas") {
        return current;
    }
    let mut nearby = current.ancestors().skip(1).take(2).map(|folder| folder.join("oprc"));
    nearby.find(|path| path.is_file()).unwrap_or_else(|| "oprc".into())
}
