//! `oprc package`: published packages.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Subcommand;
use hyper::Method;
use oprc_models::{Body, to_yaml};
use oprc_rest::{Deprecation, PackageSummary, PackageVersion, Published};
use serde::Serialize;

use crate::{
    client::escape,
    connection::ConnectionArgs,
    error::CliError,
    files,
    output::{Format, OutputArgs, Table, duration, note, print, sanitize},
    target,
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
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
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
        /// Show only packages with this label (KEY=VALUE).
        #[arg(long, short = 'l')]
        label: Option<String>,
        /// Show only packages that contain this text.
        #[arg(long, short)]
        query: Option<String>,
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Show a published package.
    #[command(after_help = "Example:\n  oprc package get hello@0.1.0 > hello.yaml")]
    Get {
        /// NAME, or NAME@RANGE such as hello@^0.1.
        package: String,
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// Delete a package version, or all versions; rejected while it is in use.
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
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
    /// List the versions of a package, newest first.
    #[command(after_help = "Example:\n  oprc package history hello")]
    History {
        /// Name of the package.
        package: String,
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
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

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Apply { files, show, connection } => apply(&files, &show, &connection).await?,
        Command::List { prefix, tag, label, query, show, connection } => {
            let filters = [("prefix", prefix), ("tags", tag), ("labels", label), ("q", query)];
            let path = format!("/packages{}", filter_query(filters));
            let all: Vec<PackageSummary> = connection.client().await?.list(&path).await?;
            show.list(&all, |it| it.name.clone(), |wide| table(&all, wide))?;
        }
        Command::Get { package, show, connection } => {
            let found = target::published(&connection.client().await?, &package).await?;
            get(&found, &show)?;
        }
        Command::Delete { package, all, connection } => {
            let client = connection.client().await?;
            let path = match (package.split_once('@'), all) {
                (Some((name, version)), false) => version_path(name, version),
                (None, true) => format!("/packages/{}", escape(&package)),
                (None, false) => {
                    let message =
                        "no version given; use NAME@VERSION, or --all to delete all versions";
                    return Err(CliError::InvalidInput(message.to_owned()).into());
                }
                (Some(_), true) => {
                    let message = "--all deletes all versions and cannot be used with NAME@VERSION";
                    return Err(CliError::InvalidInput(message.to_owned()).into());
                }
            };
            client.delete(&path).await?;
            note(&format!("package {package} deleted"));
        }
        Command::Validate { files, offline, show, connection } => {
            validate(&files, offline, &show, &connection).await?;
        }
        Command::History { package, show, connection } => {
            let path = format!("/packages/{}", escape(&package));
            let found: PackageSummary = connection.client().await?.get(&path).await?;
            let name =
                |version: &oprc_rest::VersionSummary| format!("{package}@{}", version.version);
            show.list(&found.versions, name, |_| {
                let mut table = Table::new(&["VERSION", "AGE", "DEPRECATED"]);
                for it in &found.versions {
                    let why = it.deprecated.clone().unwrap_or_default();
                    table.row([it.version.clone(), duration::age(&it.published_at), why]);
                }
                table
            })?;
        }
        Command::Deprecate { package, reason, undo, connection } => {
            let Some((name, version)) = package.split_once('@') else {
                return Err(CliError::InvalidInput(format!(
                    "no version in {package:?}; use NAME@VERSION"
                ))
                .into());
            };
            let path = format!("{}/deprecation", version_path(name, version));
            let client = connection.client().await?;
            if undo {
                client.delete(&path).await?;
            } else {
                let body = Deprecation { reason: reason.unwrap_or_default() };
                client.send_ignoring_body(Method::PUT, &path, Some(&body)).await?;
            }
            note(&format!(
                "package {package} {}",
                if undo { "no longer deprecated" } else { "deprecated" }
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn version_path(name: &str, version: &str) -> String {
    format!("/packages/{}/versions/{}", escape(name), escape(version))
}

/// The query string for the filters that are set.
pub(super) fn filter_query<const N: usize>(filters: [(&str, Option<String>); N]) -> String {
    let set = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let set: Vec<_> = set.map(|(name, value)| format!("{name}={}", escape(&value))).collect();
    if set.is_empty() { String::new() } else { format!("?{}", set.join("&")) }
}

async fn apply(files: &[PathBuf], show: &OutputArgs, connection: &ConnectionArgs) -> Result<()> {
    // Reads all files before the first is sent.
    let mut packages = Vec::new();
    for file in files {
        let documents = files::load(file)?;
        let before = packages.len();
        packages.extend(files::packages(&documents).cloned());
        if packages.len() == before {
            return Err(CliError::InvalidInput(format!(
                "{} contains no package; use `oprc deploy` for deployments",
                file.display()
            ))
            .into());
        }
    }
    let published = target::publish(&connection.client().await?, packages).await?;
    match show.output {
        Format::Table | Format::Wide => Ok(()),
        Format::Name => {
            let name = |it: &Published| sanitize(&format!("{}@{}", it.name, it.version)) + "\n";
            let names = published.iter().map(name);
            print(&names.collect::<String>())
        }
        _ => show.document(&published),
    }
}

fn get(found: &PackageVersion, show: &OutputArgs) -> Result<()> {
    show.one(
        found,
        |it| format!("{}@{}", it.package.name, it.package.version),
        |it, _| {
            // A package file that can be published again.
            let body = Body::Package(Box::new(it.package.clone()));
            to_yaml([&body]).unwrap_or_default()
        },
    )
}

#[derive(Serialize)]
struct Validity {
    file: String,
    valid: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

async fn validate(
    files: &[PathBuf],
    offline: bool,
    show: &OutputArgs,
    connection: &ConnectionArgs,
) -> Result<()> {
    show.reject_formats(&[Format::Name, Format::Wide])?;
    let mut all = Vec::new();
    for file in files {
        let text = files::read(file)?;
        let source = file.display().to_string();
        let mut error = files::documents(&text, &source).err();
        if error.is_none() && !offline {
            let response =
                connection.client().await?.send_yaml_ignoring_body("/validate", &text).await;
            error = match response.map_err(anyhow::Error::downcast::<CliError>) {
                Ok(()) => None,
                Err(Ok(CliError::Rejected(why))) => {
                    Some(CliError::InvalidInput(format!("{source}: {why}")))
                }
                Err(Ok(other)) => return Err(other.into()),
                Err(Err(other)) => return Err(other),
            };
        }
        if error.is_none() {
            note(&format!("{source}: valid"));
        }
        let message = error.as_ref().map(ToString::to_string).unwrap_or_default();
        all.push(Validity { file: source, valid: error.is_none(), message });
    }
    show.print_result(&all, |_| String::new())?;
    let errors: Vec<_> = all.into_iter().filter(|it| !it.valid).map(|it| it.message).collect();
    if errors.is_empty() { Ok(()) } else { Err(CliError::InvalidInput(errors.join("\n")).into()) }
}

fn table(all: &[PackageSummary], wide: bool) -> Table {
    let mut headers = vec!["NAME", "LATEST", "VERSIONS", "CLASSES", "AGE"];
    if wide {
        headers.extend(["TAGS", "DESCRIPTION"]);
    }
    let mut table = Table::new(&headers);
    for it in all {
        let latest = it.versions.iter().find(|version| version.version == it.latest);
        let mut row = vec![
            it.name.clone(),
            it.latest.clone(),
            it.versions.len().to_string(),
            it.classes.join(","),
            latest.map(|version| duration::age(&version.published_at)).unwrap_or_default(),
        ];
        if wide {
            row.extend([it.tags.join(","), it.description.clone().unwrap_or_default()]);
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_filters() {
        assert_eq!(filter_query([("a", None), ("b", None)]), "");
        let set = [("labels", Some("team=x&y".to_owned())), ("q", Some("ü".to_owned()))];
        assert_eq!(filter_query(set), "?labels=team%3Dx%26y&q=%C3%BC");
    }
}
