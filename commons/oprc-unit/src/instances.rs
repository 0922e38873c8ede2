//! Bounds of the number of instances of a function.

use oprc_models::limits;

use crate::{class::ValidFunction, platform::Profile, select::Shape};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceBounds {
    pub min: i32,
    /// No less than `min`; for Knative, 0 means unbounded.
    pub max: i32,
}

/// The bounds of a function under a shape, with the defaults of a profile.
pub fn instance_bounds(function: &ValidFunction, shape: Shape, profile: Profile) -> InstanceBounds {
    let required = function.required_instances.unwrap_or(0);
    match shape {
        Shape::Job => InstanceBounds { min: 1, max: 1 },
        Shape::Knative => {
            let min = if function.standby { 0 } else { function.min_scale.unwrap_or(0) };
            let min = min.max(required);
            InstanceBounds { min, max: function.max_scale.map_or(0, |max| max.max(min)) }
        }
        Shape::Deployment => {
            let default = profile.function_replicas();
            let min = match (function.min_scale, function.max_scale) {
                (Some(min), _) => min.max(1),
                (None, _) if function.standby => 1,
                (None, max) => default.min(max.unwrap_or(default)),
            };
            let min = min.max(required);
            // A `min_scale` without `max_scale` is a fixed number of instances.
            let by_load = function
                .throughput
                .filter(|_| function.min_scale.is_none())
                .map(|throughput| max_by_load(throughput, min));
            let max = function.max_scale.or(by_load).unwrap_or(min);
            InstanceBounds { min, max: max.max(min) }
        }
    }
}

/// The default maximum by throughput: two instances per 1,000 requests/s, and at least twice the
/// minimum.
pub fn max_by_load(throughput: i32, min: i32) -> i32 {
    (throughput / 1000).max(min).max(1).saturating_mul(2).min(limits::MAX_SCALE.max)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::{Identity, Platform, admit};

    fn bounds(function: &Value, more: &Value, shape: Shape, profile: Profile) -> (i32, i32) {
        let mut spec = more.clone();
        spec["functions"] = json!([function]);
        let mut platform = Platform::of(profile);
        platform.knative = true;
        let spec = serde_json::from_value(spec).unwrap();
        let admitted = admit(Identity::for_unit("u", "ns", None), &spec, &platform).unwrap();
        let found = instance_bounds(admitted.class.functions.first().unwrap(), shape, profile);
        (found.min, found.max)
    }

    fn function(provision: &Value, requirements: &Value) -> Value {
        json!({"key": "f", "image": "i", "provision": provision, "requirements": requirements})
    }

    #[test]
    fn a_function_without_bounds_has_the_profile_default() {
        for (profile, number) in [(Profile::Dev, 1), (Profile::Edge, 2), (Profile::Full, 3)] {
            let plain = function(&json!({}), &json!({}));
            assert_eq!(bounds(&plain, &json!({}), Shape::Deployment, profile), (number, number));
            assert_eq!(bounds(&plain, &json!({}), Shape::Knative, profile), (0, 0));
            assert_eq!(bounds(&plain, &json!({}), Shape::Job, profile), (1, 1));
        }
    }

    #[test]
    fn bounds_that_are_set_apply_as_far_as_the_shape_allows() {
        use Shape::{Deployment, Job, Knative};
        let standby = json!({"standby_functions": ["f"]});
        for (provision, more, shape, expected) in [
            (json!({"max_scale": 2}), json!({}), Deployment, (2, 2)),
            (json!({"min_scale": 0}), json!({}), Deployment, (1, 1)),
            (json!({}), standby, Deployment, (1, 1)),
            (json!({"min_scale": 2}), json!({}), Knative, (2, 0)),
            (json!({"min_scale": 2}), json!({}), Job, (1, 1)),
        ] {
            let function = function(&provision, &json!({}));
            let found = bounds(&function, &more, shape, Profile::Full);
            assert_eq!(found, expected, "{provision} {shape:?}");
        }
    }

    #[test]
    fn a_function_with_throughput_and_without_bounds_can_grow_in_every_profile() {
        for (profile, throughput, expected) in [
            (Profile::Dev, 100, (1, 2)),
            (Profile::Edge, 100, (2, 4)),
            (Profile::Full, 1999, (3, 6)),
            (Profile::Full, 5000, (3, 10)),
        ] {
            let loaded = function(&json!({}), &json!({"min_throughput_rps": throughput}));
            assert_eq!(bounds(&loaded, &json!({}), Shape::Deployment, profile), expected);
        }
        let fixed = function(&json!({"min_scale": 2}), &json!({"min_throughput_rps": 5000}));
        assert_eq!(bounds(&fixed, &json!({}), Shape::Deployment, Profile::Full), (2, 2));
    }

    #[test]
    fn availability_sets_the_minimum_where_no_plan_does() {
        let required =
            || function(&json!({"min_scale": 0, "max_scale": 2}), &json!({"availability": 0.999}));
        assert_eq!(bounds(&required(), &json!({}), Shape::Deployment, Profile::Dev), (3, 3));
        assert_eq!(bounds(&required(), &json!({}), Shape::Knative, Profile::Dev), (3, 3));
        let class = json!({"nfr_requirements": {"availability_pct": 99.0}});
        let plain = function(&json!({}), &json!({}));
        assert_eq!(bounds(&plain, &class, Shape::Deployment, Profile::Dev), (2, 2));
        let standby = json!({"standby_functions": ["f"]});
        assert_eq!(bounds(&required(), &standby, Shape::Knative, Profile::Dev), (0, 2));
    }
}
