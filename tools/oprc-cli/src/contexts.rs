//! The configuration file of contexts: named connections to package managers.

use std::{
    collections::BTreeMap,
    env, fs,
    io::ErrorKind,
    path::{self, Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{error::CliError, files::write_private};

pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Context>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Context {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) server: String,
    /// Reaches a package manager inside a cluster by port forwarding, instead of `server`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tunnel: Option<Tunnel>,
    /// The token itself is never stored in this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// CA certificates; those of the system by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Direct access to its clusters, by cluster name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) clusters: BTreeMap<String, KubeconfigRef>,
}

/// A Service that is reached through the API server of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Tunnel {
    pub(crate) kube: KubeconfigRef,
    pub(crate) namespace: String,
    pub(crate) service: String,
}

/// A context of a kubeconfig file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct KubeconfigRef {
    /// `KUBECONFIG` or `~/.kube/config` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The file's current context by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
}

impl KubeconfigRef {
    pub(crate) fn of(kubeconfig: Option<&PathBuf>, context: &str) -> Self {
        Self { kubeconfig: kubeconfig.map(absolute), context: Some(context.to_owned()) }
    }
}

/// The path must be valid from any working directory.
pub(crate) fn absolute(file: &PathBuf) -> PathBuf {
    fs::canonicalize(file).or_else(|_| path::absolute(file)).unwrap_or_else(|_| file.clone())
}

impl Contexts {
    pub(crate) fn path() -> Result<PathBuf> {
        let set = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        if let Some(path) = set("OPRC_CONFIG") {
            return Ok(path);
        }
        let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
        let message =
            "cannot locate the configuration file; set OPRC_CONFIG, XDG_CONFIG_HOME or HOME";
        let base = base.ok_or_else(|| CliError::InvalidInput(message.to_owned()))?;
        Ok(base.join("oprc").join("config.yaml"))
    }

    /// A missing file is an empty configuration.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            text => text.with_context(|| format!("reading {}", path.display()))?,
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text).map_err(|error| {
            let path = path.display();
            let message = format!("{path} is not a valid configuration file: {error}");
            CliError::InvalidInput(message).into()
        })
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        write_private(path, &serde_saphyr::to_string(self)?)
    }

    /// The context of that name, or the current one, or [`DEFAULT_SERVER`].
    pub(crate) fn select(&self, name: Option<&str>) -> Result<Context, CliError> {
        let Some(name) = name.or(self.current.as_deref()) else {
            return Ok(Context { server: DEFAULT_SERVER.to_owned(), ..Context::default() });
        };
        self.contexts.get(name).cloned().ok_or_else(|| self.not_found(name))
    }

    pub(crate) fn not_found(&self, name: &str) -> CliError {
        let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none" } else { &known.join(", ") };
        CliError::InvalidInput(format!(
            "context {name:?} not found; available: {known}. \
             Create it with `oprc context set {name} --server URL`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Contexts {
        let context = Context {
            server: "https://pm.example:8443".to_owned(),
            token_file: Some("/secret/token".into()),
            ..Context::default()
        };
        Contexts {
            current: Some("prod".to_owned()),
            contexts: [("prod".to_owned(), context)].into(),
        }
    }

    #[test]
    fn saved_contexts_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/config.yaml");
        assert_eq!(Contexts::load(&path).unwrap(), Contexts::default());
        sample().save(&path).unwrap();
        assert_eq!(Contexts::load(&path).unwrap(), sample());
    }

    #[test]
    fn kubeconfig_paths_are_made_absolute() {
        let kube = KubeconfigRef::of(Some(&"./Cargo.toml".into()), "dev");
        assert!(kube.kubeconfig.as_ref().is_some_and(|it| it.is_absolute()), "{kube:?}");
        assert_eq!(kube, KubeconfigRef::of(Some(&"Cargo.toml".into()), "dev"));
        assert_ne!(kube, KubeconfigRef::of(None, "dev"));
        assert!(absolute(&"not-there-yet".into()).is_absolute());
    }

    #[test]
    fn rejects_unknown_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "contexts: {a: {server: x, token: abc}}\n").unwrap();
        let error = Contexts::load(&path).unwrap_err().to_string();
        assert!(error.contains("token"), "{error}");
    }

    #[test]
    fn selects_context_by_name_then_current_then_default() {
        assert_eq!(sample().select(None).unwrap().server, "https://pm.example:8443");
        assert_eq!(Contexts::default().select(None).unwrap().server, DEFAULT_SERVER);
        let error = sample().select(Some("dev")).unwrap_err().to_string();
        assert!(error.contains("available: prod"), "{error}");
    }
}
