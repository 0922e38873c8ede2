//! The cgroups of a cluster's pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result, files, network::Addresses, node, spec::Spec};

const HIERARCHIES: &str = "/sys/fs/cgroup";
/// Controllers that kubelet expects in its root cgroup, if the machine has them.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];
/// How long killed processes may take to leave the cgroups of all hierarchies.
const REMOVE_TIMEOUT: Duration = Duration::from_mins(1);
const REMOVE_DELAY: Duration = Duration::from_millis(20);

/// The cgroup roots: one for each controller with cgroup v1, a single one with v2.
fn roots() -> Vec<PathBuf> {
    let root = Path::new(HIERARCHIES);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let folders = fs::read_dir(root).into_iter().flatten().flatten().map(|item| item.path());
    // Some v1 hierarchies have a second name, which is a symbolic link.
    folders.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// Why this process can't create cgroups, if it can't.
pub(crate) fn obstacle() -> Option<String> {
    let roots = roots();
    if roots.is_empty() {
        return Some(format!("no cgroups are mounted at {HIERARCHIES}"));
    }
    let writable = |root: &PathBuf| rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok();
    let read_only = roots.iter().find(|root| !writable(root))?;
    Some(format!("{} is not writable", read_only.display()))
}

/// Creates the root cgroups of the kubelets.
pub(crate) fn create(spec: &Spec) -> Result<()> {
    for root in roots() {
        for node in node::numbers(spec) {
            let folder = root.join(node::cgroup_root(spec, node).trim_start_matches('/'));
            files::create_folder(&folder)?;
            let above = root.join(spec.addresses().bridge());
            delegate(&root, &[&root, &above]).map_err(Error::path("creating", &folder))?;
        }
    }
    Ok(())
}

/// With cgroup v2, a cgroup has only the controllers that its ancestors delegate. With v1 there is no
/// list of controllers.
fn delegate(root: &Path, above: &[&Path]) -> io::Result<()> {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    for folder in above {
        for name in controllers.split_whitespace().filter(|name| CONTROLLERS.contains(name)) {
            fs::write(folder.join("cgroup.subtree_control"), format!("+{name}"))?;
        }
    }
    Ok(())
}

/// Removes all cgroups of a cluster; waits for processes that are exiting.
pub(crate) fn remove(addresses: Addresses) -> Result<()> {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    for root in roots() {
        let folder = root.join(addresses.bridge());
        while folder.exists() {
            match remove_below(&folder) {
                Ok(()) => break,
                Err(error) if Instant::now() > deadline => {
                    return Err(Error::path("removing", &folder)(error));
                }
                // There is no notification when the last process leaves a cgroup v1.
                Err(_) => thread::sleep(REMOVE_DELAY),
            }
        }
    }
    Ok(())
}

fn remove_below(folder: &Path) -> io::Result<()> {
    for item in fs::read_dir(folder)? {
        let path = item?.path();
        if path.is_dir() {
            remove_below(&path)?;
        }
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegates_cgroup_v2_controllers() {
        let root = tempfile::tempdir().unwrap();
        let above = root.path().join("oprc0");
        fs::create_dir(&above).unwrap();
        fs::write(root.path().join("cgroup.controllers"), "memory rdma").unwrap();
        delegate(root.path(), &[root.path(), &above]).unwrap();
        for folder in [root.path(), &above] {
            let written = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap();
            assert_eq!(written, "+memory");
        }
    }
}
