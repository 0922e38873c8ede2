//! The variables of a node.

use std::{collections::BTreeMap, num::NonZeroU16, path::PathBuf, str::FromStr};

use serde::Deserialize;

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;

#[derive(Clone, Debug)]
pub struct Config {
    pub http_port: u16,
    pub node_id: String,
    pub cluster_id: String,
    /// The address of this node.
    pub address: String,
    pub collections: Vec<Collection>,
    pub data_dir: PathBuf,
    pub class_file: PathBuf,
    pub log: String,
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
        if let Some(other) = collections.iter().find(|it| it.shard_type != ShardType::Basic) {
            return Err(format!(
                "ODGM_COLLECTION: {:?} has the shard type {:?}; expected: basic",
                other.name, other.shard_type
            ));
        }
        let mut modes = collections.iter().map(|it| it.persistence_mode);
        let first = modes.next();
        if modes.any(|it| Some(it) != first) {
            let expected = "the same persistence_mode for all";
            return Err(format!("ODGM_COLLECTION has different collections; expected: {expected}"));
        }
        Ok(Self {
            http_port: required(variables, "ODGM_HTTP_PORT", "a port", parse::<NonZeroU16>)?.get(),
            node_id: text("ODGM_NODE_ID")?,
            cluster_id: text("ODGM_CLUSTER_ID")?,
            address: text("ODGM_NODE_ADDR")?,
            collections,
            data_dir: text("ODGM_DATA_DIR")?.into(),
            class_file: text("ODGM_CLASS_FILE")?.into(),
            log: text("ODGM_LOG")?,
        })
    }

    /// Whether objects survive the process.
    pub fn is_persistent(&self) -> bool {
        self.collections.iter().any(|it| it.persistence_mode == Persistence::Persistent)
    }
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
    fn errors_name_the_variable() {
        for name in variables().keys() {
            let mut missing = variables();
            missing.remove(name);
            let error = Config::read(&missing).unwrap_err();
            assert!(error.starts_with(&format!("{name} is not set; expected: ")), "{error}");
        }
        let raft = variables()["ODGM_COLLECTION"].replace("basic", "raft");
        let two = r#"[{"name": "a", "partition_count": 1, "shard_type": "basic", "persistence_mode": "persistent"},
            {"name": "b", "partition_count": 1, "shard_type": "basic", "persistence_mode": "ephemeral"}]"#;
        let wrong = [
            ("ODGM_HTTP_PORT", "0"),
            ("ODGM_NODE_ID", " "),
            ("ODGM_COLLECTION", "[]"),
            ("ODGM_COLLECTION", "{"),
            ("ODGM_COLLECTION", &raft),
            ("ODGM_COLLECTION", two),
        ];
        for (name, value) in wrong {
            let mut variables = variables();
            variables.insert(name.to_owned(), value.to_owned());
            let error = Config::read(&variables).unwrap_err();
            assert!(error.starts_with(name) && error.contains("; expected: "), "{error}");
        }
    }
}
