//! `oprc package`: published packages.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;
use hyper::Method;
use oprc_models::{Body, to_yaml};
use oprc_rest::{Deprecation, PackageSummary, Published};
use serde::{Serialize, de::IgnoredAny};

use crate::{
    client::{escape, filtered},
    connection::{ApiArgs, ConnectionArgs},
    error::CliError,
    files,
    output::{Format, duration, note},
    target::{self, version_path},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish packages; identical versions that are already published are left unchanged.
    #[command(after_help = "Example:\n  oprc package apply examples/packages/hello.yaml")]
    Apply {
        /// Package files; `-` for standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// List packages.
    #[command(visible_alias = "ls")]
    #[command(after_help = "Example:\n  oprc package list --tag example -o wide")]
    List {
        /// Show only packages whose name starts with this prefix.
        #[arg(long)]
        prefix: Option<String>,
        /// Show only packages with this tag.
        #[arg(long)]
        tag: Option<String>,
        /// Show only packages that match this label selector, such as team=geometry,tier.
        #[arg(long, short = 'l', alias = "label")]
        selector: Option<String>,
        /// Show only packages whose name, description or tags match.
        #[arg(long, short)]
        query: Option<String>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Show a published package.
    #[command(after_help = "Example:\n  oprc package get hello@0.1.0 > hello.yaml")]
    Get {
        /// NAME, or NAME@RANGE such as hello@^0.1.
        package: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Delete a package version, or all versions; fails if a version is in use.
    #[command(
        after_help = "Examples:\n  oprc package delete hello@0.1.0\n  oprc package delete hello --all"
    )]
    Delete {
        /// NAME@VERSION, or NAME with --all.
        package: String,
        /// Delete all versions.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Validate package files without publishing them.
    #[command(after_help = "Example:\n  oprc package validate --offline examples/packages/*.yaml")]
    Validate {
        /// Package files; `-` for standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Validate locally only, without resolving dependencies.
        #[arg(long)]
        offline: bool,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// List the versions of a package, newest first.
    #[command(after_help = "Example:\n  oprc package history hello")]
    History {
        /// Name of the package.
        package: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Mark a version as deprecated.
    #[command(
        after_help = "Example:\n  oprc package deprecate hello@0.1.0 --reason 'use 0.2'\n  oprc package deprecate hello@0.1.0 --undo"
    )]
    Deprecate {
        /// NAME@VERSION.
        package: String,
        /// Reason to show to users of the version.
        #[arg(long, required_unless_present = "undo")]
        reason: Option<String>,
        /// Remove the deprecation.
        #[arg(long, conflicts_with = "reason")]
        undo: bool,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Apply { files, api } => apply(&files, &api).await,
        Command::List { prefix, tag, selector, query, api } => {
            let filters =
                [("prefix", &prefix), ("tags", &tag), ("labels", &selector), ("q", &query)];
            let filters = filters.map(|(name, value)| (name, value.as_deref()));
            api.list::<PackageSummary>(
                &filtered("/packages", &filters),
                |it| it.name.clone(),
                &[
                    ("NAME", |it| it.name.clone()),
                    ("LATEST", |it| it.latest.clone()),
                    ("VERSIONS", |it| it.versions.len().to_string()),
                    ("CLASSES", |it| it.classes.join(",")),
                    ("AGE", age_of_latest),
                ],
                &[
                    ("TAGS", |it| it.tags.join(",")),
                    ("DESCRIPTION", |it| it.description.clone().unwrap_or_default()),
                ],
            )
            .await
        }
        Command::Get { package, api } => {
            let found = target::published(&api.client().await?, &package).await?;
            let name = format!("{}@{}", found.package.name, found.package.version);
            // A package file that can be published again.
            let body = Body::Package(Box::new(found.package.clone()));
            api.show.one(&found, &[name], |_| to_yaml([&body]).unwrap_or_default())
        }
        Command::Delete { package, all, connection } => {
            let client = connection.client().await?;
            let path = match (package.split_once('@'), all) {
                (Some((name, version)), false) => version_path(name, version),
                (None, true) => format!("/packages/{}", escape(&package)),
                (None, false) => {
                    let message =
                        "no version given; use NAME@VERSION, or --all to delete all versions";
                    bail!(CliError::InvalidInput(message.to_owned()))
                }
                (Some(_), true) => {
                    let message = "--all deletes all versions and cannot be used with NAME@VERSION";
                    bail!(CliError::InvalidInput(message.to_owned()))
                }
            };
            client.delete(&path).await?;
            note(&format!("package {package} deleted"));
            Ok(())
        }
        Command::Validate { files, offline, api } => validate(&files, offline, &api).await,
        Command::History { package, api } => {
            let path = format!("/packages/{}", escape(&package));
            let found: PackageSummary = api.client().await?.get(&path).await?;
            api.show.list(
                &found.versions,
                |it| format!("{package}@{}", it.version),
                &[
                    ("VERSION", |it| it.version.clone()),
                    ("AGE", |it| duration::age(&it.published_at)),
                    ("DEPRECATED", |it| it.deprecated.clone().unwrap_or_default()),
                ],
                &[],
            )
        }
        Command::Deprecate { package, reason, undo, connection } => {
            let Some((name, version)) = package.split_once('@') else {
                bail!(CliError::InvalidInput(format!(
                    "no version in {package:?}; use NAME@VERSION"
                )));
            };
            let path = format!("{}/deprecation", version_path(name, version));
            let client = connection.client().await?;
            if undo {
                client.delete(&path).await?;
                note(&format!("package {package} no longer deprecated"));
            } else {
                let body = Deprecation { reason: reason.unwrap_or_default() };
                client.send_only(Method::PUT, &path, &body).await?;
                note(&format!("package {package} deprecated"));
            }
            Ok(())
        }
    }
}

fn age_of_latest(package: &PackageSummary) -> String {
    let latest = package.versions.iter().find(|it| it.version == package.latest);
    latest.map(|it| duration::age(&it.published_at)).unwrap_or_default()
}

async fn apply(files: &[PathBuf], api: &ApiArgs) -> Result<()> {
    // Reads all files before the first is sent.
    let mut packages = Vec::new();
    for file in files {
        let documents = files::load(file)?;
        let before = packages.len();
        packages.extend(files::packages(&documents).cloned());
        if packages.len() == before {
            bail!(CliError::InvalidInput(format!(
                "{} contains no package; use `oprc deploy` for deployments",
                file.display()
            )));
        }
    }
    let published = target::publish(&api.client().await?, packages).await?;
    let name = |it: &Published| format!("{}@{}", it.name, it.version);
    let names: Vec<_> = published.iter().map(name).collect();
    api.show.one(&published, &names, |_| String::new())
}

#[derive(Serialize)]
struct Validity {
    file: String,
    valid: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

async fn validate(files: &[PathBuf], offline: bool, api: &ApiArgs) -> Result<()> {
    api.show.reject_formats(&[Format::Name, Format::Wide])?;
    let mut all = Vec::new();
    for file in files {
        let text = files::read(file)?;
        let source = file.display().to_string();
        let mut problem = files::documents(&text, &source).err().map(|error| error.to_string());
        if problem.is_none()
            && !offline
            && let Err(error) = api.client().await?.send_yaml::<IgnoredAny>("/validate", text).await
        {
            match error.downcast()? {
                CliError::Rejected(why) => problem = Some(format!("{source}: {why}")),
                other => bail!(other),
            }
        }
        if problem.is_none() {
            note(&format!("{source}: valid"));
        }
        let (valid, message) = (problem.is_none(), problem.unwrap_or_default());
        all.push(Validity { file: source, valid, message });
    }
    api.show.print_result(&all, String::new)?;
    let errors: Vec<_> = all.into_iter().filter(|it| !it.valid).map(|it| it.message).collect();
    if errors.is_empty() { Ok(()) } else { bail!(CliError::InvalidInput(errors.join("\n"))) }
}
