//! What tells versions of a version apart: it is published once, and deprecated or not.

use std::fmt::Write as _;

use oprc_rest::PackageVersion;
use sha2::{Digest as _, Sha256};

/// A version's tag: its digest, and beside it what can still change.
pub fn tag(version: &PackageVersion) -> String {
    let Some(reason) = &version.deprecated else { return version.digest.clone() };
    let mut tag = format!("{}.", version.digest);
    for byte in Sha256::digest(reason).iter().take(4) {
        // Writing into a String can't fail.
        let _ = write!(tag, "{byte:02x}");
    }
    tag
}
