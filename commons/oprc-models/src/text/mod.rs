//! From a text to packages and deployments, and back.

mod reader;
mod scalar;
mod tree;

use serde::Serialize;

pub(crate) use self::{
    reader::{Field, Read, Reader, scalar},
    scalar::Scalar,
    tree::{Kind, Node},
};
use crate::{
    check,
    fault::{Fault, Faults, Path},
    macros::no_word,
    model::{OClassDeployment, OPackage},
    names::{camel, nearest, shown},
};

/// How many bytes a text may have.
pub const MAX_TEXT: usize = 1 << 20;
/// How many levels deep a document may be.
pub const MAX_DEPTH: usize = 32;
/// How many documents a text may have.
pub const MAX_DOCUMENTS: usize = 64;
/// How much a text may say: 64 for each value and key, and its bytes, aliases counted as what they
/// stand for.
pub const MAX_WEIGHT: usize = 8 << 20;

/// A package or a deployment, and where each of its parts stands in its text.
#[derive(Clone, Debug)]
pub struct Document {
    /// What it says.
    pub body: Body,
    source: String,
    root: Node,
}

/// What a document says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind")]
pub enum Body {
    /// A package.
    #[serde(rename = "OPackage")]
    Package(Box<OPackage>),
    /// A deployment.
    #[serde(rename = "OClassDeployment")]
    Deployment(Box<OClassDeployment>),
}

impl Document {
    /// Everything that is wrong with what it says, each with its place.
    pub fn check(&self) -> Result<(), Faults> {
        let checked = match &self.body {
            Body::Package(package) => check::check(package),
            Body::Deployment(deployment) => check::check_deployment(deployment),
        };
        checked.map_err(|faults| self.locate(faults))
    }

    /// Gives faults that were found in what it says their places in its text.
    pub fn locate(&self, mut faults: Faults) -> Faults {
        for fault in &mut faults.all {
            if fault.place.is_none() {
                fault.place = Some(self.root.find(&fault.path).place(&self.source));
            }
        }
        sort(&mut faults.all);
        faults
    }
}

/// Reads a text of YAML or JSON with any number of packages and deployments, each of which may say
/// what it is (`kind: OPackage` or `kind: OClassDeployment`). `source` is what faults call it.
pub fn parse(text: &str, source: &str) -> Result<Vec<Document>, Faults> {
    let mut faults = Faults::default();
    let top = tree::Spot { line: 1, column: 1 };
    if text.len() > MAX_TEXT {
        let message = format!("{} bytes, and {MAX_TEXT} are allowed", text.len());
        let hint = Some("split the file".to_owned());
        faults.push(&Path::default(), Some(top.place(source)), message, hint);
        return Err(faults);
    }
    // A mark of the byte order says nothing.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (nodes, written) = tree::documents(text, source);
    let mut reader = Reader { source, faults: written };
    let documents: Vec<Option<Document>> =
        nodes.into_iter().map(|root| document(root, source, &mut reader)).collect();
    if documents.is_empty() && reader.faults.is_empty() {
        reader.hint(
            &Path::default(),
            top,
            "there is nothing in it",
            "a package has a name, a version and classes; a deployment a key, a package and classes",
        );
    }
    if !reader.faults.is_empty() {
        sort(&mut reader.faults.all);
        return Err(reader.faults);
    }
    Ok(documents.into_iter().flatten().collect())
}

fn sort(faults: &mut [Fault]) {
    let at = |fault: &Fault| fault.place.as_ref().map(|place| (place.line, place.column));
    faults.sort_by_key(at);
}

fn document(root: Node, source: &str, reader: &mut Reader<'_>) -> Option<Document> {
    let path = Path::default();
    let package = is_package(&root, reader)?;
    let content = root.without("kind");
    let body = if package {
        Body::Package(Box::new(OPackage::read(&content, &path, reader)?))
    } else {
        Body::Deployment(Box::new(OClassDeployment::read(&content, &path, reader)?))
    };
    Some(Document { body, source: source.to_owned(), root })
}

/// Whether a document is a package or a deployment, by what it says or what it has.
fn is_package(root: &Node, reader: &mut Reader<'_>) -> Option<bool> {
    let path = Path::default();
    let Kind::Map(entries) = &root.kind else {
        reader.expected("a package or a deployment", root, &path);
        return None;
    };
    if let Some((_, kind)) = root.get("kind") {
        let word = scalar(kind).map_or("", |(text, _)| text);
        return match word.to_ascii_lowercase().as_str() {
            "opackage" | "package" => Some(true),
            "oclassdeployment" | "deployment" => Some(false),
            _ => {
                let kinds = ["OPackage", "OClassDeployment"];
                reader.note(&path.field("kind"), kind.at, no_word(word, kinds));
                None
            }
        };
    }
    let score = |own: &[&str]| {
        entries.iter().filter(|(key, _)| own.contains(&camel(&key.text).as_str())).count()
    };
    let package = score(&["name", "metadata", "dependencies", "functions", "deployments"]);
    let deployment =
        score(&["key", "_key", "package", "class", "targetEnvs", "targetClusters", "members"]);
    if package == deployment {
        let message = "is neither clearly a package nor clearly a deployment";
        let hint = "say which by kind: OPackage or kind: OClassDeployment";
        reader.hint(&path, root.at, message, hint);
        return None;
    }
    Some(package > deployment)
}

/// Reads one of some words.
pub(crate) fn word<T>(
    node: &Node,
    path: &Path,
    reader: &mut Reader<'_>,
    parse: impl Fn(&str) -> Option<T>,
    words: &[&'static str],
) -> Option<T> {
    let Some((text, Scalar::Text)) = scalar(node) else {
        reader.expected(&format!("one of {}", words.join(", ")), node, path);
        return None;
    };
    let found = parse(text);
    if found.is_none() {
        let message = no_word(text, words.iter().copied());
        match nearest(text, words.iter().copied()) {
            Some(meant) => reader.hint(path, node.at, message, format!("did you mean {meant}?")),
            None => reader.note(path, node.at, message),
        }
    }
    found
}

/// Writes documents as YAML that [`parse`] reads as the same.
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

/// What is said of a text that isn't what it should be.
pub(crate) fn unreadable(node: &Node, path: &Path, reader: &mut Reader<'_>, why: &str) {
    let text = scalar(node).map_or("", |(text, _)| text);
    reader.note(path, node.at, format!("{} {why}", shown(text)));
}
