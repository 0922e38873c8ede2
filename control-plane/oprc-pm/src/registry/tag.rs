//! What tells versions of a version apart: it is published once, and deprecated or not.

use oprc_rest::PackageVersion;
use sha2::{Digest as _, Sha256};

/// A version's tag: its digest, and beside it what can still change.
pub fn tag(version: &PackageVersion) -> String {
    let Some(reason) = &version.deprecated else { return version.digest.clone() };
    format!("{}.{:.8}", version.digest, hex::encode(Sha256::digest(reason)))
}
