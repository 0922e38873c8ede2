//! What `deploy`, `plan` and `diff` are about: a file, or a package that is published.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use oprc_models::{Body, OClassDeployment, OPackage, Version, VersionRange, to_yaml};
use oprc_rest::{PackageSummary, PackageVersion, Published};

use crate::{
    client::{Client, escape},
    failure::Failure,
    files,
    output::{clean, say},
};

/// What is wanted.
#[derive(Clone, Debug, Args)]
pub(crate) struct Wanted {
    /// A file with packages and deployments (`-` is standard input), or a package that is
    /// published: NAME, or NAME@VERSIONS such as hello@^0.1.
    #[arg(value_name = "FILE|PACKAGE")]
    pub(crate) what: String,
    /// Only the deployment of this key; with --class, the key of the one to make.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// A class to deploy that the package has no deployment for; may be said again.
    #[arg(long = "class", value_name = "CLASS")]
    pub(crate) classes: Vec<String>,
    /// The cluster to use, whatever the deployment says; may be said again.
    #[arg(long = "cluster", value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,
    /// The environment to use, whatever the deployment says; may be said again.
    #[arg(long = "env", value_name = "ENVIRONMENT")]
    pub(crate) environments: Vec<String>,
}

/// What it comes to.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Packages of a file, which may not be published yet.
    pub(crate) packages: Vec<OPackage>,
    /// The deployments, at least one.
    pub(crate) deployments: Vec<OClassDeployment>,
}

impl Wanted {
    /// Whether a file is meant.
    fn file(&self) -> Option<PathBuf> {
        let path = Path::new(&self.what);
        let named = path.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json");
        (self.what == "-" || named || path.is_file()).then(|| path.to_owned())
    }

    /// Finds out what is wanted. Nothing is changed.
    pub(crate) async fn settle(&self, client: &Client) -> Result<Settled> {
        let (packages, found) = match self.file() {
            Some(path) => {
                let documents = files::load(&path)?;
                let packages: Vec<_> = files::packages(&documents).cloned().collect();
                (packages, files::deployments(&documents))
            }
            None => {
                let package = published(client, &self.what).await?.package;
                let found = files::of_package(&package);
                return Ok(Settled {
                    packages: Vec::new(),
                    deployments: self.choose(&[package], found)?,
                });
            }
        };
        let deployments = self.choose(&packages, found)?;
        Ok(Settled { packages, deployments })
    }

    /// The deployments that are meant, as they are meant.
    fn choose(
        &self,
        packages: &[OPackage],
        mut found: Vec<OClassDeployment>,
    ) -> Result<Vec<OClassDeployment>, Failure> {
        if !self.classes.is_empty() || (found.is_empty() && packages.len() == 1) {
            let [package] = packages else {
                return Err(Failure::Wrong("--class takes one package".to_owned()));
            };
            found = vec![self.made(package)?];
        } else if let Some(key) = &self.key {
            let all: Vec<_> = found.iter().map(|it| it.key.clone()).collect();
            found.retain(|it| it.key == *key);
            if found.is_empty() {
                let all = all.join(", ");
                return Err(Failure::Wrong(format!("there is no deployment {key:?}, only: {all}")));
            }
        }
        if found.is_empty() {
            return Err(Failure::Wrong(format!("{} has nothing to deploy", self.what)));
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

    /// A deployment of classes that the package has none for.
    fn made(&self, package: &OPackage) -> Result<OClassDeployment, Failure> {
        let known: Vec<_> = package.classes.iter().map(|it| it.key.clone()).collect();
        let classes = match (self.classes.as_slice(), known.as_slice()) {
            ([], [only]) => vec![only.clone()],
            ([], _) => {
                let (name, known) = (&package.name, known.join(", "));
                return Err(Failure::Wrong(format!(
                    "package {name} has no deployment: name a class with --class, of: {known}"
                )));
            }
            (named, _) => named.to_vec(),
        };
        if let Some(unknown) = classes.iter().find(|it| !known.contains(it)) {
            let known = known.join(", ");
            return Err(Failure::Wrong(format!("there is no class {unknown:?}, only: {known}")));
        }
        Ok(OClassDeployment {
            key: self.key.clone().unwrap_or_else(|| package.name.clone()),
            package: Some(package.name.clone()),
            version: Some(VersionRange::exact(&package.version)),
            classes,
            ..OClassDeployment::default()
        })
    }
}

/// Publishes packages.
pub(crate) async fn publish(client: &Client, packages: Vec<OPackage>) -> Result<Vec<Published>> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let bodies: Vec<_> = packages.into_iter().map(|it| Body::Package(Box::new(it))).collect();
    let published: Vec<Published> = client.send_yaml("/packages", &to_yaml(&bodies)?).await?;
    for one in &published {
        let how = if one.unchanged { "unchanged" } else { "published" };
        say(&clean(&format!("package {} {} {how}", one.name, one.version)));
    }
    Ok(published)
}

/// The newest version of a package that will do, as `NAME` or `NAME@VERSIONS` says.
pub(crate) async fn published(client: &Client, what: &str) -> Result<PackageVersion> {
    let (name, range) = what.split_once('@').unwrap_or((what, ""));
    let path = format!("/packages/{}", escape(name));
    let version = if range.parse::<Version>().is_ok() {
        range.to_owned()
    } else {
        newest(&client.get(&path).await?, range)?
    };
    client.get(&format!("{path}/versions/{}", escape(&version))).await
}

/// The newest version in a range; one that is deprecated only where there is no other.
fn newest(package: &PackageSummary, range: &str) -> Result<String, Failure> {
    if range.is_empty() {
        return Ok(package.latest.clone());
    }
    let range: VersionRange = range.parse().map_err(Failure::Wrong)?;
    let fits = package.versions.iter().filter_map(|it| {
        let version = it.version.parse::<Version>().ok()?;
        range.matches(&version).then_some((it.deprecated.is_none(), version))
    });
    fits.max().map(|(_, version)| version.to_string()).ok_or_else(|| {
        let all: Vec<_> = package.versions.iter().map(|it| it.version.as_str()).collect();
        let (name, all) = (&package.name, all.join(", "));
        Failure::Missing(format!("no version of {name} is {}; there are: {all}", range.as_str()))
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

    fn wanted(key: Option<&str>, classes: &[&str]) -> Wanted {
        Wanted {
            what: "hello".to_owned(),
            key: key.map(str::to_owned),
            classes: classes.iter().map(|&it| it.to_owned()).collect(),
            clusters: vec!["east".to_owned()],
            environments: Vec::new(),
        }
    }

    #[test]
    fn deployments_of_a_package_are_chosen_by_key() {
        let package = package();
        let found = files::of_package(&package);
        let chosen = wanted(Some("hello"), &[])
            .choose(std::slice::from_ref(&package), found.clone())
            .unwrap();
        assert_eq!(chosen[0].target_clusters, ["east"]);
        let told = wanted(Some("other"), &[]).choose(&[package], found).unwrap_err().to_string();
        assert_eq!(told, "there is no deployment \"other\", only: hello");
    }

    #[test]
    fn classes_without_a_deployment_get_one() {
        let package = package();
        let made = wanted(Some("mine"), &["Hello"])
            .choose(std::slice::from_ref(&package), vec![])
            .unwrap();
        assert_eq!(
            (made[0].key.as_str(), made[0].classes.as_slice()),
            ("mine", &["Hello".to_owned()][..])
        );
        let made = wanted(None, &[]).choose(std::slice::from_ref(&package), vec![]).unwrap();
        assert_eq!(made[0].key, "hello");
        assert!(wanted(None, &["Other"]).choose(&[package], vec![]).is_err());
    }

    #[test]
    fn deprecated_versions_are_chosen_last() {
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
        assert!(matches!(newest(&package, "^3"), Err(Failure::Missing(_))));
        assert!(matches!(newest(&package, "new"), Err(Failure::Wrong(_))));
    }
}
