//! Package files, parsed and validated before anything is sent.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Result;
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
        let file = File::open(path).map_err(|error| invalid(error.to_string()))?;
        file.take(limit).read_to_string(&mut text)
    };
    done.map_err(|error| invalid(error.to_string()))?;
    if text.len() > MAX_FILE_SIZE {
        return Err(invalid(format!("exceeds the limit of {MAX_FILE_SIZE} bytes; split it")).into());
    }
    Ok(text)
}

/// Parses and validates; the error lists all problems.
pub(crate) fn documents(text: &str, source: &str) -> Result<Vec<Document>, CliError> {
    let invalid =
        |diagnostics: oprc_models::Diagnostics| CliError::InvalidInput(diagnostics.to_string());
    let documents = parse(text, source).map_err(invalid)?;
    if documents.is_empty() {
        return Err(CliError::InvalidInput(format!("{source}: the file has no documents")));
    }
    let mut problems = Vec::new();
    for document in &documents {
        problems.extend(document.check().err().map(|diagnostics| diagnostics.to_string()));
    }
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
    let mut all = Vec::new();
    for document in documents {
        match &document.body {
            Body::Package(package) => all.extend(of_package(package)),
            Body::Deployment(deployment) => all.push((**deployment).clone()),
        }
    }
    all
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

#[cfg(test)]
mod tests {
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
    fn errors_name_missing_files() {
        let error = read(Path::new("/none/such.yaml")).unwrap_err().to_string();
        assert!(error.contains("/none/such.yaml"), "{error}");
    }
}
