//! The file of contexts: which package managers there are, and how they are spoken to.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{ErrorKind, Write as _},
    path::{self, Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// What is asked where nothing else is said.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// All contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Contexts {
    /// The one that is used where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// All of them, by name.
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// How one package manager is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Context {
    /// Where it answers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) server: String,
    /// The service that it answers at in a cluster, where only the cluster reaches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tunnel: Option<Tunnel>,
    /// A file with the token. The token itself is never in the file of contexts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// The certificates that its own must be signed by, those of the system where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// How its clusters are reached directly, by the names that it knows them by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) clusters: BTreeMap<String, Kube>,
}

/// A service of a cluster, reached through the cluster's API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Tunnel {
    /// How the cluster is reached.
    pub(crate) kube: Kube,
    /// The service's namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) service: String,
}

/// How a cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Kube {
    /// The kubeconfig file, the usual one where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it, its current one where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
}

impl Kube {
    /// By a context of a kubeconfig file, from wherever it is used.
    pub(crate) fn of(kubeconfig: Option<&PathBuf>, context: &str) -> Self {
        Self { kubeconfig: kubeconfig.map(whole), context: Some(context.to_owned()) }
    }
}

/// A file from wherever it is used.
pub(crate) fn whole(file: &PathBuf) -> PathBuf {
    fs::canonicalize(file).or_else(|_| path::absolute(file)).unwrap_or_else(|_| file.clone())
}

impl Contexts {
    /// Where the file is.
    pub(crate) fn path() -> Result<PathBuf> {
        let set = |name: &str| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        if let Some(path) = set("OPRC_CONFIG") {
            return Ok(path);
        }
        let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
        let base = base.ok_or_else(|| {
            Failure::Wrong("neither OPRC_CONFIG, XDG_CONFIG_HOME nor HOME is set".to_owned())
        })?;
        Ok(base.join("oprc").join("config.yaml"))
    }

    /// Reads the file; where there is none there are no contexts.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", path.display()));
            }
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text).map_err(|error| {
            Failure::Wrong(format!("{} isn't a file of contexts: {error}", path.display())).into()
        })
    }

    /// Writes the file, all of it or nothing.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let write = || -> Result<()> {
            fs::create_dir_all(folder)?;
            // Only its owner may read it, as temporary files are.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(serde_saphyr::to_string(self)?.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        };
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// The context of that name, or the current one; the default where there is none at all.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<Context, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else {
            return Ok(Context { server: DEFAULT_SERVER.to_owned(), ..Context::default() });
        };
        self.contexts.get(name).cloned().ok_or_else(|| self.unknown(name))
    }

    /// What is said of a context that isn't there.
    pub(crate) fn unknown(&self, name: &str) -> Failure {
        let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Failure::Wrong(format!(
            "there is no context {name:?}; there are: {known}. \
             `oprc context set {name} --server URL` makes it"
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
    fn what_is_saved_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/config.yaml");
        assert_eq!(Contexts::load(&path).unwrap(), Contexts::default());
        sample().save(&path).unwrap();
        assert_eq!(Contexts::load(&path).unwrap(), sample());
    }

    #[test]
    fn files_are_found_from_everywhere() {
        let kube = Kube::of(Some(&"./Cargo.toml".into()), "dev");
        assert!(kube.kubeconfig.as_ref().is_some_and(|it| it.is_absolute()), "{kube:?}");
        assert_eq!(kube, Kube::of(Some(&"Cargo.toml".into()), "dev"));
        assert_ne!(kube, Kube::of(None, "dev"));
        assert!(whole(&"not-there-yet".into()).is_absolute());
    }

    #[test]
    fn unknown_fields_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "contexts: {a: {server: x, token: abc}}\n").unwrap();
        let told = Contexts::load(&path).unwrap_err().to_string();
        assert!(told.contains("token"), "{told}");
    }

    #[test]
    fn contexts_are_chosen_by_name_then_by_default() {
        assert_eq!(sample().choose(None).unwrap().server, "https://pm.example:8443");
        assert_eq!(Contexts::default().choose(None).unwrap().server, DEFAULT_SERVER);
        let told = sample().choose(Some("dev")).unwrap_err().to_string();
        assert!(told.contains("there are: prod"), "{told}");
    }
}
