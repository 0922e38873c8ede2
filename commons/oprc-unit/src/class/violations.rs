//! Collects the violations of a specification; checks shared by functions and the data grid.

use std::collections::BTreeSet;

use oprc_models::{FieldPath, exceeds, parse_quantity, rules};
use serde::Serialize;

use super::{Violation, schema_limits::SchemaLimits, truncate_message};
use crate::spec::{EnvVar, Resources};

#[derive(Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    pub(super) fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Violation { field: field.into(), message: truncate_message(&message.into()) });
    }

    pub(super) fn add_error<T>(&mut self, field: &str, checked: Result<T, String>) {
        if let Err(message) = checked {
            self.add(field, message);
        }
    }

    /// Checks the limits of the schema. Fields that a rule has already reported are left out: its
    /// message says more.
    pub(super) fn check_schema(
        &mut self,
        limits: &SchemaLimits,
        path: &FieldPath,
        value: &impl Serialize,
    ) {
        let reported: BTreeSet<String> = self.0.iter().map(|it| it.field.clone()).collect();
        // A unit always has a JSON form.
        let value = serde_json::to_value(value).unwrap_or_default();
        limits.check(path, &value, &mut |path, message| {
            let field = path.to_string();
            if !reported.contains(&field) {
                self.add(field, message);
            }
        });
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

    pub(super) fn check_env_name(&mut self, field: &str, name: &str, reserved: fn(&str) -> bool) {
        if reserved(name) {
            self.add(field, format!("{name} is set by the platform"));
        } else if !rules::is_env_name(name) {
            let rule = "use letters, digits, _, . and -";
            self.add(field, format!("{name:?} isn't a valid variable name: {rule}"));
        }
    }

    /// Checks the names and sources of variables in the list at `field`.
    pub(super) fn check_env(&mut self, field: &str, env: &[EnvVar], reserved: fn(&str) -> bool) {
        self.duplicates(|at| format!("{field}[{at}].name"), env.iter().map(|it| &it.name));
        for (at, variable) in env.iter().enumerate() {
            self.check_env_name(&format!("{field}[{at}].name"), &variable.name, reserved);
            let EnvVar { value, secret, config_map, .. } = variable;
            if count([value.is_some(), secret.is_some(), config_map.is_some()]) > 1 {
                let message = "at most one of value, secret and config_map may be set";
                self.add(format!("{field}[{at}]"), message);
            }
        }
    }

    /// Checks requests and limits, and that no request exceeds its limit.
    pub(super) fn check_resources(
        &mut self,
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
                if let Some(quantity) = quantity {
                    self.add_error(&format!("{field}.{of}.{name}"), parse_quantity(quantity));
                }
            }
            if let (Some(request), Some(limit)) = (request, limit)
                && exceeds(request, limit)
            {
                let message = format!("{request} exceeds the limit of {limit}");
                self.add(format!("{field}.requests.{name}"), message);
            }
        }
    }
}

/// How many of the options are set.
pub(super) fn count<const N: usize>(options: [bool; N]) -> usize {
    options.into_iter().filter(|&set| set).count()
}
