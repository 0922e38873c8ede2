//! Where things are kept: programs in the user's cache, clusters in the user's state folder.

use std::{env, path::PathBuf};

use crate::{Error, Result};

fn under_home(variable: &str, fallback: &str) -> Result<PathBuf> {
    if let Some(path) = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Ok(path.join("oprc"));
    }
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.map(|home| home.join(fallback).join("oprc")).ok_or_else(|| {
        Error::BadOption(format!("neither {variable} nor HOME is set: set {variable} to a folder"))
    })
}

/// The folder of built and unpacked programs; any part of it may be deleted.
pub(crate) fn cache() -> Result<PathBuf> {
    under_home("XDG_CACHE_HOME", ".cache")
}

/// The folder that has a folder for each cluster.
pub(crate) fn clusters() -> Result<PathBuf> {
    Ok(under_home("XDG_STATE_HOME", ".local/state")?.join("sandbox"))
}
