//! Programs from Debian's packages.

use std::{fs, path::PathBuf, process::Command};

use crate::{Error, Result, cache, command, progress::Step};

/// Unpacks packages into the cache instead of installing them, so that they can't collide with
/// what the machine has (a Docker engine's containerd, say).
pub(crate) fn unpack(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename =
        release.lines().find(|line| line.starts_with("VERSION_CODENAME=")).unwrap_or_default();
    let inputs: Vec<&str> = packages.iter().copied().chain([codename]).collect();
    cache::entry(&cache::Recipe { name, inputs: &inputs }, |folder| {
        let step = Step::begin(format!("Unpacking {} from Debian's packages", packages.join(", ")));
        let missing = |reason: String| {
            Error::Missing {
            tool: packages.join(", "),
            purpose: "(from Debian's packages)".to_owned(),
            reason,
            remedy: "On Debian or Ubuntu run 'apt-get update' as root and try again; elsewhere use --node simulated".to_owned(),
        }
        };
        let download = || {
            let mut apt = Command::new("apt-get");
            apt.args(["-o", "APT::Sandbox::User=root", "download"])
                .args(packages)
                .current_dir(folder);
            command::run_long("apt-get download", &mut apt, |_| ())
        };
        if command::find("apt-get").is_none() {
            return Err(missing("there is no apt-get".into()));
        }
        if let Err(first) = download() {
            // A new machine may have no package lists, or old ones.
            if !rustix::process::geteuid().is_root() {
                return Err(missing(first.to_string()));
            }
            update_lists()?;
            download().map_err(|error| missing(error.to_string()))?;
        }
        let listing = Error::io(format!("reading {}", folder.display()));
        for file in fs::read_dir(folder).map_err(listing)?.filter_map(Result::ok) {
            let archive = file.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                command::run("dpkg-deb", unpack.arg("-x").arg(&archive).arg(folder))?;
                fs::remove_file(&archive).map_err(Error::io("deleting an unpacked package"))?;
            }
        }
        step.done();
        Ok(())
    })
}

/// Installs system tools that must be in their usual place, where they are missing.
pub(crate) fn install_missing(tools: &[(&str, &str)], purpose: &str) -> Result<()> {
    let missing: Vec<_> = tools.iter().filter(|(tool, _)| command::find(tool).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    let step = Step::begin(format!("Installing {}", packages.join(", ")));
    let install = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt.args(["install", "-y", "-q", "--no-install-recommends"]).args(&packages);
        command::run_long("apt-get install", &mut apt, |_| ())
    };
    let installed = install().or_else(|_| update_lists().and_then(|()| install()));
    installed.map_err(|error| Error::Missing {
        tool: missing.iter().map(|(tool, _)| *tool).collect::<Vec<_>>().join(", "),
        purpose: purpose.to_owned(),
        reason: error.to_string(),
        remedy: format!("Install {} with this system's package manager", packages.join(", ")),
    })?;
    step.done();
    Ok(())
}

fn update_lists() -> Result<()> {
    let mut apt = Command::new("apt-get");
    command::run_long("apt-get update", apt.args(["update", "-q"]), |_| ()).map(drop)
}
