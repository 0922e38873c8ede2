//! Packages and deployments from end to end: read, checked, resolved, written.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod checks;
mod deployments;
mod examples;
mod inheritance;
mod proof;
mod reading;
mod round_trip;
mod sample;
mod updates;

pub(crate) use self::sample::{Chance, Sample};
use crate::{Body, Document, Faults, OPackage, parse};

/// A package that nothing is wrong with.
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

/// The same with something else in place of something.
fn with(old: &str, new: &str) -> String {
    assert!(PLAIN.contains(old), "{old}");
    PLAIN.replacen(old, new, 1)
}

fn read(text: &str) -> Document {
    let mut documents =
        parse(text, "test.yaml").unwrap_or_else(|faults| panic!("{faults}\n{text}"));
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn package(text: &str) -> OPackage {
    match read(text).body {
        Body::Package(package) => *package,
        Body::Deployment(_) => panic!("a deployment: {text}"),
    }
}

/// What is wrong with how a text is written, or with what it says.
fn faults(text: &str) -> Faults {
    match parse(text, "test.yaml") {
        Err(faults) => faults,
        Ok(documents) => {
            let wrong = documents.iter().find_map(|document| document.check().err());
            wrong.unwrap_or_else(|| panic!("nothing is wrong with\n{text}"))
        }
    }
}

/// That just one thing is wrong with a text: where, and what.
fn refused(text: &str, path: &str, line: usize, message: &str) {
    let faults = faults(text);
    let [fault] = faults.all.as_slice() else { panic!("{faults}\n{text}") };
    assert_eq!(fault.path, path, "{fault}");
    assert_eq!(fault.place.as_ref().map(|place| place.line), Some(line), "{fault}");
    assert!(fault.to_string().contains(message), "{fault}");
}
