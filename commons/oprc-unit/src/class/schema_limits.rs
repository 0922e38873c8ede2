//! Limits of the generated schema: ranges, lengths, patterns and numbers of entries. The API server
//! checks the same schema, so that a class that is admitted can also be stored.

use std::{collections::BTreeMap, sync::LazyLock};

use oprc_models::FieldPath;
use regex::Regex;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::spec::{CollectionSpec, UnitSpec};

pub(super) static UNIT: LazyLock<SchemaLimits> = LazyLock::new(SchemaLimits::of::<UnitSpec>);
pub(super) static COLLECTION: LazyLock<SchemaLimits> =
    LazyLock::new(SchemaLimits::of::<CollectionSpec>);

/// Limits of a value and of all that it contains.
#[derive(Debug)]
pub(super) struct SchemaLimits {
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    pattern: Option<Regex>,
    max_items: Option<usize>,
    max_properties: Option<usize>,
    items: Option<Box<Self>>,
    properties: BTreeMap<String, Self>,
    /// Limits of the values of a map.
    additional_properties: Option<Box<Self>>,
}

impl SchemaLimits {
    fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::openapi3().with(|it| it.inline_subschemas = true);
        Self::read(settings.into_generator().into_root_schema_for::<T>().as_value())
    }

    fn read(schema: &Value) -> Self {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| usize::try_from(schema.get(key)?.as_u64()?).ok();
        // `additionalProperties` may also be a boolean, which limits no value.
        let inner = |key: &str| {
            let schema = schema.get(key).filter(|it| it.is_object())?;
            Some(Box::new(Self::read(schema))).filter(|it| !it.is_unlimited())
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let pattern = schema.get("pattern").and_then(Value::as_str);
        Self {
            minimum: number("minimum"),
            maximum: number("maximum"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: pattern.and_then(|pattern| Regex::new(pattern).ok()),
            max_items: count("maxItems"),
            max_properties: count("maxProperties"),
            items: inner("items"),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Self::read(schema)))
                .filter(|(_, limits)| !limits.is_unlimited())
                .collect(),
            additional_properties: inner("additionalProperties"),
        }
    }

    /// Values without limits are left out, so that only the others are checked.
    fn is_unlimited(&self) -> bool {
        self.minimum.or(self.maximum).is_none()
            && self.min_length.or(self.max_length).is_none()
            && self.max_items.or(self.max_properties).is_none()
            && self.pattern.is_none()
            && self.items.is_none()
            && self.additional_properties.is_none()
            && self.properties.is_empty()
    }

    /// Reports each value that is out of its limits. The entries of a list or map that has too many
    /// are not checked.
    pub(super) fn check(
        &self,
        path: &FieldPath,
        value: &Value,
        report: &mut impl FnMut(&FieldPath, String),
    ) {
        let error = match value {
            Value::Null | Value::Bool(_) => None,
            Value::Number(number) => number.as_f64().and_then(|it| self.range_error(it)),
            Value::String(text) => self.text_error(text),
            Value::Array(items) => too_many(items.len(), self.max_items),
            Value::Object(fields) => too_many(fields.len(), self.max_properties),
        };
        if let Some(message) = error {
            return report(path, message);
        }
        match (value, &self.items, &self.additional_properties) {
            (Value::Array(items), Some(limits), _) => {
                for (at, item) in items.iter().enumerate() {
                    limits.check(&path.index(at), item, report);
                }
            }
            (Value::Object(fields), _, Some(limits)) => {
                for (key, value) in fields {
                    limits.check(&path.key(key), value, report);
                }
            }
            (Value::Object(fields), _, None) => {
                for (name, limits) in &self.properties {
                    if let Some(value) = fields.get(name) {
                        limits.check(&path.field(name), value, report);
                    }
                }
            }
            _ => {}
        }
    }

    fn range_error(&self, value: f64) -> Option<String> {
        match (self.minimum, self.maximum) {
            (Some(min), Some(max)) if !(min..=max).contains(&value) => {
                Some(format!("{value} isn't between {min} and {max}"))
            }
            (Some(min), None) if value < min => Some(format!("{value} is less than {min}")),
            (None, Some(max)) if value > max => Some(format!("{value} is greater than {max}")),
            _ => None,
        }
    }

    /// Lengths are in characters, as in the API server.
    fn text_error(&self, text: &str) -> Option<String> {
        let length = text.chars().count();
        match (self.min_length, self.max_length) {
            (Some(min), Some(max)) if !(min..=max).contains(&length) => {
                Some(format!("must have {min} to {max} characters"))
            }
            (None, Some(max)) if length > max => {
                Some(format!("must have at most {max} characters"))
            }
            (Some(min), None) if length < min => {
                Some(format!("must have at least {min} characters"))
            }
            _ => {
                let pattern = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text))?;
                Some(format!("{text:?} doesn't match {pattern}"))
            }
        }
    }
}

fn too_many(count: usize, max: Option<usize>) -> Option<String> {
    let max = max.filter(|max| count > *max)?;
    Some(format!("has {count} entries; at most {max} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keywords that `SchemaLimits` reads, and those that limit nothing beyond what types do.
    const KEYWORDS: [&str; 16] = [
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "maxProperties",
        "items",
        "properties",
        "additionalProperties",
        "type",
        "format",
        "nullable",
        "default",
        "description",
        "required",
    ];

    fn assert_known(schema: &Value) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            match keyword.as_str() {
                "properties" => value.as_object().unwrap().values().for_each(assert_known),
                "items" | "additionalProperties" => assert_known(value),
                "pattern" => drop(Regex::new(value.as_str().unwrap()).unwrap()),
                "oneOf" | "anyOf" => value.as_array().unwrap().iter().for_each(assert_enum),
                "enum" | "const" | "title" => {}
                other => assert!(
                    KEYWORDS.contains(&other) || other.starts_with("x-kubernetes-"),
                    "{other} isn't checked"
                ),
            }
        }
    }

    /// An enum, or null. `SchemaLimits` doesn't read limits in alternatives.
    fn assert_enum(schema: &Value) {
        for (keyword, value) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "oneOf" | "anyOf" => value.as_array().unwrap().iter().for_each(assert_enum),
                "const" | "description" | "enum" | "nullable" | "type" => {}
                other => panic!("{other} isn't checked: {schema}"),
            }
        }
    }

    #[test]
    fn every_limit_of_the_schema_is_read() {
        let settings = SchemaSettings::openapi3().with(|it| it.inline_subschemas = true);
        let mut generator = settings.into_generator();
        for schema in
            [generator.root_schema_for::<UnitSpec>(), generator.root_schema_for::<CollectionSpec>()]
        {
            let mut schema = schema.to_value();
            schema.as_object_mut().unwrap().remove("$schema");
            assert_known(&schema);
        }
    }
}
