//! Values of the REST API as they are spelled in JSON.

use serde::Serialize;

/// The serialized name of an enum value, such as `RUNNING`; empty for anything but a string.
pub(crate) fn api_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use oprc_rest::DeploymentCondition;

    #[test]
    fn names_are_spelled_as_in_the_api() {
        assert_eq!(super::api_name(&DeploymentCondition::RollingBack), "ROLLING_BACK");
    }
}
