//! The requirements of each function: its own, or those of its class.

use crate::spec::{Constraints, Requirements, SingleFunction, UnitSpec};

/// What a function has to achieve; what isn't required is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FunctionRequirements {
    /// Requests per second.
    pub throughput: Option<i32>,
    /// In milliseconds.
    pub latency: Option<i32>,
    /// A fraction from 0 to 1.
    pub availability: Option<f64>,
    /// Maximum latency in milliseconds, as a hard constraint.
    pub hard_latency: Option<i32>,
    /// Maximum number of concurrent calls.
    pub max_concurrency: Option<i32>,
}

impl FunctionRequirements {
    pub(super) fn of(spec: &UnitSpec, body: &SingleFunction) -> Self {
        let (no_requirements, no_limits) = (Requirements::default(), Constraints::default());
        let class = spec.nfr_requirements.as_ref().unwrap_or(&no_requirements);
        let own = body.requirements.as_ref().unwrap_or(&no_requirements);
        let class_limits = spec.constraints.as_ref().unwrap_or(&no_limits);
        let own_limits = body.constraints.as_ref().unwrap_or(&no_limits);
        Self {
            throughput: own.min_throughput_rps.or(class.min_throughput_rps),
            latency: own.max_latency_ms.or(class.max_latency_ms),
            availability: own.availability().or_else(|| class.availability()),
            hard_latency: tighter(own_limits.hard_latency_ms, class_limits.hard_latency_ms),
            max_concurrency: tighter(own_limits.max_concurrency, class_limits.max_concurrency),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The functions of a class that run in containers, by key, with their requirements. `name` is that of
/// the ClassRuntime, which is the key of a single `function`. The specification needn't be valid.
pub fn function_requirements<'a>(
    name: &'a str,
    spec: &'a UnitSpec,
) -> impl Iterator<Item = (&'a str, FunctionRequirements)> {
    let single = spec.function.iter().map(move |body| (name, body));
    let many = spec.functions.iter().map(|it| (it.key.as_str(), &it.body));
    let is_disabled = |key: &str| spec.disabled_functions.iter().any(|it| it == key);
    let running =
        single.chain(many).filter(move |(key, body)| body.image.is_some() && !is_disabled(key));
    running.map(|(key, body)| (key, FunctionRequirements::of(spec, body)))
}

/// A constraint of the class applies to each function; the function's own may be tighter.
fn tighter(own: Option<i32>, class: Option<i32>) -> Option<i32> {
    match (own, class) {
        (Some(own), Some(class)) => Some(own.min(class)),
        (own, class) => own.or(class),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn functions_override_requirements_of_the_class() {
        let spec: UnitSpec = serde_json::from_value(json!({
            "nfr_requirements": {"min_throughput_rps": 10, "availability_pct": 99.0},
            "constraints": {"hard_latency_ms": 500},
            "functions": [
                {"key": "a", "image": "i", "requirements": {"min_throughput_rps": 20}},
                {"key": "b", "image": "i", "constraints": {"hard_latency_ms": 900}},
                {"key": "off", "image": "i"},
                {"key": "none"},
            ],
            "disabled_functions": ["off"],
        }))
        .unwrap();
        let class = FunctionRequirements {
            throughput: Some(10),
            availability: Some(0.99),
            hard_latency: Some(500),
            ..FunctionRequirements::default()
        };
        let found: Vec<_> = function_requirements("c", &spec).collect();
        let own = FunctionRequirements { throughput: Some(20), ..class };
        assert_eq!(found, [("a", own), ("b", class)]);
        let single: UnitSpec = serde_json::from_value(json!({"function": {"image": "i"}})).unwrap();
        let found: Vec<_> = function_requirements("c", &single).collect();
        assert_eq!(found, [("c", FunctionRequirements::default())]);
        assert!(FunctionRequirements::default().is_empty() && !class.is_empty());
    }
}
