//! Kubeconfig files with embedded certificates, so that they can be copied.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::pki::Identity;

/// A kubeconfig for one user of one cluster. Clients read JSON as YAML.
pub(crate) fn kubeconfig(cluster: &str, url: &str, authority: &str, identity: &Identity) -> Value {
    let encode = |pem: &str| BASE64_STANDARD.encode(pem);
    let name = format!("oprc-{cluster}");
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{
            "name": name,
            "cluster": {"server": url, "certificate-authority-data": encode(authority)},
        }],
        "users": [{
            "name": name,
            "user": {
                "client-certificate-data": encode(&identity.certificate),
                "client-key-data": encode(&identity.key),
            },
        }],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    })
}
