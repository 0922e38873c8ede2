//! Validation of packages and deployments on their own. Checks that need dependencies are part of
//! [`resolve`](crate::resolve).

mod class;
mod declarations;
mod deployment;
mod flow;
mod function;
mod grid;
mod package;
mod placement;
mod provision;
mod requirements;
mod update;

use std::collections::BTreeSet;

pub use self::{deployment::check_deployment, flow::StepRef, package::check, update::check_update};
pub(crate) use self::{
    deployment::{add_disabled_class, add_unknown_class, class_fields},
    package::MAX_CLASSES,
};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::Quantity,
    names::{NameKind, closest_match, quote, split_reference},
    quantity,
};

/// Upper bound of all call timeouts: one day.
const DAY_MS: i32 = 86_400_000;

fn check_name(diagnostics: &mut Diagnostics, path: &Path, kind: NameKind, text: &str) {
    if let Some(message) = kind.violation(text) {
        diagnostics.add(path, message);
    }
}

fn check_range(
    diagnostics: &mut Diagnostics,
    path: &Path,
    value: Option<impl Into<i64>>,
    min: i32,
    max: i32,
) {
    if let Some(value) = value.map(Into::into)
        && !(i64::from(min)..=i64::from(max)).contains(&value)
    {
        diagnostics.add(path, format!("{value} must be between {min} and {max}"));
    }
}

/// Rejects an empty text, too.
fn check_length(diagnostics: &mut Diagnostics, path: &Path, text: &str, max: usize) {
    if text.is_empty() || text.len() > max {
        diagnostics.add(path, format!("{} must have 1 to {max} characters", quote(text)));
    }
}

fn check_max_length(diagnostics: &mut Diagnostics, path: &Path, text: &str, max: usize) {
    if text.len() > max {
        diagnostics.add(path, format!("must have at most {max} characters"));
    }
}

fn check_count(diagnostics: &mut Diagnostics, path: &Path, count: usize, max: usize) {
    if count > max {
        diagnostics.add(path, format!("has {count} entries; at most {max} are allowed"));
    }
}

/// `field` is the field of each item that must be unique, or empty for the item itself.
fn check_unique<'a>(
    diagnostics: &mut Diagnostics,
    path: &Path,
    field: &str,
    values: impl IntoIterator<Item = &'a str>,
) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.into_iter().enumerate() {
        if !seen.insert(value) {
            let item = path.index(index);
            let path = if field.is_empty() { item } else { item.field(field) };
            diagnostics.add(&path, duplicate(value));
        }
    }
}

fn duplicate(value: &str) -> String {
    format!("{} is listed twice", quote(value))
}

fn check_quantity(
    diagnostics: &mut Diagnostics,
    path: &Path,
    quantity: Option<&Quantity>,
) -> Option<f64> {
    match quantity::parse(&quantity?.0) {
        Ok(value) => Some(value),
        Err(message) => {
            diagnostics.add(path, message);
            None
        }
    }
}

/// Checks resource limits and that no request exceeds its limit. Each entry is the field and value
/// of the limit, then of the request.
fn check_resources<'a>(
    diagnostics: &mut Diagnostics,
    path: &Path,
    resources: impl IntoIterator<Item = (&'a str, &'a Option<Quantity>, &'a str, &'a Option<Quantity>)>,
) {
    for (limit_field, limit, request_field, request) in resources {
        let limit = check_quantity(diagnostics, &path.field(limit_field), limit.as_ref());
        let request = check_quantity(diagnostics, &path.field(request_field), request.as_ref());
        if let (Some(limit), Some(request)) = (limit, request)
            && request > limit
        {
            let message = format!("must not exceed the limit in {limit_field}");
            diagnostics.add(&path.field(request_field), message);
        }
    }
}

/// The name of an existing Kubernetes object that a package refers to.
fn check_object_name(diagnostics: &mut Diagnostics, path: &Path, text: &str) {
    let valid_label = |label: &str| {
        let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        end(label.as_bytes().first()) && end(label.as_bytes().last())
    };
    let allowed = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
    if text.is_empty()
        || text.len() > 253
        || !text.bytes().all(allowed)
        || !text.split('.').all(valid_label)
    {
        let rule = "1 to 253 lower-case letters, digits, hyphens and dots";
        let message = format!("{} is not a valid Kubernetes object name; use {rule}", quote(text));
        diagnostics.add(path, message);
    }
}

/// Checks a reference of the form `key` or `package.key`.
fn check_reference(
    diagnostics: &mut Diagnostics,
    path: &Path,
    (what, kind): (&str, NameKind),
    reference: &str,
    own: &BTreeSet<&str>,
    dependencies: &BTreeSet<&str>,
) {
    let (package, key) = split_reference(reference);
    if let Some(message) = kind.violation(key) {
        return diagnostics.add(path, message);
    }
    match package {
        None if own.contains(key) => {}
        None => {
            let message = format!("the {what} {} does not exist in this package", quote(key));
            let hint = match closest_match(key, own.iter().copied()) {
                Some(name) => format!("did you mean {name}?"),
                None => format!("for a {what} of a dependency, use package.{what}"),
            };
            diagnostics.add_with_hint(path, message, hint);
        }
        Some(package) if dependencies.contains(package) => {}
        Some(package) => {
            let message = format!("the package {} is not a dependency", quote(package));
            diagnostics.add_with_hint(path, message, "add it to dependencies");
        }
    }
}

fn check_url(diagnostics: &mut Diagnostics, path: &Path, url: &str, schemes: &[&str], max: usize) {
    let has_space = url.chars().any(|it| it.is_whitespace() || it.is_control());
    if url.len() > max || has_space || !schemes.iter().any(|scheme| url.starts_with(scheme)) {
        let message = format!(
            "{} is not a valid URL; it must start with {} and have at most {max} characters, \
             without white space",
            quote(url),
            schemes.join(" or ")
        );
        diagnostics.add(path, message);
    }
}
