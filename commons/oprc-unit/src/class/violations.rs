//! Collects the violations of a specification; checks shared by functions and the data grid.

use std::collections::BTreeSet;

use oprc_models::RESERVED_ENV;

use super::{Violation, truncate_message};
use crate::{quantity, spec::Resources};

#[derive(Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    pub(super) fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { field: field.into(), message: truncate_message(&message.into()) });
    }

    pub(super) fn range(&mut self, field: &str, value: Option<i32>, min: i32, max: i32) {
        if let Some(value) = value
            && !(min..=max).contains(&value)
        {
            self.add(field, format!("{value} isn't between {min} and {max}"));
        }
    }

    /// Server-side apply rejects a list with duplicate keys.
    pub(super) fn duplicates<'a>(
        &mut self,
        field: impl Fn(usize) -> String,
        all: impl Iterator<Item = &'a String>,
    ) {
        let mut seen = BTreeSet::new();
        for (at, one) in all.enumerate() {
            if !seen.insert(one) {
                self.add(field(at), format!("{one:?} is given twice"));
            }
        }
    }

    pub(super) fn length(&mut self, field: &str, text: &str, max: usize) {
        if text.is_empty() || text.len() > max {
            self.add(field, format!("must have 1 to {max} characters"));
        }
    }
}

pub(super) fn check_variable(violations: &mut Violations, field: &str, name: &str) {
    let mut letters = name.bytes();
    let valid_first =
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    let valid = |letter: u8| letter.is_ascii_alphanumeric() || b"_.-".contains(&letter);
    if !valid_first || !letters.all(valid) {
        violations.add(
            field,
            format!("{name:?} isn't a valid variable name: use letters, digits, _, . and -"),
        );
    } else if RESERVED_ENV.contains(&name) {
        violations.add(field, format!("{name} is set by the platform"));
    }
}

/// Checks requests and limits, and that no request exceeds its limit.
pub(super) fn check_resources(
    violations: &mut Violations,
    field: &str,
    requests: Option<&Resources>,
    limits: Option<&Resources>,
) {
    let none = Resources::default();
    let (requests, limits) = (requests.unwrap_or(&none), limits.unwrap_or(&none));
    for (name, request, limit) in [
        ("cpu", &requests.cpu, &limits.cpu),
        ("memory", &requests.memory, &limits.memory),
        ("ephemeral_storage", &requests.ephemeral_storage, &limits.ephemeral_storage),
    ] {
        for (of, quantity) in [("requests", request), ("limits", limit)] {
            if let Some(reason) = quantity.as_deref().and_then(quantity::error) {
                violations.add(format!("{field}.{of}.{name}"), reason);
            }
        }
        if let (Some(request), Some(limit)) = (request, limit)
            && quantity::exceeds(request, limit)
        {
            let message = format!("{request} exceeds the limit of {limit}");
            violations.add(format!("{field}.requests.{name}"), message);
        }
    }
}
