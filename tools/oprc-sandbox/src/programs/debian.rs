//! Programs from Debian packages.

use std::{fs, path::PathBuf, process::Command};

use crate::{Error, Result, cache, command, files, progress::Step};

/// Unpacks packages into the cache without installing them, so they can't conflict with installed
/// ones, for example the containerd of Docker.
pub(crate) fn unpack(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename =
        release.lines().find(|line| line.starts_with("VERSION_CODENAME=")).unwrap_or_default();
    let inputs: Vec<&str> = packages.iter().copied().chain([codename]).collect();
    cache::entry(name, &inputs, |folder| {
        let step = Step::begin(format!("Unpacking {} from Debian packages", packages.join(", ")));
        let remedy = "On Debian or Ubuntu run 'apt-get update' as root and retry; on other systems use --node simulated";
        let missing = |reason: String| Error::Missing {
            tool: packages.join(", "),
            purpose: "(from Debian packages)".to_owned(),
            reason,
            remedy: remedy.to_owned(),
        };
        let download = || {
            let mut apt = Command::new("apt-get");
            apt.args(["-o", "APT::Sandbox::User=root", "download"]).args(packages);
            apt.current_dir(folder);
            command::run_long("apt-get download", &mut apt, |_| ())
        };
        if command::find("apt-get").is_none() {
            return Err(missing("apt-get is not installed".into()));
        }
        if let Err(first) = download() {
            // Package lists may be missing or outdated on a new machine.
            if !rustix::process::geteuid().is_root() {
                return Err(missing(first.to_string()));
            }
            update_lists()?;
            download().map_err(|error| missing(error.to_string()))?;
        }
        let is_package = |file: &PathBuf| file.extension().is_some_and(|it| it == "deb");
        for archive in files::below(folder)?.iter().filter(|file| is_package(file)) {
            let mut unpack = Command::new("dpkg-deb");
            command::run("dpkg-deb", unpack.arg("-x").arg(archive).arg(folder))?;
            fs::remove_file(archive).map_err(Error::io("deleting an unpacked package"))?;
        }
        step.done();
        Ok(())
    })
}

/// Installs the packages of missing system tools, given as (tool, package).
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
