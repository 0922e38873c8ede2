//! Collects the violations of a specification; checks shared by functions and the data grid.

use std::collections::BTreeSet;

use oprc_models::RESERVED_ENV;

use super::{Violation, truncate_message};
use crate::{quantity, spec::Resources};

#[derive(Default)]
pub(super) struct Faults(pub(super) Vec<Violation>);

impl Faults {
    pub(super) fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { field: field.into(), message: truncate_message(&message.into()) });
    }

    pub(super) fn range(&mut self, field: &str, value: Option<i32>, least: i32, most: i32) {
        if let Some(value) = value
            && !(least..=most).contains(&value)
        {
            self.add(field, format!("{value} isn't between {least} and {most}"));
        }
    }

    /// Server-side apply has no answer to a list in which an element is there twice.
    pub(super) fn twice<'a>(
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

    pub(super) fn length(&mut self, field: &str, text: &str, most: usize) {
        if text.is_empty() || text.len() > most {
            self.add(field, format!("must have 1 to {most} characters"));
        }
    }
}

pub(super) fn check_variable(faults: &mut Faults, field: &str, name: &str) {
    let mut letters = name.bytes();
    let begins = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    let goes_on = |letter: u8| letter.is_ascii_alphanumeric() || b"_.-".contains(&letter);
    if !begins || !letters.all(goes_on) {
        faults.add(field, format!("{name:?} is no name of a variable: letters, digits, _ . and -"));
    } else if RESERVED_ENV.contains(&name) {
        faults.add(field, format!("{name} is set by the platform"));
    }
}

/// Checks requests and limits, and that no request exceeds its limit.
pub(super) fn check_resources(
    faults: &mut Faults,
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
        for (of, amount) in [("requests", request), ("limits", limit)] {
            if let Some(reason) = amount.as_deref().and_then(quantity::fault) {
                faults.add(format!("{field}.{of}.{name}"), reason);
            }
        }
        if let (Some(request), Some(limit)) = (request, limit)
            && quantity::exceeds(request, limit)
        {
            let message = format!("{request} is more than the limit, {limit}");
            faults.add(format!("{field}.requests.{name}"), message);
        }
    }
}
