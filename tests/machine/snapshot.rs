//! A snapshot of processes, mounts, links, routes, firewall rules, cgroups and folders of the machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How long killed processes may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) struct Snapshot(BTreeMap<&'static str, BTreeSet<String>>);

impl Snapshot {
    pub(crate) fn take() -> Self {
        let folders = ["/var/lib", "/var/log", "/run", "/run/netns", "/opt", "/tmp/hostpath_pv"];
        let folders = folders.iter().flat_map(|folder| list(Path::new(folder)));
        Self(BTreeMap::from([
            ("processes", processes()),
            ("mounts", lines(&fs::read_to_string("/proc/self/mountinfo").unwrap())),
            (
                "links",
                output_lines("ip", &["-brief", "link"])
                    .iter()
                    .map(|line| first_word(line))
                    .collect(),
            ),
            ("routes", output_lines("ip", &["route", "show", "table", "all"])),
            ("rules", output_lines("iptables-save", &[])),
            ("cgroups", cgroups(Path::new("/sys/fs/cgroup"))),
            ("folders", folders.collect()),
        ]))
    }

    /// The lines of a part that `later` has and this lacks.
    pub(crate) fn added_by(&self, later: &Self, part: &str) -> Vec<String> {
        later.0[part].difference(&self.0[part]).cloned().collect()
    }

    pub(crate) fn assert_same_as_now(&self) {
        let started = Instant::now();
        loop {
            let now = Self::take();
            let added: Vec<_> =
                self.0.keys().map(|part| (part, self.added_by(&now, part))).collect();
            let removed: Vec<_> =
                self.0.keys().map(|part| (part, now.added_by(self, part))).collect();
            // Other processes of the machine may exit meanwhile.
            let same = added.iter().all(|(_, lines)| lines.is_empty())
                && removed.iter().all(|(part, lines)| **part == "processes" || lines.is_empty());
            if same {
                return;
            }
            assert!(
                started.elapsed() < EXIT_TIMEOUT,
                "left behind: {added:?}, missing: {removed:?}"
            );
            // Only the parent of a killed process is notified of its exit.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn lines(text: &str) -> BTreeSet<String> {
    // Omits comments and the counters of rules.
    let content = text.lines().filter(|line| !line.starts_with('#'));
    content.map(|line| line.split(" [").next().unwrap_or_default().to_owned()).collect()
}

fn output_lines(program: &str, arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| lines(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

fn first_word(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().to_owned()
}

fn list(folder: &Path) -> Vec<String> {
    let items = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    items.map(|item| item.path().display().to_string()).collect()
}

/// All processes that a cluster could have started: programs of its folders, which are in one named
/// `oprc`, or `oprc` itself, or whatever runs in network namespaces that aren't this machine's own.
/// Other processes of the machine are ignored.
fn processes() -> BTreeSet<String> {
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let mut found = BTreeSet::new();
    for process in list(Path::new("/proc")) {
        let command = fs::read(format!("{process}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let elsewhere = fs::read_link(format!("{process}/ns/net")).is_ok_and(|net| net != own);
        let program = command.split(' ').next().unwrap_or_default();
        if elsewhere || program.contains("/oprc/") || program.ends_with("/oprc") {
            found.insert(format!("{process} {command}"));
        }
    }
    found
}

/// All cgroups that a cluster could have created: its own, and those that kubelet and containerd
/// create by default. Cgroups of other programs are ignored.
fn cgroups(folder: &Path) -> BTreeSet<String> {
    const WORDS: [&str; 5] = ["oprc", "kube", "pod", "containerd", "cri-"];
    let mut found = BTreeSet::new();
    for item in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = item.path().display().to_string();
            if WORDS.iter().any(|word| path.contains(word)) {
                found.insert(path);
            }
            found.extend(cgroups(&item.path()));
        }
    }
    found
}
