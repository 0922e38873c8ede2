//! Validation of packages and deployments on their own. Checks that need dependencies are part of
//! [`resolve`](crate::resolve).

mod class;
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
    diagnostics::{FieldCursor, did_you_mean},
    limits::{self, Bounds},
    model::Quantity,
    names::{NameKind, closest_match, quote, split_reference},
    quantity::{exceeds, parse_quantity},
    rules::has_white_space,
};

/// Checks of single values; an absent value is valid.
impl FieldCursor<'_> {
    fn name<'t>(&self, kind: NameKind, text: impl Into<Option<&'t String>>) {
        if let Some(message) = text.into().and_then(|text| kind.violation(text)) {
            self.add(message);
        }
    }

    fn range(&self, value: Option<impl Into<i64>>, Bounds { min, max }: Bounds) {
        if let Some(value) = value.map(Into::into)
            && !(i64::from(min)..=i64::from(max)).contains(&value)
        {
            self.add(format!("{value} must be between {min} and {max}"));
        }
    }

    /// Rejects an empty text, too.
    fn length<'t>(&self, text: impl Into<Option<&'t String>>, max: usize) {
        if let Some(text) = text.into().filter(|it| it.is_empty() || it.len() > max) {
            self.add(format!("{} must have 1 to {max} characters", quote(text)));
        }
    }

    fn max_length(&self, text: &str, max: usize) {
        if text.len() > max {
            self.add(format!("must have at most {max} characters"));
        }
    }

    fn count(&self, count: usize, max: usize) {
        if count > max {
            self.add(format!("has {count} entries; at most {max} are allowed"));
        }
    }

    /// Checks the number of items, and returns them.
    fn limited<'i, T>(&self, max: usize, items: &'i [T]) -> impl Iterator<Item = (Self, &'i T)> {
        self.count(items.len(), max);
        self.items(items)
    }

    /// Checks the number of items and that their keys differ. `field` is the field of the key, or
    /// empty where an item is its own key.
    fn distinct<'i, T>(
        &self,
        max: usize,
        items: &'i [T],
        field: &str,
        key: impl Fn(&'i T) -> &'i str,
    ) {
        self.count(items.len(), max);
        let mut seen = BTreeSet::new();
        for (at, item) in self.items(items) {
            if !seen.insert(key(item)) {
                let at = if field.is_empty() { at } else { at.field(field) };
                at.add(duplicate(key(item)));
            }
        }
    }

    /// Returns the items after the checks of [`distinct`](Self::distinct).
    fn unique<'i, T>(
        &self,
        max: usize,
        items: &'i [T],
        field: &str,
        key: impl Fn(&'i T) -> &'i str,
    ) -> impl Iterator<Item = (Self, &'i T)> {
        self.distinct(max, items, field, key);
        self.items(items)
    }

    fn quantity(&self, quantity: Option<&Quantity>) {
        if let Some(Err(message)) = quantity.map(|it| parse_quantity(&it.0)) {
            self.add(message);
        }
    }

    /// Checks resource limits and that no request exceeds its limit. Each entry is the field and
    /// value of the limit, then of the request.
    fn resources(&self, resources: &[(&str, &Option<Quantity>, &str, &Option<Quantity>)]) {
        for (limit_field, limit, request_field, request) in resources {
            self.field(limit_field).quantity(limit.as_ref());
            self.field(request_field).quantity(request.as_ref());
            if let (Some(limit), Some(request)) = (limit, request)
                && exceeds(&request.0, &limit.0)
            {
                let message = format!("must not exceed the limit in {limit_field}");
                self.field(request_field).add(message);
            }
        }
    }

    /// The name of an existing Kubernetes object that a package refers to.
    fn object_name<'t>(&self, name: impl Into<Option<&'t String>>) {
        // Names of packages have the same form, but are shorter.
        let valid =
            |name: &&String| name.len() <= limits::NAME && NameKind::Package.has_valid_form(name);
        if let Some(name) = name.into().filter(|name| !valid(name)) {
            let rule = "1 to 253 lower-case letters, digits, hyphens and dots";
            let name = quote(name);
            self.add(format!("{name} is not a valid Kubernetes object name; use {rule}"));
        }
    }

    fn url(&self, url: &str, schemes: &[&str], max: usize) {
        let known_scheme = schemes.iter().any(|scheme| url.starts_with(scheme));
        if url.len() > max || has_white_space(url) || !known_scheme {
            self.add(format!(
                "{} is not a valid URL; it must start with {} and have at most {max} characters, \
                 without white space",
                quote(url),
                schemes.join(" or ")
            ));
        }
    }
}

fn duplicate(value: &str) -> String {
    format!("{} is listed twice", quote(value))
}

/// The names that references within a package may use.
struct Declarations<'a> {
    classes: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
    dependencies: BTreeSet<&'a str>,
}

impl Declarations<'_> {
    fn check_class(&self, at: &FieldCursor<'_>, reference: &str) {
        self.check_reference(at, "class", NameKind::Identifier, &self.classes, reference);
    }

    fn check_function(&self, at: &FieldCursor<'_>, reference: &str) {
        self.check_reference(at, "function", NameKind::Function, &self.functions, reference);
    }

    /// Checks a reference of the form `key` or `package.key`.
    fn check_reference(
        &self,
        at: &FieldCursor<'_>,
        what: &str,
        kind: NameKind,
        own: &BTreeSet<&str>,
        reference: &str,
    ) {
        let (package, key) = split_reference(reference);
        if let Some(message) = kind.violation(key) {
            return at.add(message);
        }
        match package {
            None if own.contains(key) => {}
            None => {
                let hint = closest_match(key, own.iter().copied()).map_or_else(
                    || format!("for a {what} of a dependency, use package.{what}"),
                    did_you_mean,
                );
                let message = format!("the {what} {} does not exist in this package", quote(key));
                at.add_with_hint(message, hint);
            }
            Some(package) if self.dependencies.contains(package) => {}
            Some(package) => {
                let message = format!("the package {} is not a dependency", quote(package));
                at.add_with_hint(message, "add it to dependencies");
            }
        }
    }
}
