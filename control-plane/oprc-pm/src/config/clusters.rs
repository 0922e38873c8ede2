//! The clusters that are driven, and how each is reached: a document (JSON or YAML), and variables
//! `OPRC_PM_CRM_<NAME>_…`, which win over it field by field.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use oprc_config::Error;
use serde::Deserialize;

/// The document, in a variable.
const DOCUMENT: &str = "OPRC_PM_CRM_CLUSTERS";
const PREFIX: &str = "OPRC_PM_CRM_";
/// What a cluster's variables end with. Longer ends come before those that they end with.
const ENDS: [&str; 10] = [
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
/// No more clusters than this are driven by one process.
const MOST: usize = 256;

/// A cluster, and how its CRM is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// Its name.
    pub name: String,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// Whether deployments that name no cluster may go there.
    pub default: bool,
    /// For `https`: who signs the CRM's certificate, and who we are.
    pub tls: Option<ClusterTls>,
    /// What the CRM asks for.
    pub token: Option<Secret>,
    /// The part of time that a node of it is up, where that is known better than by looking.
    pub node_availability: Option<f64>,
    /// The environments that deployments may go to there; empty for any.
    pub environments: Vec<String>,
}

/// PEM files for TLS to a CRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTls {
    /// Authorities that the CRM's certificate is by.
    pub ca: PathBuf,
    /// Our own certificate and its key, where the CRM asks for one.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name in the CRM's certificate, if it isn't the host of the URL.
    pub server_name: Option<String>,
}

/// A secret, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// As it is.
    Value(String),
    /// In a file, to be read whenever it is needed. A line's end behind it doesn't count.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => formatter.write_str("Value(…)"),
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
        }
    }
}

/// A cluster as it is written.
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
    /// What this leaves out, by another.
    fn or(self, other: Self) -> Self {
        // A token and a file of it exclude each other: the later way counts.
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

/// Either form of the document: clusters by name, or a list of clusters with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Named(BTreeMap<String, serde_json::Value>),
    List(Vec<serde_json::Value>),
}

/// The variables that are about clusters, taken out of all: the table of settings, which shows
/// what it was given, never sees them, since they may hold secrets.
pub fn take_variables(env: &mut BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |name: &str| name == DOCUMENT || split(name).is_some();
    let (taken, left) = std::mem::take(env).into_iter().partition(|(name, _)| ours(name));
    *env = left;
    taken
}

/// The cluster and the end of a variable that is about one.
fn split(name: &str) -> Option<(String, &'static str)> {
    let rest = name.strip_prefix(PREFIX)?;
    let end = ENDS.into_iter().find(|end| rest.ends_with(end))?;
    let cluster = rest.strip_suffix(end).filter(|cluster| !cluster.is_empty())?;
    Some((cluster.to_ascii_lowercase().replace('_', "-"), end))
}

/// Every cluster, by name: of a file's text, of the variable that has the whole, and of variables
/// for each. `default` is the one that deployments go to which name none.
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
        let mut later = BTreeMap::new();
        document(DOCUMENT, text, &mut later)?;
        add(&mut written, later);
    }
    let mut said: BTreeMap<String, Written> = BTreeMap::new();
    for (variable, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        let Some((name, end)) = split(variable) else { continue };
        let cluster = said.entry(name).or_default();
        let wrong = |what: &str| Error::Inconsistent(format!("{variable}: {what}"));
        match end {
            "_URL" => cluster.url = Some(value.clone()),
            "_TOKEN" => cluster.token = Some(value.clone()),
            "_TOKEN_FILE" => cluster.token_file = Some(value.into()),
            "_CA" => cluster.ca = Some(value.into()),
            "_CERTIFICATE" => cluster.certificate = Some(value.into()),
            "_KEY" => cluster.key = Some(value.into()),
            "_SERVER_NAME" => cluster.server_name = Some(value.clone()),
            "_DEFAULT" => {
                let truth = value.parse().map_err(|_| wrong("must be true or false"))?;
                cluster.default = Some(truth);
            }
            "_ENVIRONMENTS" => {
                let names = value.split(',').map(|name| name.trim().to_owned());
                cluster.environments = Some(names.collect());
            }
            _ => {
                let part = value.parse().map_err(|_| wrong("must be a number"))?;
                cluster.node_availability = Some(part);
            }
        }
    }
    add(&mut written, said);
    if written.len() > MOST {
        let message = format!("{} clusters are configured, {MOST} are the most", written.len());
        return Err(Error::Inconsistent(message));
    }
    if let Some(name) = default.filter(|name| !written.contains_key(*name)) {
        let known: Vec<&str> = written.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("crm.default_cluster: there is no cluster {name:?}; known: {known}");
        return Err(Error::Inconsistent(message));
    }
    let any_marked = written.values().any(|cluster| cluster.default == Some(true));
    let mut clusters = Vec::new();
    for (name, cluster) in written {
        let is_default = match default {
            Some(default) => name == default,
            None => cluster.default.unwrap_or(!any_marked),
        };
        clusters.push(settle(name, cluster, is_default)?);
    }
    Ok(clusters)
}

/// Adds what wins, field by field, over what was written before.
fn add(written: &mut BTreeMap<String, Written>, later: BTreeMap<String, Written>) {
    for (name, later) in later {
        let before = written.remove(&name).unwrap_or_default();
        written.insert(name, later.or(before));
    }
}

/// Reads a document. What is wrong with it is told without its values: they may be secrets.
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
        // A cluster that is only a URL is the shortest way to write one.
        let cluster = if let serde_json::Value::String(url) = raw {
            Written { url: Some(url), ..Written::default() }
        } else {
            check_fields(&raw).map_err(|what| wrong(format!("{place}: {what}")))?
        };
        let name = key.or_else(|| cluster.name.clone());
        let name = name.ok_or_else(|| wrong(format!("{place}.name is missing")))?;
        if written.insert(name.clone(), cluster).is_some() {
            return Err(wrong(format!("the cluster {name:?} is there twice")));
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
        let fits = match *kind {
            "true or false" => value.is_boolean(),
            "a number" => value.is_number(),
            "a list of names" => {
                value.as_array().is_some_and(|all| all.iter().all(serde_json::Value::is_string))
            }
            _ => value.is_string(),
        };
        if !fits && !value.is_null() {
            return Err(format!("{field} must be {kind}"));
        }
    }
    serde_json::from_value(raw.clone()).map_err(|_| "has a field twice".to_owned())
}

fn settle(name: String, written: Written, default: bool) -> Result<ClusterConfig, Error> {
    let wrong = |field: &str, what: &str| {
        Error::Inconsistent(format!("the cluster {name:?}: {field} {what}"))
    };
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    if name.len() > 63
        || !name.chars().all(is_name)
        || !(name.starts_with(alphanumeric) && name.ends_with(alphanumeric))
    {
        return Err(wrong(
            "name",
            "must be at most 63 of a-z, 0-9, - and ., and no - or . at an end",
        ));
    }
    if written.name.as_ref().is_some_and(|inner| *inner != name) {
        return Err(wrong("name", "is another one inside"));
    }
    let url = written.url.ok_or_else(|| wrong("url", "is missing"))?;
    let parsed: axum::http::Uri =
        url.parse().map_err(|_| wrong("url", "must be http://HOST:PORT or https://HOST:PORT"))?;
    let secure = match parsed.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("url", "must begin with http:// or https://")),
    };
    let authority = parsed.authority().ok_or_else(|| wrong("url", "has no host"))?;
    if authority.as_str().contains('@') || parsed.query().is_some() || parsed.path().len() > 1 {
        return Err(wrong("url", "must be no more than a scheme, a host and a port"));
    }
    let client = match (written.certificate, written.key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(wrong("certificate", "and key are needed together")),
    };
    let tls = match (secure, written.ca) {
        (true, Some(ca)) => Some(ClusterTls { ca, client, server_name: written.server_name }),
        (true, None) => return Err(wrong("ca", "is missing: an https url needs it")),
        (false, ca) => {
            if ca.is_some() || client.is_some() || written.server_name.is_some() {
                return Err(wrong(
                    "url",
                    "must be https where ca, certificate or serverName is given",
                ));
            }
            None
        }
    };
    for file in tls.iter().flat_map(|tls| {
        let client = tls.client.iter().flat_map(|(certificate, key)| [certificate, key]);
        std::iter::once(&tls.ca).chain(client)
    }) {
        readable(file).map_err(|what| wrong(&file.display().to_string(), &what))?;
    }
    let token = match (written.token, written.token_file) {
        (Some(_), Some(_)) => return Err(wrong("token", "and tokenFile exclude each other")),
        (Some(token), None) if token.trim().is_empty() => return Err(wrong("token", "is empty")),
        (Some(token), None) => Some(Secret::Value(token)),
        (None, Some(file)) => {
            readable(&file).map_err(|what| wrong(&file.display().to_string(), &what))?;
            Some(Secret::File(file))
        }
        (None, None) => None,
    };
    if written.node_availability.is_some_and(|part| !(part > 0.0 && part <= 1.0)) {
        return Err(wrong("nodeAvailability", "must be above 0 and at most 1"));
    }
    Ok(ClusterConfig {
        url,
        default,
        tls,
        token,
        node_availability: written.node_availability,
        environments: written.environments.unwrap_or_default(),
        name,
    })
}

/// A file that isn't there is a mistake to be told at the start, not at the first call.
fn readable(file: &std::path::Path) -> Result<(), String> {
    std::fs::File::open(file).map(drop).map_err(|error| format!("can't be read: {error}"))
}
