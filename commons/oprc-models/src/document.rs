//! Reads packages and deployments from YAML or JSON, and writes them as YAML.

use serde::Serialize;

use crate::{
    check,
    diagnostics::{Diagnostic, Diagnostics, Path},
    model::{OClassDeployment, OPackage},
    names::{to_camel_case, unknown_value},
    yaml::{FromNode as _, Kind, MAX_FILE_SIZE, Node, Position, Reader, documents, scalar},
};

/// A package or a deployment, with the source position of each field.
#[derive(Clone, Debug)]
pub struct Document {
    pub body: Body,
    source: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind")]
pub enum Body {
    #[serde(rename = "OPackage")]
    Package(Box<OPackage>),
    #[serde(rename = "OClassDeployment")]
    Deployment(Box<OClassDeployment>),
}

impl Document {
    /// Validates the document on its own; diagnostics carry source locations.
    pub fn check(&self) -> Result<(), Diagnostics> {
        let checked = match &self.body {
            Body::Package(package) => check::check(package),
            Body::Deployment(deployment) => check::check_deployment(deployment),
        };
        checked.map_err(|diagnostics| self.locate(diagnostics))
    }

    /// Adds source locations to diagnostics of this document that have none.
    pub fn locate(&self, mut diagnostics: Diagnostics) -> Diagnostics {
        for diagnostic in &mut diagnostics.all {
            if diagnostic.location.is_none() {
                diagnostic.location = Some(self.root.find(&diagnostic.path).location(&self.source));
            }
        }
        sort(&mut diagnostics.all);
        diagnostics
    }
}

/// Reads packages and deployments from YAML or JSON. `kind: OPackage` or `kind: OClassDeployment` is
/// optional where the fields of a document make it clear. Diagnostics name the file `source`.
pub fn parse(text: &str, source: &str) -> Result<Vec<Document>, Diagnostics> {
    let mut diagnostics = Diagnostics::default();
    let top = Position { line: 1, column: 1 };
    if text.len() > MAX_FILE_SIZE {
        let message =
            format!("the file has {} bytes; at most {MAX_FILE_SIZE} are allowed", text.len());
        let hint = Some("split the file".to_owned());
        diagnostics.add_at(&Path::default(), Some(top.location(source)), message, hint);
        return Err(diagnostics);
    }
    // Skip the byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (nodes, diagnostics) = documents(text, source);
    let mut reader = Reader { source, diagnostics };
    let documents: Vec<Option<Document>> =
        nodes.into_iter().map(|root| document(root, source, &mut reader)).collect();
    if documents.is_empty() && reader.diagnostics.is_empty() {
        reader.add_with_hint(
            &Path::default(),
            top,
            "the file is empty",
            "a package needs name, version and classes; a deployment needs key, package and classes",
        );
    }
    if !reader.diagnostics.is_empty() {
        sort(&mut reader.diagnostics.all);
        return Err(reader.diagnostics);
    }
    Ok(documents.into_iter().flatten().collect())
}

fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics
        .sort_by_key(|diagnostic| diagnostic.location.as_ref().map(|at| (at.line, at.column)));
}

fn document(root: Node, source: &str, reader: &mut Reader<'_>) -> Option<Document> {
    let path = Path::default();
    let package = is_package(&root, reader)?;
    let content = root.without_key("kind");
    let body = if package {
        Body::Package(Box::new(OPackage::from_node(&content, &path, reader)?))
    } else {
        Body::Deployment(Box::new(OClassDeployment::from_node(&content, &path, reader)?))
    };
    Some(Document { body, source: source.to_owned(), root })
}

/// Whether a document is a package or a deployment, by its `kind` or else by its fields.
fn is_package(root: &Node, reader: &mut Reader<'_>) -> Option<bool> {
    let path = Path::default();
    let Kind::Map(entries) = &root.kind else {
        return reader.type_mismatch("a package or a deployment", root, &path);
    };
    if let Some((_, kind)) = root.get("kind") {
        let given = scalar(kind).map_or("", |(text, _)| text);
        return match given.to_ascii_lowercase().as_str() {
            "opackage" | "package" => Some(true),
            "oclassdeployment" | "deployment" => Some(false),
            _ => {
                let kinds = ["OPackage", "OClassDeployment"];
                reader.add(&path.field("kind"), kind.position, unknown_value(given, kinds));
                None
            }
        };
    }
    let score = |own: &[&str]| {
        entries.iter().filter(|(key, _)| own.contains(&to_camel_case(&key.text).as_str())).count()
    };
    let package = score(&["name", "metadata", "dependencies", "functions", "deployments"]);
    let deployment =
        score(&["key", "_key", "package", "class", "targetEnvs", "targetClusters", "members"]);
    if package == deployment {
        let message = "cannot tell whether this is a package or a deployment";
        let hint = "add kind: OPackage or kind: OClassDeployment";
        reader.add_with_hint(&path, root.position, message, hint);
        return None;
    }
    Some(package > deployment)
}

/// Writes documents as YAML; [`parse`] returns equal documents.
pub fn to_yaml<'a>(
    bodies: impl IntoIterator<Item = &'a Body>,
) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for body in bodies {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(&serde_saphyr::to_string(body)?);
    }
    Ok(text)
}
