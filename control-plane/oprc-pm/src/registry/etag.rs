//! ETags of versions: published once, only the deprecation changes.

use oprc_rest::PackageVersion;
use sha2::{Digest as _, Sha256};

/// The digest, followed by a hash of the deprecation.
pub fn etag(version: &PackageVersion) -> String {
    let Some(reason) = &version.deprecated else { return version.digest.clone() };
    format!("{}.{:.8}", version.digest, hex::encode(Sha256::digest(reason)))
}
