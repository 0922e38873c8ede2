//! The control groups of a cluster's pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result, network::Addresses, node, spec::Spec};

const HIERARCHIES: &str = "/sys/fs/cgroup";
/// What kubelet wants to find in its root, as far as the machine has it.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];
/// How long processes that were killed may take to leave their groups.
const PATIENCE: Duration = Duration::from_mins(1);

/// The roots under which groups are made: one for each controller, or the one of version 2.
fn roots() -> Vec<PathBuf> {
    let root = Path::new(HIERARCHIES);
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let Ok(items) = fs::read_dir(root) else {
        return Vec::new();
    };
    let folders = items.filter_map(|item| Some(item.ok()?.path()));
    // Some hierarchies have two names; one of them is a link.
    folders.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// Whether this process may make control groups at all, and if not why.
pub(crate) fn why_not() -> Option<String> {
    let roots = roots();
    if roots.is_empty() {
        return Some(format!("no control groups are mounted at {HIERARCHIES}"));
    }
    let writable = |root: &PathBuf| rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok();
    let refused = roots.iter().find(|root| !writable(root))?;
    Some(format!("{} can't be written to", refused.display()))
}

/// Makes the groups that kubelets want to find.
pub(crate) fn make(spec: &Spec) -> Result<()> {
    for root in roots() {
        for node in 0..u8::try_from(spec.nodes).unwrap_or_default() {
            let folder = root.join(node::cgroup_root(spec, node).trim_start_matches('/'));
            let making = || Error::io(format!("making {}", folder.display()));
            fs::create_dir_all(&folder).map_err(making())?;
            let above = root.join(spec.addresses().bridge());
            delegate(&root, &[&root, &above]).map_err(making())?;
        }
    }
    Ok(())
}

/// In version 2 a group has only those controllers that the ones above it hand down.
fn delegate(root: &Path, above: &[&Path]) -> io::Result<()> {
    let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) else {
        return Ok(());
    };
    for folder in above {
        for name in controllers.split_whitespace().filter(|name| CONTROLLERS.contains(name)) {
            fs::write(folder.join("cgroup.subtree_control"), format!("+{name}"))?;
        }
    }
    Ok(())
}

/// Takes away all groups of a cluster, waiting for processes that are about to end.
pub(crate) fn remove(addresses: Addresses) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for root in roots() {
        let folder = root.join(addresses.bridge());
        while folder.exists() {
            match remove_below(&folder) {
                Ok(()) => break,
                Err(error) if Instant::now() > deadline => {
                    return Err(Error::io(format!("removing {}", folder.display()))(error));
                }
                // The kernel tells nobody when a group's last process is gone.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    Ok(())
}

fn remove_below(folder: &Path) -> std::io::Result<()> {
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
    fn controllers_of_version_2_are_handed_down() {
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
