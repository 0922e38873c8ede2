//! Shell completion of commands, options and names that the package manager knows. Names that take
//! longer than [`LOOKUP_TIMEOUT`] are left out.

use std::{env, ffi::OsStr, io, time::Duration};

use anyhow::Result;
use clap_complete::{
    ArgValueCompleter, CompleteEnv, CompletionCandidate, PathCompleter, Shell,
    engine::ValueCompleter as _, env::Shells,
};
use oprc_rest::Page;
use serde_json::Value;

use crate::{client::escape, connection::ConnectionArgs, contexts::Contexts};

/// Set by the completion script when it asks for candidates.
const COMPLETE_VARIABLE: &str = "OPRC_COMPLETE";
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameKind {
    Deployments,
    Packages,
    PackagesAndFiles,
    /// As PACKAGE.CLASS.
    Classes,
    /// Without the package.
    ClassKeys,
    /// As PACKAGE.FUNCTION.
    Functions,
    Clusters,
    Contexts,
}

/// Prints candidates and exits if a completion script asks for them.
pub(crate) fn complete_and_exit_if_requested(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(|| with_name_completion(command(), ""))
        .var(COMPLETE_VARIABLE)
        .complete();
}

pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&shell.to_string()) {
        shell.write_registration(COMPLETE_VARIABLE, "oprc", "oprc", "oprc", &mut script)?;
    }
    Ok(script)
}

fn with_name_completion(command: clap::Command, parent: &str) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| match name_kind(parent, &name, arg.get_id().as_str()) {
        Some(kind) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| candidates(kind, typed))),
        None => arg,
    });
    command.mut_subcommands(|it| with_name_completion(it, &name))
}

fn name_kind(parent: &str, command: &str, argument: &str) -> Option<NameKind> {
    match (parent, command, argument) {
        // Sandbox names and kubeconfig contexts aren't known to the package manager.
        ("sandbox", ..) | (_, "up" | "down", _) => None,
        ("context", _, "name") | (_, _, "context") => Some(NameKind::Contexts),
        ("class", "get", "class") => Some(NameKind::Classes),
        ("function", "get", "function") => Some(NameKind::Functions),
        (_, _, "deployment" | "deployments") => Some(NameKind::Deployments),
        (_, _, "package") => Some(NameKind::Packages),
        (_, _, "source") => Some(NameKind::PackagesAndFiles),
        (_, _, "class" | "classes") => Some(NameKind::ClassKeys),
        (_, _, "cluster" | "clusters") => Some(NameKind::Clusters),
        _ => None,
    }
}

fn candidates(kind: NameKind, typed: &OsStr) -> Vec<CompletionCandidate> {
    let files = PathCompleter::any().stdio();
    let files = if kind == NameKind::PackagesAndFiles { files.complete(typed) } else { Vec::new() };
    let Some(typed) = typed.to_str() else { return files };
    let mut known = lookup(kind, typed).unwrap_or_default();
    // Names come from a server and end up on a shell's command line.
    let plain = |it: char| it.is_ascii_alphanumeric() || "-._".contains(it);
    known.retain(|name| name.starts_with(typed) && name.chars().all(plain));
    known.sort_unstable();
    known.dedup();
    known.into_iter().map(CompletionCandidate::new).chain(files).collect()
}

fn lookup(kind: NameKind, typed: &str) -> Result<Vec<String>> {
    if kind == NameKind::Contexts {
        return Ok(Contexts::load(&Contexts::path()?)?.contexts.into_keys().collect());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async { tokio::time::timeout(LOOKUP_TIMEOUT, fetch(kind, typed)).await };
    let found = runtime.block_on(work);
    // Doesn't wait for a DNS lookup that is still running.
    runtime.shutdown_background();
    found?
}

async fn fetch(kind: NameKind, typed: &str) -> Result<Vec<String>> {
    let client = connection_from_command_line().client().await?;
    let prefix = format!("prefix={}&", escape(typed));
    let (list, filter, fields): (_, _, &[_]) = match kind {
        NameKind::Deployments => ("deployments", prefix.as_str(), &["/deployment/key"]),
        NameKind::Packages | NameKind::PackagesAndFiles => ("packages", &*prefix, &["/name"]),
        NameKind::Classes => ("classes", "", &["/package", "/key"]),
        NameKind::ClassKeys => ("classes", "", &["/key"]),
        NameKind::Functions => ("functions", "", &["/package", "/key"]),
        NameKind::Clusters => ("clusters", "", &["/name"]),
        NameKind::Contexts => return Ok(Vec::new()),
    };
    // Only the first page: a longer list is of no use in a completion.
    let page: Page<Value> = client.get(&format!("/{list}?{filter}limit=200")).await?;
    let name = |item: &Value| {
        let parts = fields.iter().map(|field| item.pointer(field)?.as_str());
        Some(parts.collect::<Option<Vec<_>>>()?.join("."))
    };
    Ok(page.items.iter().filter_map(name).collect())
}

fn connection_from_command_line() -> ConnectionArgs {
    let words: Vec<_> = env::args_os().map(|it| it.to_string_lossy().into_owned()).collect();
    let value_of = |option: &str| {
        let after = words.iter().skip_while(|it| *it != option).nth(1).cloned();
        after.or_else(|| {
            let inline = |it: &String| Some(it.strip_prefix(option)?.strip_prefix('=')?.to_owned());
            words.iter().find_map(inline)
        })
    };
    ConnectionArgs {
        context: value_of("--context"),
        server: value_of("--server"),
        token_file: value_of("--token-file").map(Into::into),
        ca: value_of("--ca").map(Into::into),
        request_timeout: LOOKUP_TIMEOUT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_name_kinds() {
        assert_eq!(name_kind("oprc", "status", "deployment"), Some(NameKind::Deployments));
        assert_eq!(name_kind("oprc", "up", "context"), None);
        assert_eq!(name_kind("context", "use", "name"), Some(NameKind::Contexts));
        assert_eq!(name_kind("class", "get", "class"), Some(NameKind::Classes));
        assert_eq!(name_kind("oprc", "logs", "class"), Some(NameKind::ClassKeys));
    }

    #[test]
    fn every_shell_has_a_completion_script() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(
                script.contains(COMPLETE_VARIABLE) && script.contains("oprc"),
                "{shell}: {script}"
            );
        }
    }
}
