//! Accepted and rejected configurations.

use std::{collections::BTreeMap, fs};

use oprc_grpc::client::Token;

use super::*;

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn resolve(pairs: &[(&str, &str)]) -> Result<Config, String> {
    let mut env = variables(pairs);
    let clusters = take_variables(&mut env);
    let matches = SCHEMA.command().get_matches_from(["oprc-pm"]);
    let settings = SCHEMA.resolve(&matches, &env).map_err(|error| error.to_string())?;
    assert_eq!(settings.warnings(), [""; 0]);
    Config::of(&settings, &clusters).map_err(|error| error.to_string())
}

const OFF: (&str, &str) = ("OPRC_PM_SECURITY_AUTH", "off");

#[test]
fn schema_is_valid() {
    assert_eq!(SCHEMA.errors(), [""; 0]);
}

#[test]
fn authentication_can_be_off_only_explicitly_and_on_loopback() {
    let error = resolve(&[]).unwrap_err();
    assert!(error.starts_with("security.token_file is not set"), "{error}");
    let config = resolve(&[OFF]).unwrap();
    assert!(config.server.address.ip().is_loopback() && config.server.token_file.is_none());
    let error = resolve(&[OFF, ("OPRC_PM_SERVER_HOST", "0.0.0.0")]).unwrap_err();
    assert!(error.contains("loopback"), "{error}");
    let error = resolve(&[OFF, ("OPRC_PM_SECURITY_TOKEN_FILE", "/t")]).unwrap_err();
    assert!(error.contains("remove one of them"), "{error}");
    let open = [("OPRC_PM_SERVER_HOST", "0.0.0.0"), ("OPRC_PM_SECURITY_TOKEN_FILE", "/t")];
    // Each token must name its role.
    assert!(resolve(&open).unwrap().server.require_roles);
}

#[test]
fn errors_name_the_setting_and_no_secret() {
    for (pair, named) in [
        (("HTTP_PORT", "x"), "server.port"),
        (("OPRC_PM_STORE_KIND", "mysql"), "store.kind"),
        (("OPRC_PM_STORE_KIND", "etcd"), "store.etcd.endpoints"),
        (
            ("OPRC_PM_STORE_ETCD_ENDPOINTS", "http://a:1,https://me:secret@b"),
            "store.etcd.endpoints",
        ),
        (("OPRC_PM_SECURITY_MTLS", "true"), "security.tls.client_ca"),
        (("OPRC_PM_SECURITY_TLS_KEY", "/k"), "security.tls.certificate"),
        (("OPRC_PM_SERVER_CORS_ORIGINS", "*"), "server.cors_origins"),
        (("OPRC_PM_SERVER_CORS_ORIGINS", "https://a.org/"), "server.cors_origins"),
        (("OPRC_PM_CRM_DEFAULT_CLUSTER", "east"), "crm.default_cluster"),
        (("OPRC_PM_CRM_CLUSTERS_FILE", "/not/there"), "crm.clusters_file"),
        (("OPRC_PM_CRM_EAST_TOKEN", "0123456789abcdef"), "\"east\": url is missing"),
        (("OPRC_PM_CRM_EAST_URL", "east:8088"), "\"east\": url"),
        (("OPRC_PM_CRM_EAST_URL", "http://me:secret@east:8088"), "\"east\": url"),
        (("OPRC_PM_CRM_EAST_URL", "https://east:8088"), "\"east\": ca is missing"),
        (("OPRC_PM_CRM_EAST_NODE_AVAILABILITY", "high"), "OPRC_PM_CRM_EAST_NODE_AVAILABILITY"),
        (("OPRC_PM_CRM_CLUSTERS", "[{\"url\": \"http://a:1\"}]"), "[0].name is missing"),
        (("OPRC_PM_CRM_CLUSTERS", "{\"a\": {\"tokn\": \"secret\"}}"), "a: tokn is no field"),
        (("OPRC_PM_CRM_CLUSTERS", "{\"a\": {\"token\": [\"secret\"]}}"), "a: token must be a text"),
        (("OPRC_PM_CRM_CLUSTERS", "{\"A_b\": \"http://a:1\"}"), "name must be"),
        (("OPRC_PM_CRM_CLUSTERS", "{\"a\": {\"environments\": [1]}}"), "must be a list of names"),
        (("OPRC_PM_CRM_CLUSTERS", "[{\"\": \"a\", \"url\": \"http://a:1\"}]"), "is no field"),
        (("OPRC_PM_CRM_CLUSTERS", "secret"), "OPRC_PM_CRM_CLUSTERS"),
        (("OPRC_PM_SERVER_REQUEST_TIMEOUT", "0s"), "server.request_timeout"),
    ] {
        let error = resolve(&[OFF, pair]).unwrap_err();
        assert!(error.contains(named), "{pair:?}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn clusters_come_from_variables() {
    let config = resolve(&[
        OFF,
        ("OPRC_PM_CRM_EAST_URL", "http://east:8088"),
        ("OPRC_PM_CRM_EAST_TOKEN", "0123456789abcdef"),
        ("OPRC_PM_CRM_FAR_WEST_URL", "http://west:8088"),
        ("OPRC_PM_CRM_FAR_WEST_NODE_AVAILABILITY", "0.99"),
        ("OPRC_PM_CRM_FAR_WEST_ENVIRONMENTS", "staging, prod"),
        ("OPRC_PM_DEPLOYMENTS_DEFAULT_ENVIRONMENT", "prod"),
        ("OPRC_PM_CRM_DEFAULT_CLUSTER", "far-west"),
    ])
    .unwrap();
    let [east, west] = config.clusters.as_slice() else { panic!("two clusters") };
    assert_eq!((east.name.as_str(), east.url.as_str()), ("east", "http://east:8088"));
    assert_eq!(east.token, Some(Token::Value("0123456789abcdef".to_owned())));
    assert_eq!((west.name.as_str(), west.node_availability), ("far-west", Some(0.99)));
    assert_eq!(
        (west.environments.join("+").as_str(), east.environments.len()),
        ("staging+prod", 0)
    );
    assert_eq!(config.default_environment.as_deref(), Some("prod"));
    assert!(west.default && !east.default);
    assert!(!format!("{config:?}").contains("0123456789"));
    assert!(!describe_clusters(&config.clusters).contains("0123456789"));
}

#[test]
fn clusters_come_from_a_file_and_variables_win() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("clusters.yaml");
    let pem = folder.path().join("ca.pem");
    fs::write(&pem, "").unwrap();
    let ca = pem.to_str().unwrap();
    let text = format!(
        "- {{name: a, url: 'https://a:1', ca: {ca}, certificate: {ca}, key: {ca}}}\n\
         - {{name: b, url: 'http://b:1', default: true, tokenFile: {ca}}}\n"
    );
    fs::write(&file, text).unwrap();
    let config = resolve(&[
        OFF,
        ("OPRC_PM_CRM_CLUSTERS_FILE", file.to_str().unwrap()),
        ("OPRC_PM_CRM_B_URL", "http://b:2"),
        ("OPRC_PM_CRM_B_TOKEN", "0123456789abcdef"),
        ("OPRC_PM_CRM_CLUSTERS", "{\"c\": \"http://c:1\"}"),
    ])
    .unwrap();
    let found: Vec<_> = config.clusters.iter().map(|c| (c.url.as_str(), c.default)).collect();
    assert_eq!(found, [("https://a:1", false), ("http://b:2", true), ("http://c:1", false)]);
    assert_eq!(config.clusters[1].token, Some(Token::Value("0123456789abcdef".to_owned())));
    let tls = config.clusters.first().unwrap().tls.as_ref().unwrap();
    assert!(tls.client.is_some());
    let described = describe_clusters(&config.clusters);
    assert!(described.contains("cluster a  https://a:1  mTLS, no token\n"), "{described}");
}

#[test]
fn all_clusters_are_default_if_none_is_marked() {
    let both = "{\"a\": \"http://a:1\", \"b\": {\"url\": \"http://b:1\"}}";
    let config = resolve(&[OFF, ("OPRC_PM_CRM_CLUSTERS", both)]).unwrap();
    assert!(config.clusters.iter().all(|cluster| cluster.default));
}
