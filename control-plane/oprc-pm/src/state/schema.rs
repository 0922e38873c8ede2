//! Keys and encoding of stored records.
//!
//! | key | record |
//! | --- | --- |
//! | `format` | the number of the format of all records |
//! | `package/NAME` | [`PackageHead`]; rewritten by every transaction that publishes, deletes or begins to use a version |
//! | `version/NAME/VERSION` | [`oprc_rest::PackageVersion`], immutable except for its deprecation |
//! | `deployment/KEY` | [`DeploymentRecord`](crate::rollout::DeploymentRecord), with the specs of its units |
//! | `revision/KEY/REVISION` | [`oprc_rest::Revision`], the latest [`MAX_REVISIONS`] of each deployment |
//! | `deployment-unit/CLUSTER/ID` | [`UnitRecord`](crate::rollout::UnitRecord) |
//!
//! Deployments and units share the prefix `deployment`, so that one list returns both as of the
//! same store revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{error::Error, rollout::UnitKey};

pub const FORMAT_KEY: &str = "format";
/// Revisions kept in a deployment's history.
pub const MAX_REVISIONS: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PackageHead {
    /// All versions, each with the reason of its deprecation.
    pub versions: BTreeMap<String, Option<String>>,
}

pub fn package_key(name: &str) -> String {
    format!("package/{name}")
}

pub fn version_key(name: &str, version: &str) -> String {
    format!("version/{name}/{version}")
}

pub fn deployment_key(key: &str) -> String {
    format!("deployment/{key}")
}

/// With an empty revision: the prefix of the deployment's history.
pub fn revision_key(key: &str, revision: &str) -> String {
    format!("revision/{key}/{revision}")
}

pub fn unit_key((cluster, id): &UnitKey) -> String {
    format!("deployment-unit/{cluster}/{id}")
}

pub fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(value)
        .map_err(|error| Error::Internal(format!("cannot decode {key} in the store: {error}")))
}

pub fn encode(value: &impl Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| Error::Internal(format!("cannot encode a record: {error}")))
}

/// Decodes a record; one that can't be decoded is logged and treated as absent, so that the others
/// are served.
pub(super) fn decode_or_skip<T: DeserializeOwned>(key: &str, value: &[u8]) -> Option<T> {
    decode(key, value).inspect_err(|error| tracing::error!(%error, "skipped a stored record")).ok()
}
