//! Units and platforms on the wire. Messages and the types of `oprc-unit` have the same fields, which
//! a test compares with the schema; therefore serde converts them, only here.

use oprc_unit::{Platform, UnitSpec, Violation};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::deployment::{platform::Platform as WirePlatform, unit::ClassSpec};

/// Encodes a unit. `None` for a class with `function` instead of `functions`, for which messages have
/// no field.
pub fn to_wire(spec: &UnitSpec) -> Option<ClassSpec> {
    let mut value = serde_json::to_value(spec).ok()?;
    name_collections(&mut value);
    serde_json::from_value(value).ok()
}

/// Decodes a unit, or reports the first invalid field.
pub fn from_wire(message: &ClassSpec) -> Result<UnitSpec, Violation> {
    finite(message)?;
    convert(message).map_err(|(path, message)| {
        let field = if path == "." { "spec".to_owned() } else { format!("spec.{path}") };
        Violation { field, message }
    })
}

pub fn platform_to_wire(platform: &Platform) -> Option<WirePlatform> {
    serde_json::from_value(serde_json::to_value(platform).ok()?).ok()
}

/// `None` if an older CRM sends fewer fields than this version requires.
pub fn platform_from_wire(message: &WirePlatform) -> Option<Platform> {
    convert(message).ok()
}

fn convert<T: DeserializeOwned>(message: &impl Serialize) -> Result<T, (String, String)> {
    let value = serde_json::to_value(message).map_err(|it| (".".to_owned(), it.to_string()))?;
    serde_path_to_error::deserialize(without_nulls(value))
        .map_err(|error| (error.path().to_string(), error.into_inner().to_string()))
}

/// A field that is unset on the wire is absent in the unit.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// A collection may be a bare name in a unit, but not in a message.
fn name_collections(spec: &mut Value) {
    let collections = spec.pointer_mut("/odgm_config/collections").and_then(Value::as_array_mut);
    for collection in collections.into_iter().flatten().filter(|it| it.is_string()) {
        *collection = serde_json::json!({"name": collection.take()});
    }
}

/// JSON has no infinity or NaN: serde would drop them without an error.
fn finite(spec: &ClassSpec) -> Result<(), Violation> {
    let functions = spec.functions.iter().enumerate().filter_map(|(at, function)| {
        Some((format!("spec.functions[{at}].requirements"), function.requirements.as_ref()?))
    });
    let class = spec.nfr_requirements.iter().map(|it| ("spec.nfr_requirements".to_owned(), it));
    for (field, requirements) in class.chain(functions) {
        for (name, number) in [
            ("availability", requirements.availability),
            ("availability_pct", requirements.availability_pct),
        ] {
            if let Some(number) = number.filter(|number| !number.is_finite()) {
                let message = format!("{number} is not a finite number");
                return Err(Violation { field: format!("{field}.{name}"), message });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use oprc_unit::Profile;
    use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};
    use serde_json::json;

    use super::*;
    use crate::{
        DESCRIPTORS,
        deployment::unit::{Function, Requirements},
    };

    /// Follows references of a schema.
    fn resolve<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
        loop {
            if let Some(reference) = schema["$ref"].as_str() {
                schema = root.pointer(reference.trim_start_matches('#')).expect("a definition");
            } else if let Some(any) = schema["anyOf"].as_array().or(schema["allOf"].as_array()) {
                schema = &any[0];
            } else {
                return schema;
            }
        }
    }

    fn compare(path: &str, message: &MessageDescriptor, root: &Value, schema: &Value) {
        let schema = resolve(root, schema);
        // A collection has no structural schema: it may be a bare name.
        let Some(properties) = schema["properties"].as_object() else { return };
        let wire: BTreeSet<&str> =
            message.fields().map(|it| it.name().to_owned().leak() as &str).collect();
        let unit: BTreeSet<&str> = properties
            .keys()
            .map(String::as_str)
            .filter(|it| path != "spec" || *it != "function")
            .collect();
        assert_eq!(wire, unit, "{path}");
        for field in message.fields() {
            let Kind::Message(inner) = field.kind() else { continue };
            let mut schema = resolve(root, &properties[field.name()]);
            if field.is_list() {
                schema = resolve(root, &schema["items"]);
            } else if field.is_map() {
                continue;
            }
            compare(&format!("{path}.{}", field.name()), &inner, root, schema);
        }
    }

    #[test]
    fn messages_have_the_fields_of_the_unit() {
        let pool = DescriptorPool::decode(DESCRIPTORS).unwrap();
        let message = pool.get_message_by_name("deployment.unit.ClassSpec").unwrap();
        let schema = serde_json::to_value(schemars::schema_for!(UnitSpec)).unwrap();
        compare("spec", &message, &schema, &schema);
    }

    #[test]
    fn a_platform_survives_the_wire() {
        for profile in [Profile::Dev, Profile::Edge, Profile::Full] {
            let mut platform = Platform::of(profile);
            platform.knative = true;
            platform.default_template = Some("unified".to_owned());
            platform.odgm_images.any = Some("grid:1".to_owned());
            let message = platform_to_wire(&platform).unwrap();
            assert_eq!(platform_from_wire(&message), Some(platform));
        }
        assert_eq!(platform_from_wire(&WirePlatform::default()), None);
    }

    #[test]
    fn a_unit_survives_the_wire() {
        let spec: UnitSpec = serde_json::from_value(json!({
            "functions": [{"key": "f", "image": "img", "provision": {"min_scale": 0}}],
            "addons": ["odgm"],
            "odgm_config": {"collections": [{"name": "a", "partition_count": 2}]},
        }))
        .unwrap();
        assert_eq!(from_wire(&to_wire(&spec).unwrap()).unwrap(), spec);
        let single: UnitSpec = serde_json::from_value(json!({"function": {"image": "i"}})).unwrap();
        assert_eq!(to_wire(&single), None);
    }

    #[test]
    fn what_the_data_grid_knows_survives_the_wire() {
        let spec: UnitSpec = serde_json::from_value(json!({
            "functions": [
                {"key": "m", "type": "MACRO", "macro": {"output": "a", "steps": [
                    {"method": "f", "target": "$", "as": "a", "args": {"b": "c"}, "arg_refs": {"d": "$.e"}, "inputs": ["$"]},
                ]}},
                {"key": "f", "image": "i", "config": {"retries": 1}, "bindings": [{"name": "f", "condition": "true"}]},
            ],
            "state": {"key_specs": [{"name": "n", "type": "DOUBLE", "optional": true, "immutable": true}], "access": "PUBLIC"},
            "references": [{"name": "r", "class": "p.C", "access": "PUBLIC", "unit": "u", "url": "http://g"}],
            "nfr_requirements": {"availability": 0.5},
        }))
        .unwrap();
        let message = to_wire(&spec);
        assert_eq!(from_wire(&message.unwrap()).unwrap(), spec);
    }

    #[test]
    fn a_number_that_is_not_finite_is_rejected() {
        let of_class = |number| {
            let requirements = Requirements { availability: Some(number), ..Default::default() };
            ClassSpec { nfr_requirements: Some(requirements), ..Default::default() }
        };
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let requirements =
                Requirements { availability_pct: Some(number), ..Default::default() };
            let function = Function { requirements: Some(requirements), ..Default::default() };
            let of_function = ClassSpec { functions: vec![function], ..Default::default() };
            for (spec, field) in [
                (of_class(number), "spec.nfr_requirements.availability"),
                (of_function, "spec.functions[0].requirements.availability_pct"),
            ] {
                assert_eq!(from_wire(&spec).unwrap_err().field, field, "{number}");
            }
        }
        let fine = from_wire(&of_class(0.9)).unwrap().nfr_requirements.unwrap();
        assert_eq!(fine.availability, Some(0.9));
    }
}
