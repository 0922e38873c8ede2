//! Error messages say what to do.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use oprc_sandbox::Cluster;
use oprc_tests::{kill_supervisor, oprc, oprc_program, with_simulated};

use crate::components::etcd_arguments;

/// Runs `oprc sandbox`, which must fail, and returns its standard error.
fn error_of(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut all = vec!["sandbox"];
    all.extend(arguments);
    let output = oprc(&all, variables);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{arguments:?} succeeded: {stderr}");
    assert!(stderr.contains("error: "), "{arguments:?} printed no error: {stderr}");
    stderr
}

fn assert_contains(stderr: &str, parts: &[&str]) {
    for part in parts {
        assert!(stderr.contains(part), "'{part}' is not in: {stderr}");
    }
}

/// Copies the program cache, with hard links where possible.
pub(crate) fn copy_of_cache(target: &Path) -> PathBuf {
    let home = std::env::var("HOME").unwrap_or_default();
    let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| format!("{home}/.cache"));
    let programs = target.join("oprc");
    fs::create_dir_all(&programs).unwrap();
    let copy = r#"cp -al "$0/oprc/programs" "$1" 2>/dev/null || cp -a "$0/oprc/programs" "$1""#;
    let status = Command::new("sh").args(["-c", copy, &cache]).arg(&programs).status().unwrap();
    assert!(status.success());
    target.to_owned()
}

#[test]
fn unknown_cluster_is_an_error() {
    for command in
        [vec!["status"], vec!["down"], vec!["kubeconfig"], vec!["kubectl"], vec!["logs", "etcd"]]
    {
        let mut arguments = command.clone();
        arguments.extend(["--name", "nowhere"]);
        assert_contains(
            &error_of(&arguments, &[]),
            &["cluster 'nowhere' does not exist", "oprc sandbox up --name nowhere"],
        );
    }
}

#[test]
fn rejects_invalid_names() {
    assert_contains(
        &error_of(&["up", "--name", "../etc"], &[]),
        &["is not a valid cluster name", "lower-case"],
    );
}

#[test]
fn rejects_invalid_options() {
    let simulated = ["up", "--name", "test-none", "--node", "simulated"];
    let with = |more: &[&'static str]| [&simulated[..], more].concat();
    assert_contains(&error_of(&with(&["--knative"]), &[]), &["--knative needs real nodes"]);
    assert_contains(&error_of(&with(&["--nodes", "0"]), &[]), &["--nodes 0", "1 to 1000"]);
    assert_contains(
        &error_of(&["up", "--name", "test-none", "--node", "real", "--nodes", "9"], &[]),
        &["1 to 8"],
    );
}

#[test]
fn real_nodes_require_root() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("oprc");
    fs::copy(oprc_program(), &program).unwrap();
    let shell = r#"chmod 755 "$0" "$0/oprc" && chown 65534 "$0" && exec setpriv --reuid 65534 --clear-groups \
        env HOME="$0" XDG_STATE_HOME= "$0/oprc" sandbox up --name real --node real"#;
    let output = Command::new("sh").arg("-c").arg(shell).arg(home.path()).output().unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_contains(&stderr, &["real nodes are not possible", "require root", "--node simulated"]);
}

#[test]
fn explains_how_to_install_go() {
    let tools = tempfile::tempdir().unwrap();
    symlink("/usr/bin/setpriv", tools.path().join("setpriv")).unwrap();
    let folder = tools.path().to_str().unwrap();
    let variables = [("PATH", folder), ("XDG_CACHE_HOME", folder), ("XDG_STATE_HOME", folder)];
    let stderr = error_of(&["up", "--name", "test-none", "--node", "simulated"], &variables);
    assert_contains(&stderr, &["Go 1.26.4 or newer", "https://go.dev/dl", "KUBEBUILDER_ASSETS"]);
}

#[test]
fn explains_how_to_set_a_module_proxy() {
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().to_str().unwrap();
    let variables = [
        ("XDG_CACHE_HOME", folder),
        ("XDG_STATE_HOME", folder),
        ("GOMODCACHE", folder),
        ("GOPROXY", "off"),
    ];
    let stderr = error_of(&["up", "--name", "test-none", "--node", "simulated"], &variables);
    assert_contains(&stderr, &["module proxy", "GOPROXY", "KUBEBUILDER_ASSETS"]);
}

#[test]
fn reports_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let cache = copy_of_cache(&folder.path().join("cache"));
    let small = folder.path().join("small");
    fs::create_dir(&small).unwrap();
    // A file system of 64 kB that is unmounted when the shell exits.
    let shell = r#"mount -t tmpfs -o size=64k tmpfs "$1" && XDG_CACHE_HOME="$2" XDG_STATE_HOME="$1" \
        "$0" sandbox up --name full --node simulated"#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", shell])
        .args([&oprc_program(), &small, &cache])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_contains(&stderr, &["no space left on the disk", "XDG_CACHE_HOME", "XDG_STATE_HOME"]);
}

#[test]
fn rebuilds_a_damaged_cache_entry() {
    let folder = tempfile::tempdir().unwrap();
    let cache = copy_of_cache(&folder.path().join("cache"));
    let programs = cache.join("oprc/programs");
    for item in fs::read_dir(&programs).unwrap().filter_map(Result::ok) {
        let definitions = item.path().join("definitions.yaml");
        if definitions.is_file() {
            // A new file, because the old one may be a hard link into the real cache.
            fs::remove_file(&definitions).unwrap();
            fs::write(&definitions, "damaged").unwrap();
        }
    }
    let [cache, state] =
        [&cache, &folder.path().join("state")].map(|path| path.to_str().unwrap().to_owned());
    let variables = [("XDG_CACHE_HOME", cache.as_str()), ("XDG_STATE_HOME", state.as_str())];
    let up =
        ["sandbox", "up", "--name", "damaged", "--node", "simulated", "--prometheus", "--no-fsync"];
    let output = oprc(&up, &variables);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let down = oprc(&["sandbox", "down", "--name", "damaged"], &variables);
    assert!(output.status.success() && down.status.success(), "{stderr}");
    assert_contains(
        &stderr,
        &["cache entry monitoring is damaged", "definitions.yaml has changed"],
    );
}

#[tokio::test]
async fn rejects_different_options_for_an_existing_cluster() {
    with_simulated("test-options", 1, async |_| {
        let up = ["up", "--name", "test-options"];
        let with = |more: &[&'static str]| [&up[..], more].concat();
        let stderr = error_of(&with(&["--nodes", "3", "--prometheus"]), &[]);
        assert_contains(
            &stderr,
            &["1 nodes, not 3", "no Prometheus", "oprc sandbox down --name test-options"],
        );
        assert!(oprc(&[&["sandbox"], &up[..]].concat(), &[]).status.success());
    })
    .await;
}

#[tokio::test]
async fn rejects_files_that_are_not_images() {
    with_simulated("test-image", 1, async |_| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "no image").unwrap();
        let stderr =
            error_of(&["load-image", "--name", "test-image", file.path().to_str().unwrap()], &[]);
        assert_contains(&stderr, &["is not an OCI image archive", "oprc sandbox image"]);
        let stderr = error_of(&["load-image", "--name", "test-image", "/nowhere"], &[]);
        assert_contains(&stderr, &["/nowhere", "No such file"]);
        let stderr = error_of(&["logs", "--name", "test-image", "kubelet"], &[]);
        assert_contains(&stderr, &["no component 'kubelet'", "etcd"]);
    })
    .await;
}

#[tokio::test]
async fn reports_a_port_in_use() {
    with_simulated("test-port", 1, async |cluster: Cluster| {
        let arguments = etcd_arguments(&cluster).await;
        let (_, rest) = arguments.split_once("--listen-client-urls=https://127.0.0.1:").unwrap();
        let port: u16 = rest.split('\0').next().unwrap().parse().unwrap();
        kill_supervisor(&cluster);
        let _listener = oprc_tests::eventually(
            "the port to be free",
            oprc_tests::objects::READY_TIMEOUT,
            || async {
                TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| error.to_string())
            },
        )
        .await;
        let stderr = error_of(&["up", "--name", "test-port"], &[]);
        assert_contains(
            &stderr,
            &[&format!("port {port}"), "for etcd", "in use by another program", "ss -ltnp"],
        );
    })
    .await;
}
