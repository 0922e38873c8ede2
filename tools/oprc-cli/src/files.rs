//! Files: packages, parsed and validated before anything is sent, and private files.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use oprc_models::{Body, Document, MAX_FILE_SIZE, OClassDeployment, OPackage, VersionRange, parse};

use crate::error::CliError;

/// Reads standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<String> {
    let invalid = |why: String| CliError::InvalidInput(format!("{}: {why}", path.display()));
    let mut text = String::new();
    // One byte more than allowed, to detect larger files.
    let limit = u64::try_from(MAX_FILE_SIZE).unwrap_or(u64::MAX).saturating_add(1);
    let done = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_string(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text))
    };
    done.map_err(|error| invalid(error.to_string()))?;
    if text.len() > MAX_FILE_SIZE {
        bail!(invalid(format!("exceeds the limit of {MAX_FILE_SIZE} bytes; split it")));
    }
    Ok(text)
}

/// Parses and validates; the error lists all problems.
pub(crate) fn documents(text: &str, source: &str) -> Result<Vec<Document>, CliError> {
    let documents =
        parse(text, source).map_err(|problems| CliError::InvalidInput(problems.to_string()))?;
    if documents.is_empty() {
        return Err(CliError::InvalidInput(format!("{source}: the file has no documents")));
    }
    let problems = documents.iter().filter_map(|document| document.check().err());
    let problems: Vec<_> = problems.map(|problems| problems.to_string()).collect();
    if problems.is_empty() {
        Ok(documents)
    } else {
        Err(CliError::InvalidInput(problems.join("\n")))
    }
}

pub(crate) fn load(path: &Path) -> Result<Vec<Document>> {
    Ok(documents(&read(path)?, &path.display().to_string())?)
}

pub(crate) fn packages(documents: &[Document]) -> impl Iterator<Item = &OPackage> {
    documents.iter().filter_map(|document| match &document.body {
        Body::Package(package) => Some(&**package),
        Body::Deployment(_) => None,
    })
}

/// Standalone deployments and those of packages.
pub(crate) fn deployments(documents: &[Document]) -> Vec<OClassDeployment> {
    let all = documents.iter().flat_map(|document| match &document.body {
        Body::Package(package) => of_package(package),
        Body::Deployment(deployment) => vec![(**deployment).clone()],
    });
    all.collect()
}

/// The package's deployments, with package name and version filled in.
pub(crate) fn of_package(package: &OPackage) -> Vec<OClassDeployment> {
    let mut all = package.deployments.clone();
    for deployment in &mut all {
        let own = deployment.package.get_or_insert_with(|| package.name.clone()) == &package.name;
        if own && deployment.version.is_none() {
            deployment.version = Some(VersionRange::exact(&package.version));
        }
    }
    all
}

/// Replaces a file atomically, and creates its folder; readable by its owner only.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let write = || -> Result<()> {
        fs::create_dir_all(folder)?;
        // Temporary files are created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const HELLO: &str = include_str!("../../../examples/packages/hello.yaml");

    #[test]
    fn deployments_get_package_and_version() {
        let documents = documents(HELLO, "hello.yaml").unwrap();
        assert_eq!(packages(&documents).count(), 1);
        let all = deployments(&documents);
        assert_eq!(all[0].package.as_deref(), Some("hello"));
        assert_eq!(all[0].version.as_ref().map(VersionRange::as_str), Some("0.1.0"));
    }

    #[test]
    fn errors_name_file_and_line() {
        let text = HELLO.replace("access: PUBLIC", "acess: PUBLIC");
        let error = documents(&text, "hello.yaml").unwrap_err().to_string();
        assert!(error.starts_with("hello.yaml:"), "{error}");
        assert!(error.contains("did you mean"), "{error}");
        assert!(documents("", "a").is_err());
    }

    #[test]
    fn private_files_are_readable_by_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/token");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn errors_name_missing_files() {
        let error = read(Path::new("/none/such.yaml")).unwrap_err().to_string();
        assert!(error.contains("/none/such.yaml"), "{error}");
    }
}
