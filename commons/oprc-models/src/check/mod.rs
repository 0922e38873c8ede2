//! What must hold of packages and deployments, by themselves. What can only be said once
//! dependencies are there is said by [`resolve`](crate::resolve).

mod class;
mod deployment;
mod flow;
mod function;
mod package;
mod provision;
mod requirements;
mod update;

use std::collections::BTreeSet;

pub(crate) use self::{deployment::inline as check_inline, package::MAX_CLASSES};
pub use self::{
    deployment::{check_against, check_deployment},
    flow::Ref,
    package::check,
    update::check_update,
};
use crate::{
    fault::{Faults, Path},
    model::Amount,
    names::{Name, nearest, shown, split},
    quantity,
};

/// Milliseconds in a day: no call takes longer.
const DAY_MS: i32 = 86_400_000;

fn name(faults: &mut Faults, path: &Path, kind: Name, text: &str) {
    if let Some(fault) = kind.fault(text) {
        faults.add(path, fault);
    }
}

fn range(faults: &mut Faults, path: &Path, value: Option<i32>, least: i32, most: i32) {
    if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
        faults.add(path, format!("{value} isn't between {least} and {most}"));
    }
}

fn length(faults: &mut Faults, path: &Path, text: &str, most: usize) {
    if text.is_empty() || text.len() > most {
        faults.add(path, format!("{} must have 1 to {most} characters", shown(text)));
    }
}

fn many<T>(faults: &mut Faults, path: &Path, all: &[T], most: usize) {
    if all.len() > most {
        faults.add(path, format!("there are {}, and {most} are allowed", all.len()));
    }
}

/// Refuses what comes again.
fn unique<'a>(
    faults: &mut Faults,
    path: &Path,
    field: &str,
    all: impl IntoIterator<Item = &'a str>,
) {
    let mut seen = BTreeSet::new();
    for (at, text) in all.into_iter().enumerate() {
        if !seen.insert(text) {
            let place = path.index(at);
            let place = if field.is_empty() { place } else { place.field(field) };
            faults.add(&place, format!("{} is given twice", shown(text)));
        }
    }
}

fn amount(faults: &mut Faults, path: &Path, amount: Option<&Amount>) -> Option<f64> {
    match quantity::worth(&amount?.0) {
        Ok(worth) => Some(worth),
        Err(reason) => {
            faults.add(path, reason);
            None
        }
    }
}

/// The name of an object of Kubernetes that isn't ours.
fn object_name(faults: &mut Faults, path: &Path, text: &str) {
    let part = |part: &str| {
        let ends = |letter: Option<&u8>| letter.is_some_and(u8::is_ascii_alphanumeric);
        ends(part.as_bytes().first()) && ends(part.as_bytes().last())
    };
    let fits = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
    if text.is_empty() || text.len() > 253 || !text.bytes().all(fits) || !text.split('.').all(part)
    {
        let allowed = "1 to 253 small letters, digits, dashes and dots";
        faults.add(path, format!("{} is no name of an object: {allowed}", shown(text)));
    }
}

/// Whether something is there that a reference, `key` or `package.key`, names.
fn reference(
    faults: &mut Faults,
    path: &Path,
    what: &str,
    kind: Name,
    text: &str,
    own: &BTreeSet<&str>,
    dependencies: &BTreeSet<&str>,
) {
    let (package, key) = split(text);
    if let Some(fault) = kind.fault(key) {
        return faults.add(path, fault);
    }
    match package {
        None if own.contains(key) => {}
        None => {
            let message = format!("there is no {what} {} in this package", shown(key));
            match nearest(key, own.iter().copied()) {
                Some(meant) => faults.hint(path, message, format!("did you mean {meant}?")),
                None => faults.hint(
                    path,
                    message,
                    "what a dependency has is written with its package before it, and a dot between",
                ),
            }
        }
        Some(package) if dependencies.contains(package) => {}
        Some(package) => {
            let message = format!("{} isn't among the dependencies", shown(package));
            faults.hint(path, message, "add it to dependencies");
        }
    }
}
