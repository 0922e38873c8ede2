//! `oprc class` and `oprc function`: what packages offer.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use oprc_rest::{ClassEntry, FunctionEntry};

use super::package::filtered;
use crate::{
    failure::Failure,
    output::{Show, Table},
    remote::Remote,
    words::word,
};

/// What is looked for.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Only those that this text is found in.
    #[arg(long, short)]
    query: Option<String>,
    /// Only those of this package.
    #[arg(long, short)]
    package: Option<String>,
    #[command(flatten)]
    show: Show,
    #[command(flatten)]
    remote: Remote,
}

/// The commands for classes.
#[derive(Debug, Subcommand)]
pub(crate) enum Class {
    /// List classes.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc class list --package counter")]
    List(Search),
    /// Tell everything about a class.
    #[command(after_help = "Example:\n  oprc class get counter.Counter -o yaml")]
    Get {
        /// The class, as PACKAGE.CLASS.
        class: String,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
}

/// The commands for functions.
#[derive(Debug, Subcommand)]
pub(crate) enum Function {
    /// List functions, and how they are where they run.
    #[command(visible_alias = "ls", after_help = "Example:\n  oprc function list -q greet -o wide")]
    List(Search),
    /// Tell everything about a function.
    #[command(after_help = "Example:\n  oprc function get hello.greet -o yaml")]
    Get {
        /// The function, as PACKAGE.FUNCTION.
        function: String,
        #[command(flatten)]
        show: Show,
        #[command(flatten)]
        remote: Remote,
    },
}

/// Does what a command for classes says.
pub(crate) async fn classes(command: Class) -> Result<ExitCode> {
    match command {
        Class::List(search) => {
            let filters = [("q", search.query), ("package", search.package)];
            let path = format!("/classes{}", filtered(filters));
            let all: Vec<ClassEntry> = search.remote.client().await?.list(&path).await?;
            search.show.list(&all, class_name, |wide| class_table(&all, wide))?;
        }
        Class::Get { class, show, remote } => {
            let (package, key) = halves(&class)?;
            let path = format!("/classes{}", filtered([("package", Some(package.to_owned()))]));
            let all: Vec<ClassEntry> = remote.client().await?.list(&path).await?;
            let found = all.iter().find(|it| it.package == package && it.key == key);
            let found =
                found.ok_or_else(|| Failure::Missing(format!("there is no class {class:?}")))?;
            show.one(found, class_name, |it, _| {
                class_table(std::slice::from_ref(it), true).render(!show.no_headers)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Does what a command for functions says.
pub(crate) async fn functions(command: Function) -> Result<ExitCode> {
    match command {
        Function::List(search) => {
            let filters = [("q", search.query), ("package", search.package)];
            let path = format!("/functions{}", filtered(filters));
            let all: Vec<FunctionEntry> = search.remote.client().await?.list(&path).await?;
            search.show.list(&all, function_name, |wide| function_table(&all, wide))?;
        }
        Function::Get { function, show, remote } => {
            let (package, key) = halves(&function)?;
            let path = format!("/functions{}", filtered([("package", Some(package.to_owned()))]));
            let all: Vec<FunctionEntry> = remote.client().await?.list(&path).await?;
            let found = all.iter().find(|it| it.package == package && it.key == key);
            let found = found
                .ok_or_else(|| Failure::Missing(format!("there is no function {function:?}")))?;
            show.one(found, function_name, |it, _| {
                function_table(std::slice::from_ref(it), true).render(!show.no_headers)
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Packages' names may have dots in them, keys have none.
fn halves(name: &str) -> Result<(&str, &str), Failure> {
    let told = || Failure::Wrong(format!("{name:?} is to say the package too, as PACKAGE.{name}"));
    name.rsplit_once('.').ok_or_else(told)
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
        let runs = it.status.iter().map(|one| format!("{}={}", one.cluster, word(&one.condition)));
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
    fn names_are_split_at_the_last_dot() {
        assert_eq!(halves("a.b.C").unwrap(), ("a.b", "C"));
        assert!(halves("C").unwrap_err().to_string().contains("PACKAGE.C"));
    }

    #[test]
    fn classes_tell_their_state() {
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
