//! The variables of a node.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU16,
    path::PathBuf,
    str::FromStr,
};

use oprc_cp_storage::EtcdMember;
use serde::Deserialize;

/// One record of ownership is stored for each.
const MAX_PARTITIONS: u32 = 4096;
const DEFAULT_PUBLIC_PORT: u16 = 8083;
const DEFAULT_ADMIN_PORT: u16 = 8084;
const DEFAULT_TLS_DIR: &str = "/etc/odgm-tls";
const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;
const MIN_QUOTA_BYTES: u64 = 16 << 20;

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;

#[derive(Clone, Debug)]
pub struct Config {
    pub http_port: u16,
    /// For callers from outside of the cluster.
    pub public_port: u16,
    /// A loopback address: who can connect to it may read and write everything.
    pub admin_address: SocketAddr,
    pub node_id: String,
    pub cluster_id: String,
    /// The address of this node.
    pub address: String,
    pub collections: Vec<Collection>,
    pub data_dir: PathBuf,
    pub class_file: PathBuf,
    pub log: String,
    /// Where to listen; the default depends on whether the node is in a container.
    pub bind_address: Option<IpAddr>,
    /// None if the node is the only one of its grid.
    pub replica: Option<ReplicaConfig>,
}

/// Settings of a node whose objects are replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// The name of the pod: that of the StatefulSet, `-`, and the index.
    pub name: String,
    pub index: u32,
    /// The host of a node, with `{index}` for its index.
    pub host_pattern: String,
    pub peer_port: u16,
    pub etcd_peer_port: u16,
    /// A loopback address: etcd's clients aren't authenticated.
    pub etcd_client: SocketAddr,
    pub etcd_program: PathBuf,
    pub etcd_quota_bytes: u64,
    /// The folder with `ca.crt`, `tls.crt` and `tls.key`.
    pub tls_dir: PathBuf,
    pub members_file: PathBuf,
}

impl ReplicaConfig {
    /// The name of the node with an index.
    pub fn name_of(&self, index: u32) -> String {
        let set = self.name.rsplit_once('-').map_or(self.name.as_str(), |(set, _)| set);
        format!("{set}-{index}")
    }

    /// The index of the node of a member, which has no name before it has started.
    pub(crate) fn index_of_member(&self, member: &EtcdMember) -> Option<u32> {
        let has_url = |index: &u32| member.peer_urls.contains(&self.etcd_peer_url(*index));
        index_of(&member.name).or_else(|| (0..MAX_MEMBERS).find(has_url))
    }

    pub fn host_of(&self, index: u32) -> String {
        self.host_pattern.replace("{index}", &index.to_string())
    }

    /// Where a node accepts calls of other nodes.
    pub fn peer_address(&self, index: u32) -> String {
        format!("{}:{}", self.host_of(index), self.peer_port)
    }

    /// Where the etcd of a node accepts other members.
    pub fn etcd_peer_url(&self, index: u32) -> String {
        format!("https://{}:{}", self.host_of(index), self.etcd_peer_port)
    }
}

/// As many as a class may have.
pub(crate) const MAX_MEMBERS: u32 = 99;

/// The index at the end of the name of a node.
pub(crate) fn index_of(name: &str) -> Option<u32> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// An element of `ODGM_COLLECTION`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Collection {
    pub name: String,
    pub partition_count: u32,
    pub shard_type: ShardType,
    pub persistence_mode: Persistence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardType {
    Raft,
    Basic,
    Mst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    Persistent,
    Ephemeral,
}

impl Config {
    /// Checks all variables. An error is one line that names the variable and what is allowed.
    pub fn read(variables: &Variables) -> Result<Self, String> {
        let text = |name: &str| required(variables, name, "a text", non_empty);
        let collections = required(variables, "ODGM_COLLECTION", "a JSON list", |text| {
            serde_json::from_str::<Vec<Collection>>(text).ok().filter(|it| !it.is_empty())
        })?;
        check_collections(&collections)?;
        let is_replicated = collections.iter().any(|it| it.shard_type == ShardType::Raft);
        let address = text("ODGM_NODE_ADDR")?;
        let replica = is_replicated.then(|| replica(variables, &address)).transpose()?;
        let bind_address = optional(variables, "ODGM_BIND_ADDRESS", "an IP address", parse)?;
        Ok(Self {
            http_port: required(variables, "ODGM_HTTP_PORT", "a port", parse::<NonZeroU16>)?.get(),
            public_port: optional(variables, "ODGM_PUBLIC_PORT", "a port", parse::<NonZeroU16>)?
                .map_or(DEFAULT_PUBLIC_PORT, NonZeroU16::get),
            node_id: node_id(variables)?,
            cluster_id: text("ODGM_CLUSTER_ID")?,
            address,
            collections,
            data_dir: text("ODGM_DATA_DIR")?.into(),
            class_file: text("ODGM_CLASS_FILE")?.into(),
            log: text("ODGM_LOG")?,
            admin_address: admin_address(variables, bind_address)?,
            bind_address,
            replica,
        })
    }

    /// Whether objects survive the process.
    pub fn is_persistent(&self) -> bool {
        self.collections.iter().any(|it| it.persistence_mode == Persistence::Persistent)
    }
}

/// The index has three digits if the prefix is known.
fn node_id(variables: &Variables) -> Result<String, String> {
    let prefix = optional(variables, "ODGM_NODE_ID_PREFIX", "a text", non_empty)?;
    let index = optional(variables, "ODGM_NODE_INDEX", "a number", parse::<u32>)?;
    let id = required(variables, "ODGM_NODE_ID", "a text", non_empty)?;
    Ok(prefix.map_or(id, |prefix| format!("{prefix}{:03}", index.unwrap_or_default())))
}

/// Nodes that share a network have loopback addresses of their own.
fn admin_address(variables: &Variables, bound: Option<IpAddr>) -> Result<SocketAddr, String> {
    let expected = "a loopback address with a port";
    let address = optional(variables, "ODGM_ADMIN_ADDRESS", expected, loopback)?;
    let host = bound.filter(IpAddr::is_loopback).unwrap_or(Ipv4Addr::LOCALHOST.into());
    Ok(address.unwrap_or(SocketAddr::new(host, DEFAULT_ADMIN_PORT)))
}

/// All collections of a grid are in one store.
fn check_collections(collections: &[Collection]) -> Result<(), String> {
    let invalid = |what: &str, expected: &str| {
        Err(format!("ODGM_COLLECTION has {what}; expected: {expected}"))
    };
    let kind = |it: &Collection| (it.shard_type, it.persistence_mode);
    let Some(first) = collections.first().map(kind) else { return Ok(()) };
    if collections.iter().any(|it| kind(it) != first) {
        return invalid(
            "different collections",
            "the same shard_type and persistence_mode for all",
        );
    }
    match first {
        (ShardType::Mst, _) => invalid("the shard type mst", "basic or raft"),
        (ShardType::Raft, Persistence::Ephemeral) => {
            invalid("ephemeral collections of the shard type raft", "persistent")
        }
        _ if collections.iter().any(|it| !(1..=MAX_PARTITIONS).contains(&it.partition_count)) => {
            invalid(
                "an invalid partition_count",
                &format!("a partition_count of 1 to {MAX_PARTITIONS}"),
            )
        }
        _ => Ok(()),
    }
}

fn replica(variables: &Variables, address: &str) -> Result<ReplicaConfig, String> {
    let named = |text: &str| Some((text.to_owned(), index_of(text)?));
    let expected = "the name of a pod of a StatefulSet";
    let (name, index) = required(variables, "ODGM_NODE_NAME", expected, named)?;
    let port = |variable, default| {
        let port = optional(variables, variable, "a port", parse::<NonZeroU16>)?;
        Ok::<_, String>(port.map_or(default, NonZeroU16::get))
    };
    let with_index = |text: &str| text.contains("{index}").then(|| text.to_owned());
    let expected = "a host with {index} for the index of a node";
    let host = match optional(variables, "ODGM_PEER_HOST", expected, with_index)? {
        Some(pattern) => pattern,
        None => host_pattern(&name, address).ok_or_else(|| {
            format!("ODGM_NODE_ADDR={address:?}; expected: http://{name}.DOMAIN:PORT")
        })?,
    };
    let client = optional(variables, "ODGM_ETCD_CLIENT_ADDRESS", "a loopback address", loopback)?;
    let program = optional(variables, "ODGM_ETCD_PROGRAM", "a path", non_empty)?;
    let tls_dir = optional(variables, "ODGM_TLS_DIR", "a folder", non_empty)?;
    let quota = |text: &str| text.parse().ok().filter(|it| *it >= MIN_QUOTA_BYTES);
    let expected = format!("a number of bytes, at least {MIN_QUOTA_BYTES}");
    let quota = optional(variables, "ODGM_ETCD_QUOTA_BYTES", &expected, quota)?;
    Ok(ReplicaConfig {
        name,
        index,
        host_pattern: host,
        peer_port: port("ODGM_PEER_PORT", 8082)?,
        etcd_peer_port: port("ODGM_ETCD_PEER_PORT", 2380)?,
        etcd_client: client.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 2379)),
        etcd_program: program.unwrap_or_else(|| "/usr/bin/etcd".to_owned()).into(),
        etcd_quota_bytes: quota.unwrap_or(DEFAULT_QUOTA_BYTES),
        tls_dir: tls_dir.unwrap_or_else(|| DEFAULT_TLS_DIR.to_owned()).into(),
        members_file: required(variables, "ODGM_MEMBERS_FILE", "a file", non_empty)?.into(),
    })
}

/// The host of the node's address, with `{index}` instead of the index in its name.
fn host_pattern(name: &str, address: &str) -> Option<String> {
    let host = address.split_once("://")?.1.split(['/', ':']).next()?;
    let domain = host.strip_prefix(name)?.strip_prefix('.')?;
    Some(format!("{}-{{index}}.{domain}", name.rsplit_once('-')?.0))
}

fn optional<T>(
    variables: &Variables,
    name: &str,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let is_set = variables.get(name).is_some_and(|it| !it.is_empty());
    is_set.then(|| required(variables, name, expected, parse)).transpose()
}

fn required<T>(
    variables: &Variables,
    name: &str,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, String> {
    let missing = || format!("{name} is not set; expected: {expected}");
    let value = variables.get(name).ok_or_else(missing)?;
    // Debug format escapes line breaks.
    parse(value).ok_or_else(|| format!("{name}={value:?}; expected: {expected}"))
}

fn loopback(text: &str) -> Option<SocketAddr> {
    text.parse().ok().filter(|it: &SocketAddr| it.ip().is_loopback())
}

fn parse<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn non_empty(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let collection = r#"[{"name": "C", "partition_count": 4, "replica_count": 1,
            "shard_type": "basic", "persistence_mode": "persistent"}]"#;
        let all = [
            ("ODGM_HTTP_PORT", "8080"),
            ("ODGM_NODE_ID", "n-000"),
            ("ODGM_CLUSTER_ID", "c"),
            ("ODGM_NODE_ADDR", "http://n:8080"),
            ("ODGM_COLLECTION", collection),
            ("ODGM_DATA_DIR", "/data"),
            ("ODGM_CLASS_FILE", "/etc/odgm/class.json"),
            ("ODGM_LOG", "INFO"),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn variables_are_read() {
        let config = Config::read(&variables()).unwrap();
        assert_eq!((config.http_port, config.is_persistent()), (8080, true));
        assert_eq!(config.collections[0].partition_count, 4);
    }

    #[test]
    fn the_admin_port_is_on_loopback_whatever_the_node_binds() {
        let admin_address = |bound: &str| {
            let mut variables = variables();
            variables.insert("ODGM_BIND_ADDRESS".to_owned(), bound.to_owned());
            Config::read(&variables).unwrap().admin_address.to_string()
        };
        for (bound, expected) in [
            ("", "127.0.0.1:8084"),
            ("0.0.0.0", "127.0.0.1:8084"),
            ("10.0.0.7", "127.0.0.1:8084"),
            ("127.1.2.3", "127.1.2.3:8084"),
        ] {
            assert_eq!(admin_address(bound), expected, "{bound}");
        }
    }

    #[test]
    fn errors_name_the_variable() {
        for name in variables().keys() {
            let mut missing = variables();
            missing.remove(name);
            let error = Config::read(&missing).unwrap_err();
            assert!(error.starts_with(&format!("{name} is not set; expected: ")), "{error}");
        }
        let mst = variables()["ODGM_COLLECTION"].replace("basic", "mst");
        let many = variables()["ODGM_COLLECTION"].replace('4', "4097");
        let two = r#"[{"name": "a", "partition_count": 1, "shard_type": "basic", "persistence_mode": "persistent"},
            {"name": "b", "partition_count": 1, "shard_type": "basic", "persistence_mode": "ephemeral"}]"#;
        let wrong = [
            ("ODGM_HTTP_PORT", "0"),
            ("ODGM_NODE_ID", " "),
            ("ODGM_COLLECTION", "[]"),
            ("ODGM_COLLECTION", "{"),
            ("ODGM_COLLECTION", &mst),
            ("ODGM_COLLECTION", &many),
            ("ODGM_BIND_ADDRESS", "localhost"),
            ("ODGM_PUBLIC_PORT", "x"),
            ("ODGM_ADMIN_ADDRESS", "0.0.0.0:8084"),
            ("ODGM_COLLECTION", two),
        ];
        for (name, value) in wrong {
            let mut variables = variables();
            variables.insert(name.to_owned(), value.to_owned());
            let error = Config::read(&variables).unwrap_err();
            assert!(error.starts_with(name) && error.contains("; expected: "), "{error}");
        }
    }

    fn replicated() -> Variables {
        let mut variables = variables();
        let raft = variables["ODGM_COLLECTION"].replace("basic", "raft");
        let more = [
            ("ODGM_COLLECTION", raft.as_str()),
            ("ODGM_NODE_NAME", "counter-odgm-2"),
            ("ODGM_NODE_ADDR", "http://counter-odgm-2.counter-peers.shop.svc:8081"),
            ("ODGM_TLS_DIR", "/etc/odgm-tls"),
            ("ODGM_MEMBERS_FILE", "/etc/odgm/members.json"),
        ];
        variables.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables
    }

    #[test]
    fn peers_are_named_like_the_pods_of_a_stateful_set() {
        let replica = Config::read(&replicated()).unwrap().replica.unwrap();
        assert_eq!((replica.index, replica.name_of(0).as_str()), (2, "counter-odgm-0"));
        assert_eq!(replica.peer_address(1), "counter-odgm-1.counter-peers.shop.svc:8082");
        let url = "https://counter-odgm-11.counter-peers.shop.svc:2380";
        assert_eq!(replica.etcd_peer_url(11), url);
        assert_eq!(replica.etcd_quota_bytes, 2 << 30);
        let mut other = replicated();
        for (name, value) in [("ODGM_NODE_ID_PREFIX", "grid-"), ("ODGM_NODE_INDEX", "11")] {
            other.insert(name.to_owned(), value.to_owned());
        }
        assert_eq!(Config::read(&other).unwrap().node_id, "grid-011");
        other.insert("ODGM_PEER_HOST".to_owned(), "127.0.0.1{index}".to_owned());
        let replica = Config::read(&other).unwrap().replica.unwrap();
        assert_eq!(replica.peer_address(1), "127.0.0.11:8082");
    }

    #[test]
    fn settings_of_replicas_are_checked() {
        let ephemeral = replicated()["ODGM_COLLECTION"].replace("persistent", "ephemeral");
        let wrong = [
            ("ODGM_COLLECTION", ephemeral.as_str()),
            ("ODGM_NODE_NAME", "counter"),
            ("ODGM_NODE_ADDR", "http://other:8081"),
            ("ODGM_PEER_HOST", "127.0.0.1"),
            ("ODGM_PEER_PORT", "0"),
            ("ODGM_ETCD_CLIENT_ADDRESS", "0.0.0.0:2379"),
            ("ODGM_ETCD_QUOTA_BYTES", "1000"),
            ("ODGM_TLS_DIR", " "),
            ("ODGM_MEMBERS_FILE", ""),
        ];
        for (name, value) in wrong {
            let mut variables = replicated();
            variables.insert(name.to_owned(), value.to_owned());
            let error = Config::read(&variables).unwrap_err();
            assert!(error.starts_with(name) && error.contains("; expected: "), "{error}");
        }
    }
}
