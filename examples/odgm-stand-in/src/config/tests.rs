use super::*;

const COLLECTION: &str = r#"[
    {"name": "a.b", "partition_count": 4, "shard_type": "raft",
     "persistence_mode": "persistent", "access_patterns": ["read_write"],
     "shard_assignments": [{"primary": 0, "owners": [0, 1], "shard_ids": [0]}]},
    {"name": "c", "partition_count": 1, "shard_type": "basic",
     "persistence_mode": "ephemeral", "access_patterns": []}]"#;

fn valid() -> Variables {
    let variables = [
        ("ODGM_HTTP_PORT", "8080"),
        ("ODGM_NODE_ID", "grid-0"),
        ("ODGM_NODE_ADDR", "http://grid-0.grid:8080"),
        ("ODGM_COLLECTIONS", "a.b,c"),
        ("ODGM_COLLECTION", COLLECTION),
        ("ODGM_CLUSTER_ID", "grid"),
        ("ODGM_LOG", "info"),
        ("ODGM_CLASS_FILE", "/etc/odgm/class.json"),
    ];
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn with(name: &str, value: &str) -> Result<Config, String> {
    let mut variables = valid();
    variables.insert(name.to_owned(), value.to_owned());
    Config::read(&variables)
}

#[test]
fn reads_valid_variables() {
    let config = Config::read(&valid()).unwrap();
    assert_eq!((config.http_port, config.address.as_str()), (8080, "http://grid-0.grid:8080"));
    assert_eq!((config.node_id.as_str(), config.cluster_id.as_str()), ("grid-0", "grid"));
    assert_eq!(config.collections.len(), 2);
    assert_eq!((config.data_dir, config.unready_until, config.exit_after), (None, None, None));
    assert!(with("ODGM_DATA_DIR", "/data").is_ok());
}

#[test]
fn accepts_an_empty_list_of_collections() {
    let mut variables = valid();
    variables.insert("ODGM_COLLECTIONS".to_owned(), String::new());
    variables.insert("ODGM_COLLECTION".to_owned(), "[]".to_owned());
    assert!(Config::read(&variables).unwrap().collections.is_empty());
}

#[test]
fn errors_name_missing_variables() {
    for name in valid().keys() {
        let mut variables = valid();
        variables.remove(name);
        let error = Config::read(&variables).unwrap_err();
        assert!(error.starts_with(&format!("{name} is not set; expected: ")), "{error}");
    }
}

#[test]
fn errors_name_invalid_variables() {
    let invalid: [(&str, &[&str]); 11] = [
        ("ODGM_HTTP_PORT", &["", "0", "65536", "http"]),
        ("ODGM_NODE_ID", &["", " "]),
        ("ODGM_NODE_ADDR", &["grid-0:8080", "http://grid-0:8081", "http://:8080", "http://grid-0"]),
        ("ODGM_COLLECTIONS", &["a.b,,c"]),
        ("ODGM_COLLECTION", &["", "{}", "[{}]", "[]", r#"["a.b", "c"]"#]),
        ("ODGM_CLUSTER_ID", &[""]),
        ("ODGM_LOG", &[""]),
        ("ODGM_CLASS_FILE", &[""]),
        ("ODGM_DATA_DIR", &[""]),
        ("STAND_IN_UNREADY_UNTIL", &[""]),
        ("STAND_IN_EXIT_AFTER_MS", &["soon"]),
    ];
    for (name, values) in invalid {
        for value in values {
            let error = with(name, value).unwrap_err();
            assert!(error.starts_with(name) && error.contains("expected: "), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}

#[test]
fn validates_each_field_of_a_collection() {
    for (right, wrong) in [
        (r#""partition_count": 4"#, r#""partition_count": 0"#),
        (r#""partition_count": 4"#, r#""partitions": 4"#),
        (r#""raft""#, r#""paxos""#),
        (r#""ephemeral""#, r#""durable""#),
        (r#"["read_write"]"#, "[1]"),
        (r#""name": "a.b""#, r#""name": "b""#),
    ] {
        let text = COLLECTION.replacen(right, wrong, 1);
        assert_ne!(text, COLLECTION);
        let error = with("ODGM_COLLECTION", &text).unwrap_err();
        assert!(error.starts_with("ODGM_COLLECTION"), "{error}");
    }
    // The order matters.
    assert!(with("ODGM_COLLECTIONS", "c,a.b").unwrap_err().starts_with("ODGM_COLLECTION "));
}
