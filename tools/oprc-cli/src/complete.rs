//! What shells offer while somebody types: commands, options, and names that the package manager
//! knows. What can't be told in time isn't offered.

use std::{env, ffi::OsStr, io, time::Duration};

use anyhow::Result;
use clap_complete::{
    ArgValueCompleter, CompleteEnv, CompletionCandidate, PathCompleter, Shell,
    engine::ValueCompleter as _, env::Shells,
};
use oprc_rest::{ClassEntry, Cluster, Deployment, FunctionEntry, PackageSummary, Page};
use serde::de::DeserializeOwned;

use crate::{
    client::{Client, escape},
    contexts::Contexts,
    remote::Remote,
};

/// The variable by which a shell asks.
const ASKED: &str = "OPRC_COMPLETE";
/// How long somebody who types waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// What names are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Deployments,
    Packages,
    /// Packages, and files.
    Wanted,
    /// Classes, as PACKAGE.CLASS.
    Classes,
    /// Classes, by their keys alone.
    Keys,
    /// Functions, as PACKAGE.FUNCTION.
    Functions,
    Clusters,
    Contexts,
}

/// Answers a shell that asks, and ends; does nothing where none does.
pub(crate) fn answer(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(|| with_names(command(), "")).var(ASKED).complete();
}

/// The script by which a shell asks.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&shell.to_string()) {
        shell.write_registration(ASKED, "oprc", "oprc", "oprc", &mut script)?;
    }
    Ok(script)
}

/// A command that offers names where there are some.
fn with_names(command: clap::Command, parent: &str) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match names(parent, &name, arg.get_id().as_str()) {
        Some(names) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| offered(names, typed))),
        None => arg,
    });
    command.mut_subcommands(|it| with_names(it, &name))
}

/// What an argument of a command is a name of.
fn names(parent: &str, command: &str, argument: &str) -> Option<Names> {
    match (parent, command, argument) {
        // Names of this machine, and of kubeconfig files.
        ("sandbox", ..) | (_, "up" | "down", _) => None,
        ("context", _, "name") | (_, _, "context") => Some(Names::Contexts),
        ("class", "get", "class") => Some(Names::Classes),
        ("function", "get", "function") => Some(Names::Functions),
        (_, _, "deployment" | "deployments") => Some(Names::Deployments),
        (_, _, "package") => Some(Names::Packages),
        (_, _, "what") => Some(Names::Wanted),
        (_, _, "class" | "classes") => Some(Names::Keys),
        (_, _, "cluster" | "clusters") => Some(Names::Clusters),
        _ => None,
    }
}

fn offered(names: Names, typed: &OsStr) -> Vec<CompletionCandidate> {
    let files = PathCompleter::any().stdio();
    let files = if names == Names::Wanted { files.complete(typed) } else { Vec::new() };
    let Some(typed) = typed.to_str() else { return files };
    let mut known = known(names, typed).unwrap_or_default();
    // What others wrote is put into a line of a shell.
    let plain = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    known.retain(|name| name.starts_with(typed) && name.chars().all(plain));
    known.sort_unstable();
    known.dedup();
    known.into_iter().map(CompletionCandidate::new).chain(files).collect()
}

fn known(names: Names, typed: &str) -> Result<Vec<String>> {
    if names == Names::Contexts {
        return Ok(Contexts::load(&Contexts::path()?)?.contexts.into_keys().collect());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = async { tokio::time::timeout(PATIENCE, ask(names, typed)).await };
    let answer = runtime.block_on(asked);
    // A name that is still being looked up isn't waited for.
    runtime.shutdown_background();
    answer?
}

async fn ask(names: Names, typed: &str) -> Result<Vec<String>> {
    let client = typed_so_far().client().await?;
    let prefix = format!("prefix={}&", escape(typed));
    Ok(match names {
        Names::Deployments => {
            let path = format!("/deployments?{prefix}");
            page(&client, &path, |it: Deployment| it.deployment.key).await?
        }
        Names::Packages | Names::Wanted => {
            page(&client, &format!("/packages?{prefix}"), |it: PackageSummary| it.name).await?
        }
        Names::Classes => {
            let name = |it: ClassEntry| format!("{}.{}", it.package, it.key);
            page(&client, "/classes?", name).await?
        }
        Names::Keys => page(&client, "/classes?", |it: ClassEntry| it.key).await?,
        Names::Functions => {
            let name = |it: FunctionEntry| format!("{}.{}", it.package, it.key);
            page(&client, "/functions?", name).await?
        }
        Names::Clusters => page(&client, "/clusters?", |it: Cluster| it.name).await?,
        Names::Contexts => Vec::new(),
    })
}

/// The first names of a list: nobody chooses among more.
async fn page<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    name: impl FnMut(T) -> String,
) -> Result<Vec<String>> {
    let page: Page<T> = client.get(&format!("{path}limit=200")).await?;
    Ok(page.items.into_iter().map(name).collect())
}

/// Which package manager, by what is typed already.
fn typed_so_far() -> Remote {
    let words: Vec<_> = env::args_os().map(|it| it.to_string_lossy().into_owned()).collect();
    let said = |option: &str| {
        let after = words.iter().skip_while(|it| *it != option).nth(1).cloned();
        after.or_else(|| {
            let beside = |it: &String| Some(it.strip_prefix(option)?.strip_prefix('=')?.to_owned());
            words.iter().find_map(beside)
        })
    };
    Remote {
        context: said("--context"),
        server: said("--server"),
        token_file: said("--token-file").map(Into::into),
        ca: said("--ca").map(Into::into),
        request_timeout: PATIENCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_names() {
        assert_eq!(names("oprc", "status", "deployment"), Some(Names::Deployments));
        assert_eq!(names("oprc", "up", "context"), None);
        assert_eq!(names("context", "use", "name"), Some(Names::Contexts));
        assert_eq!(names("class", "get", "class"), Some(Names::Classes));
        assert_eq!(names("oprc", "logs", "class"), Some(Names::Keys));
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(script.contains(ASKED) && script.contains("oprc"), "{shell}: {script}");
        }
    }
}
