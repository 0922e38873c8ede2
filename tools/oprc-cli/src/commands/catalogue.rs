//! `oprc class` and `oprc function`: the catalogue of published packages.

use anyhow::Result;
use clap::{Args, Subcommand};
use oprc_rest::{ClassEntry, FunctionEntry};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    client::filtered,
    connection::ApiArgs,
    error::CliError,
    output::{Column, api_name, table},
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
    api: ApiArgs,
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
        api: ApiArgs,
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
        api: ApiArgs,
    },
}

pub(crate) async fn classes(command: Class) -> Result<()> {
    match command {
        Class::List(search) => list::<ClassEntry>(&search).await,
        Class::Get { class, api } => get::<ClassEntry>(&class, &api).await,
    }
}

pub(crate) async fn functions(command: Function) -> Result<()> {
    match command {
        Function::List(search) => list::<FunctionEntry>(&search).await,
        Function::Get { function, api } => get::<FunctionEntry>(&function, &api).await,
    }
}

/// A class or function in the catalogue.
trait Entry: Serialize + DeserializeOwned + 'static {
    const KIND: &'static str;
    const PATH: &'static str;
    const COLUMNS: &'static [Column<Self>];
    const WIDE: &'static [Column<Self>];

    /// As PACKAGE.KEY.
    fn name(&self) -> String;
}

async fn list<T: Entry>(search: &Search) -> Result<()> {
    let filters = [("q", search.query.as_deref()), ("package", search.package.as_deref())];
    search.api.list(&filtered(T::PATH, &filters), T::name, T::COLUMNS, T::WIDE).await
}

async fn get<T: Entry>(name: &str, api: &ApiArgs) -> Result<()> {
    let path = filtered(T::PATH, &[("package", Some(package_of(name)?))]);
    let all: Vec<T> = api.client().await?.list(&path).await?;
    let kind = T::KIND;
    let found = all.into_iter().find(|it| it.name() == name).ok_or_else(|| {
        CliError::NotFound(format!("{kind} {name:?} not found; see `oprc {kind} list`"))
    })?;
    let columns = [T::COLUMNS, T::WIDE].concat();
    let item = std::slice::from_ref(&found);
    api.show.one(&found, &[name], |_| table(item, &columns, !api.show.no_headers))
}

/// Package names may contain dots, keys may not.
fn package_of(name: &str) -> Result<&str, CliError> {
    let invalid = || CliError::InvalidInput(format!("{name:?} has no package; use PACKAGE.{name}"));
    name.rsplit_once('.').map(|(package, _)| package).ok_or_else(invalid)
}

impl Entry for ClassEntry {
    const KIND: &'static str = "class";
    const PATH: &'static str = "/classes";
    const COLUMNS: &'static [Column<Self>] = &[
        ("CLASS", Self::name),
        ("VERSION", |it| it.version.clone()),
        ("STATE", |it| {
            let state = if it.stateful { "stateful" } else { "stateless" };
            if it.disabled { "disabled" } else { state }.to_owned()
        }),
        ("FUNCTIONS", |it| {
            let functions: Vec<_> = it.functions.iter().map(|one| one.name.as_str()).collect();
            functions.join(",")
        }),
    ];
    const WIDE: &'static [Column<Self>] = &[
        ("LINEAGE", |it| it.lineage.join(" < ")),
        ("DESCRIPTION", |it| it.description.clone().unwrap_or_default()),
    ];

    fn name(&self) -> String {
        format!("{}.{}", self.package, self.key)
    }
}

impl Entry for FunctionEntry {
    const KIND: &'static str = "function";
    const PATH: &'static str = "/functions";
    const COLUMNS: &'static [Column<Self>] = &[
        ("FUNCTION", Self::name),
        ("VERSION", |it| it.version.clone()),
        ("TYPE", |it| it.kind.clone()),
        ("STATE", |it| it.state.clone()),
        ("CLASSES", |it| it.classes.join(",")),
        ("RUNS ON", |it| {
            let runs = it.status.iter();
            let runs = runs.map(|one| format!("{}={}", one.cluster, api_name(&one.condition)));
            runs.collect::<Vec<_>>().join(",")
        }),
    ];
    const WIDE: &'static [Column<Self>] = &[
        ("IMAGE", |it| it.image.clone().unwrap_or_default()),
        ("DESCRIPTION", |it| it.description.clone().unwrap_or_default()),
    ];

    fn name(&self) -> String {
        format!("{}.{}", self.package, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_at_the_last_dot() {
        assert_eq!(package_of("a.b.C").unwrap(), "a.b");
        assert!(package_of("C").unwrap_err().to_string().contains("PACKAGE.C"));
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
        let text = table(&[class], ClassEntry::COLUMNS, false);
        assert_eq!(text, "counter.Counter   0.1.0   stateful   -\n");
    }
}
