//! Package files, read and checked before anything is sent.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use anyhow::Result;
use oprc_models::{Body, Document, MAX_FILE_SIZE, OClassDeployment, OPackage, VersionRange, parse};

use crate::failure::Failure;

/// Reads a file, or standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<String> {
    let wrong = |why: String| Failure::Wrong(format!("{}: {why}", path.display()));
    let mut text = String::new();
    // One more than may be, so that more is noticed.
    let most = u64::try_from(MAX_FILE_SIZE).unwrap_or(u64::MAX).saturating_add(1);
    let done = if path == Path::new("-") {
        io::stdin().lock().take(most).read_to_string(&mut text)
    } else {
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        file.take(most).read_to_string(&mut text)
    };
    done.map_err(|error| wrong(error.to_string()))?;
    if text.len() > MAX_FILE_SIZE {
        return Err(wrong(format!("is larger than {MAX_FILE_SIZE} bytes")).into());
    }
    Ok(text)
}

/// What is in a file, where nothing is wrong with it.
pub(crate) fn documents(text: &str, source: &str) -> Result<Vec<Document>, Failure> {
    let wrong = |faults: oprc_models::Diagnostics| Failure::Wrong(faults.to_string());
    let documents = parse(text, source).map_err(wrong)?;
    if documents.is_empty() {
        return Err(Failure::Wrong(format!("{source}: there is nothing in it")));
    }
    let mut told = Vec::new();
    for document in &documents {
        told.extend(document.check().err().map(|faults| faults.to_string()));
    }
    if told.is_empty() { Ok(documents) } else { Err(Failure::Wrong(told.join("\n"))) }
}

/// Reads a file and what is in it.
pub(crate) fn load(path: &Path) -> Result<Vec<Document>> {
    Ok(documents(&read(path)?, &path.display().to_string())?)
}

/// The packages of a file.
pub(crate) fn packages(documents: &[Document]) -> impl Iterator<Item = &OPackage> {
    documents.iter().filter_map(|document| match &document.body {
        Body::Package(package) => Some(&**package),
        Body::Deployment(_) => None,
    })
}

/// The deployments of a file: those that stand alone, and those of its packages.
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

/// The deployments that were published with a package, each saying which one that is.
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
    fn deployments_say_which_package_they_are_of() {
        let documents = documents(HELLO, "hello.yaml").unwrap();
        assert_eq!(packages(&documents).count(), 1);
        let all = deployments(&documents);
        assert_eq!(all[0].package.as_deref(), Some("hello"));
        assert_eq!(all[0].version.as_ref().map(VersionRange::as_str), Some("0.1.0"));
    }

    #[test]
    fn faults_name_file_and_line() {
        let text = HELLO.replace("access: PUBLIC", "acess: PUBLIC");
        let told = documents(&text, "hello.yaml").unwrap_err().to_string();
        assert!(told.starts_with("hello.yaml:"), "{told}");
        assert!(told.contains("did you mean"), "{told}");
        assert!(documents("", "a").is_err());
    }

    #[test]
    fn files_that_are_not_there_are_named() {
        let told = read(Path::new("/none/such.yaml")).unwrap_err().to_string();
        assert!(told.contains("/none/such.yaml"), "{told}");
    }
}
