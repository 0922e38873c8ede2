//! Shell completion, and the name of the program as a kubectl plugin.

use std::{
    net::TcpListener,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{fake_pm, fixtures, oprc};

/// Candidates for the last word.
fn candidates(shell: &str, server: &str, words: &[&str]) -> String {
    let mut command = oprc();
    command.env("OPRC_COMPLETE", shell).env("OPRC_SERVER", server);
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
    let done = command.args(["--", "oprc"]).args(words).output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn completes_names() {
    let server = fake_pm::start(fixtures::all());
    for (words, name) in [
        (&["status", "c"][..], "counter"),
        (&["invoke", ""], "counter"),
        (&["delete", "other", "co"], "counter"),
        (&["object", "get", "c"], "counter"),
        (&["grid", "backup", "c"], "counter"),
        (&["deploy", "cou"], "counter"),
        (&["package", "get", ""], "counter"),
        (&["class", "get", "counter."], "counter.Counter"),
        (&["logs", "counter", "--class", ""], "Counter"),
        (&["nfr", "Co"], "Counter"),
        (&["function", "get", "c"], "counter.increment"),
        (&["cluster", "health", ""], "east"),
        (&["deploy", "counter", "--cluster", "e"], "east"),
    ] {
        for shell in ["bash", "zsh", "fish"] {
            let output = candidates(shell, &server, words);
            assert!(output.lines().any(|it| it == name), "{shell} {words:?}: {output}");
        }
    }
    assert_eq!(
        candidates("bash", &server, &["status", "x"]),
        "",
        "candidates must match the prefix"
    );
    for option in [&["--server", &server][..], &[&format!("--server={server}")]] {
        let words = [&["status"], option, &["co"]].concat();
        assert_eq!(candidates("bash", "http://127.0.0.1:1", &words), "counter");
    }
    let files = candidates("bash", &server, &["deploy", "Cargo"]);
    assert!(files.contains("Cargo.toml"), "{files}");
    let mut contexts = oprc();
    contexts.env("OPRC_CONFIG", "tests/json/contexts.yaml").env("OPRC_COMPLETE", "fish");
    let output = contexts.args(["--", "oprc", "context", "use", "p"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(output).unwrap(), "prod\n");
}

#[test]
fn completion_times_out() {
    assert_eq!(candidates("bash", "http://127.0.0.1:1", &["status", "c"]), "");
    assert_eq!(candidates("bash", "no address", &["status", "c"]), "");
    // Accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let started = Instant::now();
    assert_eq!(candidates("bash", &server, &["status", "c"]), "");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn bash_loads_the_completion_script() {
    let server = fake_pm::start(fixtures::all());
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
fn usage_of_the_kubectl_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl-oaas");
    symlink(env!("CARGO_BIN_EXE_oprc"), &link).unwrap();
    for (arguments, usage) in [
        (&["--help"][..], "Usage: kubectl oaas [OPTIONS] <COMMAND>"),
        (&["status", "--help"], "Usage: kubectl oaas status [OPTIONS] [DEPLOYMENT]"),
    ] {
        let output = Command::new(&link).args(arguments).output().unwrap().stdout;
        let output = String::from_utf8(output).unwrap();
        assert!(output.contains(usage), "{output}");
    }
}
