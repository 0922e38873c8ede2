//! Non-functional requirements at run time: measurements, compliance, recommendations and changes.

use crate::document;

document! {
    /// The latest measurements of a function. A missing value is unknown.
    pub struct NfrCompliance {
        /// Requests per second.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub throughput_actual: Option<f64>,
        /// Median latency in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub latency_p50: Option<f64>,
        /// 95th percentile of latency in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub latency_p95: Option<f64>,
        /// 99th percentile of latency in milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub latency_p99: Option<f64>,
        /// Fraction of the requests of the measured window that were served, from 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub availability_actual: Option<f64>,
        /// CPU cores in use by all instances.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cpu_cores: Option<f64>,
        /// Working set of the largest instance in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub memory_bytes: Option<f64>,
        /// Number of ready instances.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub instances: Option<i32>,
        /// Time of the measurement. Absent if the replica of CRM that answered isn't the one that
        /// measures: then only `requirements` are known, without observed values.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub observed_at: String,
        /// Compliance with each requirement of the function.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub requirements: Vec<RequirementCompliance>,
        /// What enforcement does now, at most one entry for each dimension.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub decisions: Vec<NfrDecision>,
        /// The measured window.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub samples: Option<NfrSamples>,
    }

    /// Compliance with a requirement. Values are in the unit of the requirement: requests per second,
    /// milliseconds, or a fraction from 0 to 1.
    pub struct RequirementCompliance {
        /// Requirement: `throughput`, `latency`, `availability` or `hard_latency`.
        pub requirement: String,
        /// State: `met`, `violated` or `unknown`.
        pub state: String,
        /// Time of the transition to this state.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub since: String,
        /// Required value.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub required: Option<f64>,
        /// Latest value; for `hard_latency` requests per second that took longer.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub observed: Option<f64>,
        /// Machine-readable reason if the state is unknown.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub reason: String,
        /// Fraction of the error budget of the measured window that is left, from 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub error_budget: Option<f64>,
    }

    /// What enforcement does about one dimension of a function, or would do in mode `observe`.
    pub struct NfrDecision {
        /// Dimension: `replicas`, `memory` (bytes), `cpu` (cores) or `template` (1 for `knative`, 0 for
        /// `k8s_deployment`).
        pub dimension: String,
        /// Mode: `observe` or `enforce`.
        pub mode: String,
        /// Current value.
        pub current: f64,
        /// Target value.
        pub target: f64,
        /// How the target follows from the measurements.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub basis: String,
        /// What the next change waits for; absent if nothing has to change.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub waits_for: String,
        /// Earliest time of the next change, if known.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub next_change_at: String,
        /// Target by name, for the dimension `template`.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub template: String,
    }

    /// Samples of the measured window at equal steps. An unknown value is null.
    pub struct NfrSamples {
        /// Time of the first sample.
        pub start: String,
        /// Seconds between two samples.
        pub step_seconds: f64,
        /// Requests per second.
        pub throughput: Vec<Option<f64>>,
        /// 95th percentile of latency in milliseconds.
        pub latency_p95: Vec<Option<f64>>,
    }

    /// A recommended value of one dimension of a component.
    pub struct Recommendation {
        /// Key of the function, or `odgm`.
        pub component: String,
        /// Dimension: `replicas`, `memory` (bytes), `cpu` (cores) or `template` (1 for `knative`, 0 for
        /// `k8s_deployment`).
        pub dimension: String,
        /// Recommended value; for `memory` and `cpu` the request.
        pub target: f64,
        /// Limit that goes with the request, if the function has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<f64>,
        /// How the value follows from the measurements.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub basis: String,
        /// Confidence from 0 to 1, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub confidence: Option<f64>,
        /// Generation of the ClassRuntime that the value was computed for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub generation: Option<i64>,
        /// Lower bound of the value.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub min: Option<f64>,
        /// Upper bound of the value.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max: Option<f64>,
        /// Time at which the value was set.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub since: String,
        /// Why the value is not raised, or the template not changed any more.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub stopped: String,
        /// Recommended template by name, for the dimension `template`.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub template: String,
    }

    /// A change that enforcement made.
    pub struct NfrChange {
        /// Time of the change.
        pub at: String,
        /// Key of the function, or `odgm`.
        pub component: String,
        /// Dimension: `replicas`, `memory` (bytes), `cpu` (cores) or `template` (1 for `knative`, 0 for
        /// `k8s_deployment`).
        pub dimension: String,
        /// Value before the change.
        pub from: f64,
        /// Value after the change.
        pub to: f64,
        /// How the value follows from the measurements.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub basis: String,
        /// New template by name, for the dimension `template`.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub template: String,
    }

    /// Out-of-memory kills of the instances of a function in the last 7 days.
    pub struct OomKills {
        /// Key of the function.
        pub function: String,
        /// Time of the last kill.
        pub at: String,
        /// Number of kills since the image or the specified resources last changed.
        pub count: i32,
        /// Highest memory limit in bytes at which an instance was killed; absent without a limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<f64>,
    }

    /// Whether the requirements of a class are measured: the condition `NfrObserved` of its
    /// ClassRuntime.
    pub struct NfrObserved {
        /// Whether all functions with requirements are measured.
        pub measured: bool,
        /// Reason: `Measured`, `NoData` or `PrometheusUnavailable`.
        pub reason: String,
        /// Human-readable explanation of the reason.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub message: String,
        /// Time of the last transition.
        #[serde(skip_serializing_if = "String::is_empty")]
        pub since: String,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_values_are_omitted_and_unknown_samples_are_null() {
        let compliance = NfrCompliance {
            throughput_actual: Some(20.5),
            observed_at: "2026-11-17T12:00:00Z".to_owned(),
            samples: Some(NfrSamples {
                start: "2026-11-17T11:59:45Z".to_owned(),
                step_seconds: 15.0,
                throughput: vec![Some(20.5), None],
                latency_p95: vec![None, None],
            }),
            ..NfrCompliance::default()
        };
        let document = serde_json::to_value(&compliance).unwrap();
        let expected = json!({
            "throughputActual": 20.5,
            "observedAt": "2026-11-17T12:00:00Z",
            "samples": {
                "start": "2026-11-17T11:59:45Z", "stepSeconds": 15.0,
                "throughput": [20.5, null], "latencyP95": [null, null],
            },
        });
        assert_eq!(document, expected);
        assert_eq!(serde_json::from_value::<NfrCompliance>(document).unwrap(), compliance);
        let all = NfrCompliance {
            latency_p95: Some(1.0),
            availability_actual: Some(1.0),
            ..NfrCompliance::default()
        };
        let all = serde_json::to_value(all).unwrap();
        assert!(all["latencyP95"] == 1.0 && all["availabilityActual"] == 1.0, "{all}");
        assert_eq!(all.get("observedAt"), None, "it isn't measured there");
    }
}
