//! `oprc class` and `oprc function`: the catalogue of published packages.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use oprc_rest::{ClassEntry, FunctionEntry};

use super::package::filter_query;
use crate::{
    connection::ConnectionArgs,
    display::api_name,
    error::CliError,
    output::{OutputArgs, Table},
};

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Show only entries that contain this text.
    #[arg(long, short)]
    query: Option<String>,
    /// Show only entries of this package.
    #[arg(long, short)]
    package: Option<String>,
    #[command(flatten)]
    show: OutputArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Class {
    /// List classes.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc class list --package counter")]
    List(Search),
    /// Show a class.
    #[command(after_help = "Example:\n  oprc class get counter.Counter -o yaml")]
    Get {
        /// Class as PACKAGE.CLASS.
        class: String,
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Function {
    /// List functions and their status on clusters.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc function list -q greet -o wide")]
    List(Search),
    /// Show a function.
    #[command(after_help = "Example:\n  oprc function get hello.greet -o yaml")]
    Get {
        /// Function as PACKAGE.FUNCTION.
        function: String,
        #[command(flatten)]
        show: OutputArgs,
        #[command(flatten)]
        connection: ConnectionArgs,
    },
}

pub(crate) async fn classes(command: Class) -> Result<ExitCode> {
    match command {
        Class::List(search) => {
            let filters = [("q", search.query), ("package", search.package)];
            let path = format!("/classes{}", filter_query(filters));
            let all: Vec<ClassEntry> = search.connection.client().await?.list(&path).await?;
            search.show.list(&all, class_name, |wide| class_table(&all, wide))?;
        }
        Class::Get { class, show, connection } => {
            let (package, key) = split_name(&class)?;
            let path = format!("/classes{}", filter_query([("package", Some(package.to_owned()))]));
            let all: Vec<ClassEntry> = connection.client().await?.list(&path).await?;
            let found = all.iter().find(|it| it.package == package && it.key == key);
            let found = found.ok_or_else(|| {
                CliError::NotFound(format!("class {class:?} not found; see `oprc class list`"))
            })?;
            show.one(found, class_name, |it, _| {
                class_table(std::slice::from_ref(it), true).render(!show.no_headers)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn functions(command: Function) -> Result<ExitCode> {
    match command {
        Function::List(search) => {
            let filters = [("q", search.query), ("package", search.package)];
            let path = format!("/functions{}", filter_query(filters));
            let all: Vec<FunctionEntry> = search.connection.client().await?.list(&path).await?;
            search.show.list(&all, function_name, |wide| function_table(&all, wide))?;
        }
        Function::Get { function, show, connection } => {
            let (package, key) = split_name(&function)?;
            let path =
                format!("/functions{}", filter_query([("package", Some(package.to_owned()))]));
            let all: Vec<FunctionEntry> = connection.client().await?.list(&path).await?;
            let found = all.iter().find(|it| it.package == package && it.key == key);
            let found = found.ok_or_else(|| {
                CliError::NotFound(format!(
                    "function {function:?} not found; see `oprc function list`"
                ))
            })?;
            show.one(found, function_name, |it, _| {
                function_table(std::slice::from_ref(it), true).render(!show.no_headers)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Package names may contain dots, keys may not.
fn split_name(name: &str) -> Result<(&str, &str), CliError> {
    let invalid = || CliError::InvalidInput(format!("{name:?} has no package; use PACKAGE.{name}"));
    name.rsplit_once('.').ok_or_else(invalid)
}

fn class_name(class: &ClassEntry) -> String {
    format!("{}.{}", class.package, class.key)
}

fn function_name(function: &FunctionEntry) -> String {
    format!("{}.{}", function.package, function.key)
}

fn class_table(all: &[ClassEntry], wide: bool) -> Table {
    let mut headers = vec!["CLASS", "VERSION", "STATE", "FUNCTIONS"];
    if wide {
        headers.extend(["LINEAGE", "DESCRIPTION"]);
    }
    let mut table = Table::new(&headers);
    for it in all {
        let state = match (it.disabled, it.stateful) {
            (true, _) => "disabled",
            (false, true) => "stateful",
            (false, false) => "stateless",
        };
        let functions: Vec<_> = it.functions.iter().map(|one| one.name.as_str()).collect();
        let mut row =
            vec![class_name(it), it.version.clone(), state.to_owned(), functions.join(",")];
        if wide {
            row.extend([it.lineage.join(" < "), it.description.clone().unwrap_or_default()]);
        }
        table.row(row);
    }
    table
}

fn function_table(all: &[FunctionEntry], wide: bool) -> Table {
    let mut headers = vec!["FUNCTION", "VERSION", "TYPE", "STATE", "CLASSES", "RUNS ON"];
    if wide {
        headers.extend(["IMAGE", "DESCRIPTION"]);
    }
    let mut table = Table::new(&headers);
    for it in all {
        let runs =
            it.status.iter().map(|one| format!("{}={}", one.cluster, api_name(&one.condition)));
        let mut row = vec![
            function_name(it),
            it.version.clone(),
            it.kind.clone(),
            it.state.clone(),
            it.classes.join(","),
            runs.collect::<Vec<_>>().join(","),
        ];
        if wide {
            row.extend([
                it.image.clone().unwrap_or_default(),
                it.description.clone().unwrap_or_default(),
            ]);
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_at_the_last_dot() {
        assert_eq!(split_name("a.b.C").unwrap(), ("a.b", "C"));
        assert!(split_name("C").unwrap_err().to_string().contains("PACKAGE.C"));
    }

    #[test]
    fn class_table_shows_the_state() {
        let class = ClassEntry {
            package: "counter".to_owned(),
            key: "Counter".to_owned(),
            version: "0.1.0".to_owned(),
            stateful: true,
            ..ClassEntry::default()
        };
        let text = class_table(&[class], false).render(false);
        assert_eq!(text, "counter.Counter   0.1.0   stateful   -\n");
    }
}
