//! The arguments that `deploy`, `plan` and `diff` share: a package file or a published package.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use oprc_models::{Body, OClassDeployment, OPackage, Version, VersionRange, to_yaml};
use oprc_rest::{PackageSummary, PackageVersion, Published};

use crate::{
    client::{Client, escape},
    error::CliError,
    files,
    output::note,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// Package file (`-` for standard input), or published package: NAME or NAME@RANGE, such as
    /// hello@^0.1.
    #[arg(value_name = "FILE|PACKAGE")]
    pub(crate) source: String,
    /// Key of the package's deployment to apply, if it has several; with --class, the key of the new
    /// deployment.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Class to deploy if the package defines no deployment for it; can be repeated.
    #[arg(long = "class", value_name = "CLASS")]
    pub(crate) classes: Vec<String>,
    /// Target cluster; overrides the deployment's; can be repeated.
    #[arg(long = "cluster", value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,
    /// Target environment, such as dev or prod; overrides the deployment's; can be repeated.
    #[arg(long = "env", value_name = "ENVIRONMENT")]
    pub(crate) environments: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Target {
    /// Packages of a file; they may not be published yet.
    pub(crate) packages: Vec<OPackage>,
    /// Never empty.
    pub(crate) deployments: Vec<OClassDeployment>,
}

impl TargetArgs {
    fn file(&self) -> Option<PathBuf> {
        let path = Path::new(&self.source);
        let named = path.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json");
        (self.source == "-" || named || path.is_file()).then(|| path.to_owned())
    }

    /// Reads the file or the published package. Changes nothing.
    pub(crate) async fn resolve(&self, client: &Client) -> Result<Target> {
        if let Some(path) = self.file() {
            let documents = files::load(&path)?;
            let packages: Vec<_> = files::packages(&documents).cloned().collect();
            let deployments = self.select(&packages, files::deployments(&documents))?;
            return Ok(Target { packages, deployments });
        }
        let package = published(client, &self.source).await?.package;
        let found = files::of_package(&package);
        Ok(Target { packages: Vec::new(), deployments: self.select(&[package], found)? })
    }

    /// Selects deployments by key or builds one for classes, then applies the overrides.
    fn select(
        &self,
        packages: &[OPackage],
        mut found: Vec<OClassDeployment>,
    ) -> Result<Vec<OClassDeployment>> {
        let source = &self.source;
        if !self.classes.is_empty() || (found.is_empty() && packages.len() == 1) {
            let [package] = packages else {
                let count = packages.len();
                bail!(CliError::InvalidInput(format!(
                    "--class needs exactly one package, but {source} has {count}"
                )));
            };
            found = vec![self.new_deployment(package)?];
        } else if let Some(key) = &self.key {
            let all: Vec<_> = found.iter().map(|it| it.key.clone()).collect();
            found.retain(|it| it.key == *key);
            if found.is_empty() {
                let all = all.join(", ");
                bail!(CliError::InvalidInput(format!(
                    "deployment {key:?} not found in {source}; available: {all}"
                )));
            }
        }
        if found.is_empty() {
            let message = format!("{source} contains no package and no deployment");
            bail!(CliError::InvalidInput(message));
        }
        for deployment in &mut found {
            if !self.clusters.is_empty() {
                deployment.target_clusters.clone_from(&self.clusters);
            }
            if !self.environments.is_empty() {
                deployment.target_envs.clone_from(&self.environments);
            }
        }
        Ok(found)
    }

    fn new_deployment(&self, package: &OPackage) -> Result<OClassDeployment> {
        let name = &package.name;
        let known: Vec<_> = package.classes.iter().map(|it| it.key.clone()).collect();
        let available = known.join(", ");
        let classes = match (self.classes.as_slice(), known.as_slice()) {
            ([], [only]) => vec![only.clone()],
            ([], _) => bail!(CliError::InvalidInput(format!(
                "package {name} defines no deployment; select a class with --class: {available}"
            ))),
            (named, _) => named.to_vec(),
        };
        if let Some(unknown) = classes.iter().find(|it| !known.contains(it)) {
            bail!(CliError::InvalidInput(format!(
                "class {unknown:?} not found in package {name}; available: {available}"
            )));
        }
        Ok(OClassDeployment {
            key: self.key.clone().unwrap_or_else(|| name.clone()),
            package: Some(name.clone()),
            version: Some(VersionRange::exact(&package.version)),
            classes,
            ..OClassDeployment::default()
        })
    }
}

pub(crate) async fn publish(client: &Client, packages: Vec<OPackage>) -> Result<Vec<Published>> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let bodies: Vec<_> = packages.into_iter().map(|it| Body::Package(Box::new(it))).collect();
    let published: Vec<Published> = client.send_yaml("/packages", to_yaml(&bodies)?).await?;
    for one in &published {
        let result = if one.unchanged { "unchanged" } else { "published" };
        note(&format!("package {} {} {result}", one.name, one.version));
    }
    Ok(published)
}

/// The newest version of the package `NAME`, or the newest that matches `NAME@RANGE`.
pub(crate) async fn published(client: &Client, source: &str) -> Result<PackageVersion> {
    let (name, range) = source.split_once('@').unwrap_or((source, ""));
    let version = if range.parse::<Version>().is_ok() {
        range.to_owned()
    } else {
        newest(&client.get(&format!("/packages/{}", escape(name))).await?, range)?
    };
    client.get(&version_path(name, &version)).await
}

pub(crate) fn version_path(package: &str, version: &str) -> String {
    format!("/packages/{}/versions/{}", escape(package), escape(version))
}

/// Deprecated versions are selected only if no other version matches.
fn newest(package: &PackageSummary, range: &str) -> Result<String, CliError> {
    if range.is_empty() {
        return Ok(package.latest.clone());
    }
    let range: VersionRange = range.parse().map_err(CliError::InvalidInput)?;
    let fits = package.versions.iter().filter_map(|it| {
        let version = it.version.parse::<Version>().ok()?;
        range.matches(&version).then_some((it.deprecated.is_none(), version))
    });
    fits.max().map(|(_, version)| version.to_string()).ok_or_else(|| {
        let all: Vec<_> = package.versions.iter().map(|it| it.version.as_str()).collect();
        let (name, all) = (&package.name, all.join(", "));
        CliError::NotFound(format!(
            "no version of package {name} matches {}; available: {all}",
            range.as_str()
        ))
    })
}

#[cfg(test)]
mod tests {
    use oprc_rest::VersionSummary;

    use super::*;

    fn package() -> OPackage {
        let text = include_str!("../../../examples/packages/hello.yaml");
        let documents = files::documents(text, "hello.yaml").unwrap();
        files::packages(&documents).next().unwrap().clone()
    }

    fn args(key: Option<&str>, classes: &[&str]) -> TargetArgs {
        TargetArgs {
            source: "hello".to_owned(),
            key: key.map(str::to_owned),
            classes: classes.iter().map(|&it| it.to_owned()).collect(),
            clusters: vec!["east".to_owned()],
            environments: Vec::new(),
        }
    }

    #[test]
    fn selects_deployments_by_key() {
        let package = package();
        let found = files::of_package(&package);
        let selected =
            args(Some("hello"), &[]).select(std::slice::from_ref(&package), found.clone()).unwrap();
        assert_eq!(selected[0].target_clusters, ["east"]);
        let error = args(Some("other"), &[]).select(&[package], found).unwrap_err().to_string();
        assert_eq!(error, "deployment \"other\" not found in hello; available: hello");
    }

    #[test]
    fn creates_a_deployment_for_classes_without_one() {
        let package = package();
        let created =
            args(Some("mine"), &["Hello"]).select(std::slice::from_ref(&package), vec![]).unwrap();
        assert_eq!(
            (created[0].key.as_str(), created[0].classes.as_slice()),
            ("mine", &["Hello".to_owned()][..])
        );
        let created = args(None, &[]).select(std::slice::from_ref(&package), vec![]).unwrap();
        assert_eq!(created[0].key, "hello");
        assert!(args(None, &["Other"]).select(&[package], vec![]).is_err());
    }

    #[test]
    fn selects_deprecated_versions_last() {
        let version = |version: &str, deprecated: Option<&str>| VersionSummary {
            version: version.to_owned(),
            deprecated: deprecated.map(str::to_owned),
            ..VersionSummary::default()
        };
        let package = PackageSummary {
            name: "a".to_owned(),
            latest: "2.0.0".to_owned(),
            versions: vec![
                version("2.0.0", None),
                version("1.2.0", Some("bad")),
                version("1.1.0", None),
            ],
            ..PackageSummary::default()
        };
        assert_eq!(newest(&package, "").unwrap(), "2.0.0");
        assert_eq!(newest(&package, "^1").unwrap(), "1.1.0");
        assert_eq!(newest(&package, "~1.2").unwrap(), "1.2.0");
        assert!(matches!(newest(&package, "^3"), Err(CliError::NotFound(_))));
        assert!(matches!(newest(&package, "new"), Err(CliError::InvalidInput(_))));
    }
}
