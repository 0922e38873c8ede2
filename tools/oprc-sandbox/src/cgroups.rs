//! The control groups of a cluster's pods.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result, node, spec::Spec};

const HIERARCHIES: &str = "/sys/fs/cgroup";
/// How long processes that were killed may take to leave their groups.
const PATIENCE: Duration = Duration::from_secs(10);

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
    folders
        .filter(|path| path.is_dir() && !path.is_symlink())
        .collect()
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
            fs::create_dir_all(&folder)
                .map_err(Error::io(format!("making {}", folder.display())))?;
        }
    }
    Ok(())
}

/// Takes away all groups of a cluster, waiting for processes that are about to end.
pub(crate) fn remove(spec: &Spec) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for root in roots() {
        let folder = root.join(spec.addresses().bridge());
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
