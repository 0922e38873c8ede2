//! Clusters and how their CRMs are reached: a document (JSON or YAML), and variables
//! `OPRC_PM_CRM_<NAME>_…`, which override it field by field.

use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use axum::http::Uri;
use oprc_config::Error;
use oprc_grpc::client::{ClientTls, Token};
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::inconsistent;

/// The variable that contains the document.
const DOCUMENT: &str = "OPRC_PM_CRM_CLUSTERS";
const PREFIX: &str = "OPRC_PM_CRM_";
/// Names in the document, suffixes of variables, and values of all fields. The document may also
/// use the suffix in lower case.
const FIELDS: [(&str, Option<&str>, FieldKind); 11] = [
    ("name", None, FieldKind::Text),
    ("url", Some("_URL"), FieldKind::Text),
    ("default", Some("_DEFAULT"), FieldKind::Bool),
    ("token", Some("_TOKEN"), FieldKind::Text),
    ("tokenFile", Some("_TOKEN_FILE"), FieldKind::Path),
    ("ca", Some("_CA"), FieldKind::Path),
    ("certificate", Some("_CERTIFICATE"), FieldKind::Path),
    ("key", Some("_KEY"), FieldKind::Path),
    ("serverName", Some("_SERVER_NAME"), FieldKind::Text),
    ("nodeAvailability", Some("_NODE_AVAILABILITY"), FieldKind::Number),
    ("environments", Some("_ENVIRONMENTS"), FieldKind::Names),
];
const MAX_CLUSTERS: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    pub name: String,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// Whether deployments that name no cluster may go there.
    pub default: bool,
    /// Required for `https`.
    pub tls: Option<ClientTls>,
    pub token: Option<Token>,
    /// The part of the time that a node is up; by default it is derived from observation.
    pub node_availability: Option<f64>,
    /// Allowed environments; empty for any.
    pub environments: Vec<String>,
}

#[derive(Clone, Copy)]
enum FieldKind {
    Text,
    Path,
    Bool,
    Number,
    Names,
}

impl FieldKind {
    fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Path => "a path",
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Names => "a list of names",
        }
    }

    fn matches(self, value: &Value) -> bool {
        match self {
            Self::Text | Self::Path => value.is_string(),
            Self::Bool => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::Names => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
        }
    }

    fn parse_variable(self, text: &str) -> Option<Value> {
        match self {
            Self::Text | Self::Path => Some(text.into()),
            Self::Bool => text.parse::<bool>().ok().map(Value::Bool),
            Self::Number => text.parse().ok().and_then(Number::from_f64).map(Value::Number),
            Self::Names => Some(text.split(',').map(str::trim).collect()),
        }
    }
}

/// Fields of each cluster, by the names of [`FIELDS`].
type Written = BTreeMap<String, Map<String, Value>>;

/// A cluster as configured, before validation; `default` depends on all clusters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCluster {
    name: Option<String>,
    url: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    node_availability: Option<f64>,
    environments: Option<Vec<String>>,
}

/// Takes the clusters' variables out of the environment. They may contain secrets, so the settings,
/// which are printed, never include them.
pub fn take_variables(env: &mut BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |name: &str| name == DOCUMENT || split(name).is_some();
    let (taken, left) = std::mem::take(env).into_iter().partition(|(name, _)| ours(name));
    *env = left;
    taken
}

/// The cluster and the field of a variable.
fn split(variable: &str) -> Option<(String, &'static str, FieldKind)> {
    let rest = variable.strip_prefix(PREFIX)?;
    FIELDS.into_iter().find_map(|(field, suffix, kind)| {
        let cluster = rest.strip_suffix(suffix?).filter(|cluster| !cluster.is_empty())?;
        Some((cluster.to_ascii_lowercase().replace('_', "-"), field, kind))
    })
}

/// All clusters, sorted by name. `file` is the content of `crm.clusters_file`, `default` the value of
/// `crm.default_cluster`.
pub(super) fn read(
    file: Option<&str>,
    variables: &BTreeMap<String, String>,
    default: Option<&str>,
) -> Result<Vec<ClusterConfig>, Error> {
    let mut written = Written::new();
    if let Some(text) = file {
        written = document("crm.clusters_file", text)?;
    }
    if let Some(text) = variables.get(DOCUMENT).filter(|text| !text.is_empty()) {
        merge(&mut written, document(DOCUMENT, text)?);
    }
    merge(&mut written, from_variables(variables)?);
    let count = written.len();
    if count > MAX_CLUSTERS {
        return inconsistent(format!(
            "{count} clusters are configured, the maximum is {MAX_CLUSTERS}"
        ));
    }
    if let Some(name) = default.filter(|name| !written.contains_key(*name)) {
        let known: Vec<&str> = written.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return inconsistent(format!(
            "crm.default_cluster: there is no cluster {name:?}; known: {known}"
        ));
    }
    let marked = |fields: &Map<String, Value>| fields.get("default").and_then(Value::as_bool);
    let any_marked = written.values().any(|fields| marked(fields) == Some(true));
    let validate = |(name, fields): (String, Map<String, Value>)| {
        let is_default = match default {
            Some(default) => name == default,
            None => marked(&fields).unwrap_or(!any_marked),
        };
        validate(&name, fields, is_default)
            .or_else(|problem| inconsistent(format!("the cluster {name:?}: {problem}")))
    };
    written.into_iter().map(validate).collect()
}

fn from_variables(variables: &BTreeMap<String, String>) -> Result<Written, Error> {
    let mut written = Written::new();
    for (variable, text) in variables.iter().filter(|(_, text)| !text.is_empty()) {
        let Some((cluster, field, kind)) = split(variable) else { continue };
        let Some(value) = kind.parse_variable(text) else {
            return inconsistent(format!("{variable}: must be {}", kind.expected()));
        };
        written.entry(cluster).or_default().insert(field.to_owned(), value);
    }
    Ok(written)
}

/// Fields of `overriding` override those written before.
fn merge(written: &mut Written, overriding: Written) {
    for (name, fields) in overriding {
        let before = written.entry(name).or_default();
        // A token and a token file exclude each other: only one source counts.
        if fields.contains_key("token") || fields.contains_key("tokenFile") {
            before.remove("token");
            before.remove("tokenFile");
        }
        before.extend(fields);
    }
}

/// Errors name no values of the document: they may be secrets.
fn document(source: &str, text: &str) -> Result<Written, Error> {
    let wrong = |what: &str| Error::Inconsistent(format!("{source}: {what}"));
    let clusters: Vec<(Option<String>, Value)> = match serde_saphyr::from_str(text) {
        Ok(Value::Object(named)) => named.into_iter().map(|(key, raw)| (Some(key), raw)).collect(),
        Ok(Value::Array(list)) => list.into_iter().map(|raw| (None, raw)).collect(),
        _ => return Err(wrong("must be clusters by name, or a list of clusters")),
    };
    let mut written = Written::new();
    for (at, (key, raw)) in clusters.into_iter().enumerate() {
        let place = key.clone().unwrap_or_else(|| format!("[{at}]"));
        let fields = check_fields(raw).map_err(|what| wrong(&format!("{place}: {what}")))?;
        let name = key.or_else(|| fields.get("name")?.as_str().map(str::to_owned));
        let name = name.ok_or_else(|| wrong(&format!("{place}.name is missing")))?;
        if written.insert(name.clone(), fields).is_some() {
            return Err(wrong(&format!("the cluster {name:?} is defined twice")));
        }
    }
    Ok(written)
}

/// The fields of a cluster, without those that are null.
fn check_fields(raw: Value) -> anyhow::Result<Map<String, Value>> {
    let mut fields = Map::new();
    let raw = match raw {
        Value::String(_) => Map::from_iter([("url".to_owned(), raw)]),
        Value::Object(raw) => raw,
        _ => bail!("must be a URL or have fields"),
    };
    for (name, value) in raw {
        let is_named = |field: &str, suffix: Option<&str>| {
            let lower_case = suffix.map(str::to_ascii_lowercase);
            field == name || lower_case.is_some_and(|it| it.trim_start_matches('_') == name)
        };
        let known = FIELDS.into_iter().find(|(field, suffix, _)| is_named(field, *suffix));
        let Some((field, _, kind)) = known else {
            bail!("{name} is no field; known: {}", FIELDS.map(|(field, ..)| field).join(", "));
        };
        ensure!(value.is_null() || kind.matches(&value), "{field} must be {}", kind.expected());
        ensure!(fields.insert(field.to_owned(), value).is_none(), "has a field twice");
    }
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

fn validate(
    name: &str,
    fields: Map<String, Value>,
    default: bool,
) -> anyhow::Result<ClusterConfig> {
    let written: WrittenCluster =
        serde_json::from_value(fields.into()).ok().context("has a field of another type")?;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    ensure!(
        name.len() <= 63
            && name.chars().all(allowed)
            && name.starts_with(alphanumeric)
            && name.ends_with(alphanumeric),
        "name must be at most 63 of a-z, 0-9, - and ., and no - or . at an end"
    );
    ensure!(
        written.name.is_none_or(|inner| inner == name),
        "name differs from its key in the document"
    );
    let url = written.url.context("url is missing")?;
    let secure = is_https(&url)?;
    let client = match (written.certificate, written.key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => bail!("certificate and key are required together"),
    };
    let tls = validate_tls(secure, written.ca, client, written.server_name)?;
    let token = validate_token(written.token, written.token_file)?;
    ensure!(
        written.node_availability.is_none_or(|part| part > 0.0 && part <= 1.0),
        "nodeAvailability must be above 0 and at most 1"
    );
    Ok(ClusterConfig {
        name: name.to_owned(),
        url,
        default,
        tls,
        token,
        node_availability: written.node_availability,
        environments: written.environments.unwrap_or_default(),
    })
}

fn is_https(url: &str) -> anyhow::Result<bool> {
    let parsed: Uri =
        url.parse().ok().context("url must be http://HOST:PORT or https://HOST:PORT")?;
    let secure = match parsed.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => bail!("url must begin with http:// or https://"),
    };
    let authority = parsed.authority().context("url has no host")?;
    ensure!(
        !authority.as_str().contains('@') && parsed.query().is_none() && parsed.path().len() <= 1,
        "url must consist of a scheme, a host and a port only"
    );
    Ok(secure)
}

fn validate_tls(
    secure: bool,
    ca: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
) -> anyhow::Result<Option<ClientTls>> {
    if !secure {
        ensure!(
            ca.is_none() && client.is_none() && server_name.is_none(),
            "url must be https if ca, certificate or serverName is set"
        );
        return Ok(None);
    }
    let ca = ca.context("ca is missing: an https url requires it")?;
    check_readable(&ca)?;
    if let Some((certificate, key)) = &client {
        check_readable(certificate)?;
        check_readable(key)?;
    }
    Ok(Some(ClientTls { ca, client, server_name }))
}

fn validate_token(token: Option<String>, file: Option<PathBuf>) -> anyhow::Result<Option<Token>> {
    ensure!(token.is_none() || file.is_none(), "token and tokenFile exclude each other");
    ensure!(token.as_ref().is_none_or(|token| !token.trim().is_empty()), "token is empty");
    if let Some(file) = &file {
        check_readable(file)?;
    }
    Ok(token.map(Token::Value).or(file.map(Token::File)))
}

/// Reported at the start rather than at the first call.
fn check_readable(file: &Path) -> anyhow::Result<()> {
    let opened = File::open(file).map(drop);
    opened.map_err(|error| anyhow::anyhow!("{} cannot be read: {error}", file.display()))
}
