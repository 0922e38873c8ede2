//! End-to-end tests: read, check, resolve, write.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod deployments;
mod examples;
mod inheritance;
mod packages;
mod proof;
mod round_trip;
mod sample;
mod updates;
mod yaml;

pub(crate) use self::sample::{Sample, TestRng};
use crate::{Body, Diagnostics, Document, OPackage, parse};

/// A valid package.
const PLAIN: &str = "\
name: shop
version: 1.0.0
functions:
  - key: buy
    provision:
      deployment:
        image: shop:1
classes:
  - key: Cart
    functions:
      - name: buy
        function: buy
";

/// [`PLAIN`] with one replacement.
fn with(old: &str, new: &str) -> String {
    assert!(PLAIN.contains(old), "{old}");
    PLAIN.replacen(old, new, 1)
}

fn read(text: &str) -> Document {
    let mut documents =
        parse(text, "test.yaml").unwrap_or_else(|diagnostics| panic!("{diagnostics}\n{text}"));
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn package(text: &str) -> OPackage {
    match read(text).body {
        Body::Package(package) => *package,
        Body::Deployment(_) => panic!("a deployment: {text}"),
    }
}

/// The problems found while parsing or checking.
fn diagnostics(text: &str) -> Diagnostics {
    match parse(text, "test.yaml") {
        Err(diagnostics) => diagnostics,
        Ok(documents) => {
            let wrong = documents.iter().find_map(|document| document.check().err());
            wrong.unwrap_or_else(|| panic!("valid:\n{text}"))
        }
    }
}

/// Asserts that a text has exactly one problem, at a path and line.
fn assert_rejected(text: &str, path: &str, line: usize, message: &str) {
    let diagnostics = diagnostics(text);
    let [diagnostic] = diagnostics.all.as_slice() else { panic!("{diagnostics}\n{text}") };
    assert_eq!(diagnostic.path, path, "{diagnostic}");
    assert_eq!(diagnostic.location.as_ref().map(|at| at.line), Some(line), "{diagnostic}");
    assert!(diagnostic.to_string().contains(message), "{diagnostic}");
}
