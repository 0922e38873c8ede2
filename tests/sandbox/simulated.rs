//! Simulated clusters without root.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use oprc_tests::oprc_program;

/// The user id of `nobody`.
const USER: u32 = 65_534;

#[test]
fn runs_a_thousand_pods_and_two_clusters_without_root() {
    let home = tempfile::tempdir().unwrap();
    let user = Unprivileged::at(home.path());
    let first = user.oprc(&["up", "--name", "first", "--nodes", "2", "--no-fsync"]);
    assert!(first.contains("real nodes are not possible"), "{first}");
    user.oprc(&["up", "--name", "second", "--node", "simulated", "--no-fsync"]);
    let listed = user.oprc(&["list"]);
    assert_eq!(listed.matches(" running").count(), 2, "{listed}");

    let create = ["create", "deployment", "many", "--image=none", "--replicas=1000"];
    user.kubectl("first", &create);
    user.kubectl("first", &["rollout", "status", "deployment/many", "--timeout=900s"]);
    let ready = ["get", "deployment", "many", "-o", "jsonpath={.status.readyReplicas}"];
    assert_eq!(user.kubectl("first", &ready), "1000");
    let pods = user.kubectl("second", &["get", "pods", "--all-namespaces", "-o", "name"]);
    assert_eq!(pods, "", "the second cluster has pods of the first");

    user.oprc(&["down", "--name", "first"]);
    user.kubectl("second", &["get", "nodes"]);
    user.oprc(&["down", "--name", "second"]);
    assert_eq!(user.oprc(&["list"]).lines().count(), 1);
}

/// An unprivileged user with a home folder and a copy of the programs.
struct Unprivileged {
    home: PathBuf,
}

impl Drop for Unprivileged {
    /// A failed test must not leave clusters running.
    fn drop(&mut self) {
        for cluster in ["first", "second"] {
            let _ = self.run(&["down", "--name", cluster]);
        }
    }
}

impl Unprivileged {
    fn at(home: &Path) -> Self {
        let cache = super::error_messages::copy_of_cache(&home.join("cache"));
        for folder in
            [home.to_owned(), cache.clone(), cache.join("oprc"), cache.join("oprc/programs")]
        {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&folder, Some(USER), Some(USER)).unwrap();
        }
        for item in fs::read_dir(cache.join("oprc/programs")).unwrap().filter_map(Result::ok) {
            if item.path().extension().is_some_and(|extension| extension == "lock") {
                fs::remove_file(item.path()).unwrap();
            }
        }
        fs::copy(oprc_program(), home.join("oprc")).unwrap();
        Self { home: home.to_owned() }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let user = USER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        command.arg(self.home.join("oprc")).arg("sandbox").args(arguments);
        command.current_dir(&self.home).env_remove("XDG_STATE_HOME");
        command.env("HOME", &self.home).env("XDG_CACHE_HOME", self.home.join("cache"));
        command.output().unwrap()
    }

    fn oprc(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "oprc sandbox {arguments:?}: {stdout}{stderr}");
        if arguments.first() == Some(&"kubectl") { stdout } else { stdout + &stderr }
    }

    fn kubectl(&self, cluster: &str, arguments: &[&str]) -> String {
        let mut all = vec!["kubectl", "--name", cluster, "--"];
        all.extend(arguments);
        self.oprc(&all)
    }
}
