//! Names: those that shells offer, and that of the program itself.

use std::{
    net::TcpListener,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{answers, canned, oprc};

/// What is offered after these words, the last of which is still being typed.
fn offered(shell: &str, server: &str, words: &[&str]) -> String {
    let mut command = oprc();
    command.env("OPRC_COMPLETE", shell).env("OPRC_SERVER", server);
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let done = command.args(["--", "oprc"]).args(words).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn names_are_offered_while_somebody_types() {
    let server = canned::start(answers::all());
    for (words, name) in [
        (&["status", "c"][..], "counter"),
        (&["invoke", ""], "counter"),
        (&["delete", "other", "co"], "counter"),
        (&["deploy", "cou"], "counter"),
        (&["package", "get", ""], "counter"),
        (&["class", "get", "counter."], "counter.Counter"),
        (&["logs", "counter", "--class", ""], "Counter"),
        (&["function", "get", "c"], "counter.increment"),
        (&["cluster", "health", ""], "east"),
        (&["deploy", "counter", "--cluster", "e"], "east"),
    ] {
        for shell in ["bash", "zsh", "fish"] {
            let said = offered(shell, &server, words);
            assert!(said.lines().any(|it| it == name), "{shell} {words:?}: {said}");
        }
    }
    assert_eq!(offered("bash", &server, &["status", "x"]), "", "what doesn't fit isn't offered");
    for option in [&["--server", &server][..], &[&format!("--server={server}")]] {
        let words = [&["status"], option, &["co"]].concat();
        assert_eq!(offered("bash", "http://127.0.0.1:1", &words), "counter");
    }
    let files = offered("bash", &server, &["deploy", "Cargo"]);
    assert!(files.contains("Cargo.toml"), "{files}");
    let mut contexts = oprc();
    contexts.env("OPRC_CONFIG", "tests/documents/contexts.yaml").env("OPRC_COMPLETE", "fish");
    let said = contexts.args(["--", "oprc", "context", "use", "p"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap(), "prod\n");
}

#[test]
fn nobody_who_types_waits_for_long() {
    assert_eq!(offered("bash", "http://127.0.0.1:1", &["status", "c"]), "");
    assert_eq!(offered("bash", "no address", &["status", "c"]), "");
    // It takes connections and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    assert_eq!(offered("bash", &server, &["status", "c"]), "");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn bash_takes_the_script() {
    let server = canned::start(answers::all());
    let folder = Path::new(env!("CARGO_BIN_EXE_oprc")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let typed = "source <(oprc completion bash); COMP_WORDS=(oprc status co); COMP_CWORD=2
                 _clap_complete_oprc oprc co status; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", typed]).env_clear().env("PATH", path);
    bash.env("OPRC_CONFIG", "/nonexistent/oprc.yaml").env("OPRC_SERVER", server);
    let done = bash.output().unwrap();
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "counter\n");
}

#[test]
fn as_a_plugin_it_is_called_as_kubectl_calls_it() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl-oaas");
    symlink(env!("CARGO_BIN_EXE_oprc"), &link).unwrap();
    for (arguments, usage) in [
        (&["--help"][..], "Usage: kubectl oaas [OPTIONS] <COMMAND>"),
        (&["status", "--help"], "Usage: kubectl oaas status [OPTIONS] [DEPLOYMENT]"),
    ] {
        let said = Command::new(&link).args(arguments).output().unwrap().stdout;
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains(usage), "{said}");
    }
}
