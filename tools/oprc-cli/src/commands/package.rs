//! `oprc package`: what is published.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Subcommand;
use hyper::Method;
use oprc_models::{Body, to_yaml};
use oprc_rest::{Deprecation, PackageSummary, PackageVersion, Published};
use serde::Serialize;

use crate::{
    client::escape,
    failure::Failure,
    files,
    output::{Format, Show, Table, age, clean, print, say},
    remote::Remote,
    wanted,
};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish the packages of files; what is published already just the same is left as it is.
    #[command(after_help = "Example:\n  oprc package apply examples/packages/hello.yaml")]
    Apply {
        /// The files; `-` is standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// List packages.
    #[command(visible_alias = "ls")]
    #[command(after_help = "Example:\n  oprc package list --tag example -o wide")]
    List {
        /// Only those whose name begins with this.
        #[arg(long)]
        prefix: Option<String>,
        /// Only those with this tag.
        #[arg(long)]
        tag: Option<String>,
        /// Only those with this label, as KEY=VALUE.
        #[arg(long, short = 'l')]
        label: Option<String>,
        /// Only those that this text is found in.
        #[arg(long, short)]
        query: Option<String>,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// Print a package as it was published.
    #[command(after_help = "Example:\n  oprc package get hello@0.1.0 > hello.yaml")]
    Get {
        /// NAME, or NAME@VERSIONS such as hello@^0.1.
        package: String,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// Delete a version of a package, or all of it; refused while it is in use.
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
        remote: Remote,
    },
    /// Tell everything that is wrong with files; nothing is published.
    #[command(after_help = "Example:\n  oprc package validate --offline examples/packages/*.yaml")]
    Validate {
        /// The files; `-` is standard input.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Don't ask the package manager, which also looks at what packages depend on.
        #[arg(long)]
        offline: bool,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// List the versions of a package, newest first.
    #[command(after_help = "Example:\n  oprc package history hello")]
    History {
        /// The package.
        package: String,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
    /// Say that a version shouldn't be used any more.
    #[command(
        after_help = "Example:\n  oprc package deprecate hello@0.1.0 --reason 'use 0.2'\n  oprc package deprecate hello@0.1.0 --undo"
    )]
    Deprecate {
        /// NAME@VERSION.
        package: String,
        /// Why, for those who still use it.
        #[arg(long, required_unless_present = "undo")]
        reason: Option<String>,
        /// Take it back.
        #[arg(long, conflicts_with = "reason")]
        undo: bool,
        #[command(flatten)]
        remote: Remote,
    },
}

/// Does what a command says.
pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Apply { files, show, remote } => apply(&files, &show, &remote).await?,
        Command::List { prefix, tag, label, query, show, remote } => {
            let filters = [("prefix", prefix), ("tags", tag), ("labels", label), ("q", query)];
            let path = format!("/packages{}", filtered(filters));
            let all: Vec<PackageSummary> = remote.client().await?.list(&path).await?;
            show.list(&all, |it| it.name.clone(), |wide| table(&all, wide))?;
        }
        Command::Get { package, show, remote } => {
            let found = wanted::published(&remote.client().await?, &package).await?;
            get(&found, &show)?;
        }
        Command::Delete { package, all, remote } => {
            let client = remote.client().await?;
            let path = match (package.split_once('@'), all) {
                (Some((name, version)), false) => version_path(name, version),
                (None, true) => format!("/packages/{}", escape(&package)),
                (None, false) => {
                    let told = "name a version (NAME@VERSION), or say --all to delete all of them";
                    return Err(Failure::Wrong(told.to_owned()).into());
                }
                (Some(_), true) => {
                    let told = "--all deletes all versions: leave the version out";
                    return Err(Failure::Wrong(told.to_owned()).into());
                }
            };
            client.delete(&path).await?;
            say(&format!("package {package} deleted"));
        }
        Command::Validate { files, offline, show, remote } => {
            validate(&files, offline, &show, &remote).await?;
        }
        Command::History { package, show, remote } => {
            let path = format!("/packages/{}", escape(&package));
            let found: PackageSummary = remote.client().await?.get(&path).await?;
            let name =
                |version: &oprc_rest::VersionSummary| format!("{package}@{}", version.version);
            show.list(&found.versions, name, |_| {
                let mut table = Table::new(&["VERSION", "AGE", "DEPRECATED"]);
                for it in &found.versions {
                    let why = it.deprecated.clone().unwrap_or_default();
                    table.row([it.version.clone(), age::since(&it.published_at), why]);
                }
                table
            })?;
        }
        Command::Deprecate { package, reason, undo, remote } => {
            let Some((name, version)) = package.split_once('@') else {
                return Err(
                    Failure::Wrong(format!("{package:?} names no version: NAME@VERSION")).into()
                );
            };
            let path = format!("{}/deprecation", version_path(name, version));
            let client = remote.client().await?;
            if undo {
                client.delete(&path).await?;
            } else {
                let body = Deprecation { reason: reason.unwrap_or_default() };
                client.tell(Method::PUT, &path, Some(&body)).await?;
            }
            say(&format!("package {package} {}", if undo { "undeprecated" } else { "deprecated" }));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn version_path(name: &str, version: &str) -> String {
    format!("/packages/{}/versions/{}", escape(name), escape(version))
}

/// A query of the filters that were said.
pub(super) fn filtered<const N: usize>(filters: [(&str, Option<String>); N]) -> String {
    let said = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let said: Vec<_> = said.map(|(name, value)| format!("{name}={}", escape(&value))).collect();
    if said.is_empty() { String::new() } else { format!("?{}", said.join("&")) }
}

async fn apply(files: &[PathBuf], show: &Show, remote: &Remote) -> Result<()> {
    // All of them are read before the first one is sent.
    let mut packages = Vec::new();
    for file in files {
        let documents = files::load(file)?;
        let before = packages.len();
        packages.extend(files::packages(&documents).cloned());
        if packages.len() == before {
            let told = format!(
                "{}: there is no package in it; `oprc deploy` takes deployments",
                file.display()
            );
            return Err(Failure::Wrong(told).into());
        }
    }
    let published = wanted::publish(&remote.client().await?, packages).await?;
    match show.output {
        Format::Table | Format::Wide => Ok(()),
        Format::Name => {
            let name = |it: &Published| clean(&format!("{}@{}", it.name, it.version)) + "\n";
            let names = published.iter().map(name);
            print(&names.collect::<String>())
        }
        _ => show.document(&published),
    }
}

fn get(found: &PackageVersion, show: &Show) -> Result<()> {
    show.one(
        found,
        |it| format!("{}@{}", it.package.name, it.package.version),
        |it, _| {
            // The file, as it can be published again.
            let body = Body::Package(Box::new(it.package.clone()));
            to_yaml([&body]).unwrap_or_default()
        },
    )
}

/// What is wrong with a file.
#[derive(Serialize)]
struct Validity {
    file: String,
    valid: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

async fn validate(files: &[PathBuf], offline: bool, show: &Show, remote: &Remote) -> Result<()> {
    show.refuse(&[Format::Name, Format::Wide])?;
    let mut all = Vec::new();
    for file in files {
        let text = files::read(file)?;
        let source = file.display().to_string();
        let mut fault = files::documents(&text, &source).err();
        if fault.is_none() && !offline {
            let answer = remote.client().await?.tell_yaml("/validate", &text).await;
            fault = match answer.map_err(anyhow::Error::downcast::<Failure>) {
                Ok(()) => None,
                Err(Ok(Failure::Refused(why))) => Some(Failure::Wrong(format!("{source}: {why}"))),
                Err(Ok(other)) => return Err(other.into()),
                Err(Err(other)) => return Err(other),
            };
        }
        if fault.is_none() {
            say(&format!("{source}: nothing is wrong"));
        }
        let message = fault.as_ref().map(ToString::to_string).unwrap_or_default();
        all.push(Validity { file: source, valid: fault.is_none(), message });
    }
    show.beside_code(&all, |_| String::new())?;
    let told: Vec<_> = all.into_iter().filter(|it| !it.valid).map(|it| it.message).collect();
    if told.is_empty() { Ok(()) } else { Err(Failure::Wrong(told.join("\n")).into()) }
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
            latest.map(|version| age::since(&version.published_at)).unwrap_or_default(),
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
    fn filters_are_escaped() {
        assert_eq!(filtered([("a", None), ("b", None)]), "");
        let said = [("labels", Some("team=x&y".to_owned())), ("q", Some("ü".to_owned()))];
        assert_eq!(filtered(said), "?labels=team%3Dx%26y&q=%C3%BC");
    }
}
