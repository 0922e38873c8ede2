//! The API's words as it spells them.

use serde::Serialize;

/// A word such as `RUNNING`.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use oprc_rest::DeploymentCondition;

    #[test]
    fn words_are_spelled_as_the_api_does() {
        assert_eq!(super::word(&DeploymentCondition::RollingBack), "ROLLING_BACK");
    }
}
