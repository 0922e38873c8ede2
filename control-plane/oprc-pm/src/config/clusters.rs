//! Clusters and how their CRMs are reached: a document (JSON or YAML), and variables
//! `OPRC_PM_CRM_<NAME>_…`, which override it field by field.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use oprc_config::Error;
use oprc_grpc::client::{ClientTls, Token};
use serde::Deserialize;

/// The variable that contains the document.
const DOCUMENT: &str = "OPRC_PM_CRM_CLUSTERS";
const PREFIX: &str = "OPRC_PM_CRM_";
/// Suffixes of a cluster's variables; longer ones before those that they end with.
const SUFFIXES: [&str; 10] = [
    "_NODE_AVAILABILITY",
    "_ENVIRONMENTS",
    "_CERTIFICATE",
    "_SERVER_NAME",
    "_TOKEN_FILE",
    "_DEFAULT",
    "_TOKEN",
    "_KEY",
    "_URL",
    "_CA",
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

/// A cluster as configured, before validation.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    name: Option<String>,
    url: Option<String>,
    default: Option<bool>,
    token: Option<String>,
    #[serde(alias = "token_file")]
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    #[serde(alias = "server_name")]
    server_name: Option<String>,
    #[serde(alias = "node_availability")]
    node_availability: Option<f64>,
    environments: Option<Vec<String>>,
}

impl Written {
    /// Fills missing fields from another source.
    fn or(self, other: Self) -> Self {
        // A token and a token file exclude each other: only one source counts.
        let secret = self.token.is_some() || self.token_file.is_some();
        let (token, token_file) =
            if secret { (None, None) } else { (other.token, other.token_file) };
        Self {
            name: self.name.or(other.name),
            url: self.url.or(other.url),
            default: self.default.or(other.default),
            token: self.token.or(token),
            token_file: self.token_file.or(token_file),
            ca: self.ca.or(other.ca),
            certificate: self.certificate.or(other.certificate),
            key: self.key.or(other.key),
            server_name: self.server_name.or(other.server_name),
            node_availability: self.node_availability.or(other.node_availability),
            environments: self.environments.or(other.environments),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Named(BTreeMap<String, serde_json::Value>),
    List(Vec<serde_json::Value>),
}

/// Takes the clusters' variables out of the environment. They may contain secrets, so the settings,
/// which are printed, never include them.
pub fn take_variables(env: &mut BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |name: &str| name == DOCUMENT || split(name).is_some();
    let (taken, left) = std::mem::take(env).into_iter().partition(|(name, _)| ours(name));
    *env = left;
    taken
}

/// The cluster and the suffix of a variable.
fn split(name: &str) -> Option<(String, &'static str)> {
    let rest = name.strip_prefix(PREFIX)?;
    let suffix = SUFFIXES.into_iter().find(|suffix| rest.ends_with(suffix))?;
    let cluster = rest.strip_suffix(suffix).filter(|cluster| !cluster.is_empty())?;
    Some((cluster.to_ascii_lowercase().replace('_', "-"), suffix))
}

/// All clusters, sorted by name. `file` is the content of `crm.clusters_file`, `default` the value of
/// `crm.default_cluster`.
pub(super) fn read(
    file: Option<&str>,
    variables: &BTreeMap<String, String>,
    default: Option<&str>,
) -> Result<Vec<ClusterConfig>, Error> {
    let mut written = BTreeMap::new();
    if let Some(text) = file {
        document("crm.clusters_file", text, &mut written)?;
    }
    if let Some(text) = variables.get(DOCUMENT).filter(|text| !text.is_empty()) {
        let mut overriding = BTreeMap::new();
        document(DOCUMENT, text, &mut overriding)?;
        merge(&mut written, overriding);
    }
    merge(&mut written, from_variables(variables)?);
    if written.len() > MAX_CLUSTERS {
        let message =
            format!("{} clusters are configured, the maximum is {MAX_CLUSTERS}", written.len());
        return Err(Error::Inconsistent(message));
    }
    if let Some(name) = default.filter(|name| !written.contains_key(*name)) {
        let known: Vec<&str> = written.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("crm.default_cluster: there is no cluster {name:?}; known: {known}");
        return Err(Error::Inconsistent(message));
    }
    let any_marked = written.values().any(|cluster| cluster.default == Some(true));
    let validate = |(name, cluster): (String, Written)| {
        let is_default = match default {
            Some(default) => name == default,
            None => cluster.default.unwrap_or(!any_marked),
        };
        validate(&name, cluster, is_default).map_err(|Invalid { field, problem }| {
            Error::Inconsistent(format!("the cluster {name:?}: {field} {problem}"))
        })
    };
    written.into_iter().map(validate).collect()
}

fn from_variables(
    variables: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Written>, Error> {
    let mut clusters: BTreeMap<String, Written> = BTreeMap::new();
    for (variable, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        let Some((name, suffix)) = split(variable) else { continue };
        let cluster = clusters.entry(name).or_default();
        let invalid = |what: &str| Error::Inconsistent(format!("{variable}: {what}"));
        match suffix {
            "_URL" => cluster.url = Some(value.clone()),
            "_TOKEN" => cluster.token = Some(value.clone()),
            "_TOKEN_FILE" => cluster.token_file = Some(value.into()),
            "_CA" => cluster.ca = Some(value.into()),
            "_CERTIFICATE" => cluster.certificate = Some(value.into()),
            "_KEY" => cluster.key = Some(value.into()),
            "_SERVER_NAME" => cluster.server_name = Some(value.clone()),
            "_DEFAULT" => {
                let default = value.parse().map_err(|_| invalid("must be true or false"))?;
                cluster.default = Some(default);
            }
            "_ENVIRONMENTS" => {
                let names = value.split(',').map(|name| name.trim().to_owned());
                cluster.environments = Some(names.collect());
            }
            _ => {
                let part = value.parse().map_err(|_| invalid("must be a number"))?;
                cluster.node_availability = Some(part);
            }
        }
    }
    Ok(clusters)
}

/// Fields of `overriding` override those written before.
fn merge(written: &mut BTreeMap<String, Written>, overriding: BTreeMap<String, Written>) {
    for (name, overriding) in overriding {
        let before = written.remove(&name).unwrap_or_default();
        written.insert(name, overriding.or(before));
    }
}

/// Errors name no values of the document: they may be secrets.
fn document(
    source: &str,
    text: &str,
    written: &mut BTreeMap<String, Written>,
) -> Result<(), Error> {
    let wrong = |what: String| Error::Inconsistent(format!("{source}: {what}"));
    let form: Form = serde_saphyr::from_str(text)
        .map_err(|_| wrong("must be clusters by name, or a list of clusters".to_owned()))?;
    let clusters: Vec<(Option<String>, serde_json::Value)> = match form {
        Form::Named(named) => named.into_iter().map(|(name, raw)| (Some(name), raw)).collect(),
        Form::List(list) => list.into_iter().map(|raw| (None, raw)).collect(),
    };
    for (at, (key, raw)) in clusters.into_iter().enumerate() {
        let place = key.clone().unwrap_or_else(|| format!("[{at}]"));
        let cluster = if let serde_json::Value::String(url) = raw {
            Written { url: Some(url), ..Written::default() }
        } else {
            check_fields(&raw).map_err(|what| wrong(format!("{place}: {what}")))?
        };
        let name = key.or_else(|| cluster.name.clone());
        let name = name.ok_or_else(|| wrong(format!("{place}.name is missing")))?;
        if written.insert(name.clone(), cluster).is_some() {
            return Err(wrong(format!("the cluster {name:?} is defined twice")));
        }
    }
    Ok(())
}

fn check_fields(raw: &serde_json::Value) -> Result<Written, String> {
    const FIELDS: [(&str, &str); 11] = [
        ("name", "a text"),
        ("url", "a text"),
        ("default", "true or false"),
        ("token", "a text"),
        ("tokenFile", "a path"),
        ("ca", "a path"),
        ("certificate", "a path"),
        ("key", "a path"),
        ("serverName", "a text"),
        ("nodeAvailability", "a number"),
        ("environments", "a list of names"),
    ];
    let fields = raw.as_object().ok_or("must be a URL or have fields")?;
    for (name, value) in fields {
        let plain = name.replace('_', "").to_ascii_lowercase();
        let known = FIELDS.iter().find(|(field, _)| field.to_ascii_lowercase() == plain);
        let Some((field, kind)) = known else {
            let fields: Vec<&str> = FIELDS.iter().map(|(field, _)| *field).collect();
            return Err(format!("{name} is no field; known: {}", fields.join(", ")));
        };
        let matches = match *kind {
            "true or false" => value.is_boolean(),
            "a number" => value.is_number(),
            "a list of names" => {
                value.as_array().is_some_and(|all| all.iter().all(serde_json::Value::is_string))
            }
            _ => value.is_string(),
        };
        if !matches && !value.is_null() {
            return Err(format!("{field} must be {kind}"));
        }
    }
    serde_json::from_value(raw.clone()).map_err(|_| "has a field twice".to_owned())
}

struct Invalid {
    field: String,
    problem: String,
}

fn invalid<T>(field: &str, problem: &str) -> Result<T, Invalid> {
    Err(Invalid { field: field.to_owned(), problem: problem.to_owned() })
}

fn validate(name: &str, written: Written, default: bool) -> Result<ClusterConfig, Invalid> {
    check_name(name, written.name.as_deref())?;
    let Some(url) = written.url else { return invalid("url", "is missing") };
    let secure = is_https(&url)?;
    let client = match (written.certificate, written.key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return invalid("certificate", "and key are required together"),
    };
    let tls = validate_tls(secure, written.ca, client, written.server_name)?;
    let token = validate_token(written.token, written.token_file)?;
    if written.node_availability.is_some_and(|part| !(part > 0.0 && part <= 1.0)) {
        return invalid("nodeAvailability", "must be above 0 and at most 1");
    }
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

fn check_name(name: &str, inner: Option<&str>) -> Result<(), Invalid> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    let valid = name.len() <= 63
        && name.chars().all(allowed)
        && name.starts_with(alphanumeric)
        && name.ends_with(alphanumeric);
    if !valid {
        let problem = "must be at most 63 of a-z, 0-9, - and ., and no - or . at an end";
        return invalid("name", problem);
    }
    if inner.is_some_and(|inner| inner != name) {
        return invalid("name", "differs from its key in the document");
    }
    Ok(())
}

fn is_https(url: &str) -> Result<bool, Invalid> {
    let Ok(parsed) = url.parse::<axum::http::Uri>() else {
        return invalid("url", "must be http://HOST:PORT or https://HOST:PORT");
    };
    let secure = match parsed.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return invalid("url", "must begin with http:// or https://"),
    };
    let Some(authority) = parsed.authority() else { return invalid("url", "has no host") };
    if authority.as_str().contains('@') || parsed.query().is_some() || parsed.path().len() > 1 {
        return invalid("url", "must consist of a scheme, a host and a port only");
    }
    Ok(secure)
}

fn validate_tls(
    secure: bool,
    ca: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
) -> Result<Option<ClientTls>, Invalid> {
    if !secure {
        if ca.is_some() || client.is_some() || server_name.is_some() {
            return invalid("url", "must be https if ca, certificate or serverName is set");
        }
        return Ok(None);
    }
    let Some(ca) = ca else { return invalid("ca", "is missing: an https url requires it") };
    check_readable(&ca)?;
    if let Some((certificate, key)) = &client {
        check_readable(certificate)?;
        check_readable(key)?;
    }
    Ok(Some(ClientTls { ca, client, server_name }))
}

fn validate_token(token: Option<String>, file: Option<PathBuf>) -> Result<Option<Token>, Invalid> {
    match (token, file) {
        (Some(_), Some(_)) => invalid("token", "and tokenFile exclude each other"),
        (Some(token), None) if token.trim().is_empty() => invalid("token", "is empty"),
        (Some(token), None) => Ok(Some(Token::Value(token))),
        (None, Some(file)) => {
            check_readable(&file)?;
            Ok(Some(Token::File(file)))
        }
        (None, None) => Ok(None),
    }
}

/// Reported at the start rather than at the first call.
fn check_readable(file: &Path) -> Result<(), Invalid> {
    match std::fs::File::open(file) {
        Ok(_) => Ok(()),
        Err(error) => invalid(&file.display().to_string(), &format!("cannot be read: {error}")),
    }
}
