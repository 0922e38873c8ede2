//! Non-functional requirements of classes and functions.

use crate::macros::{models, string_enums};

models! {
    /// Non-functional requirements, from which PM plans replicas and partitions. Sent to CRM as
    /// `nfr_requirements` of the unit, or `requirements` of a function.
    Requirements {
        /// Required throughput in requests per second.
        throughput | "minThroughputRps": Option<i32>,
        /// Target response time in milliseconds, used for planning only.
        latency | "maxLatencyMs": Option<i32>,
        /// Required availability as a fraction, such as 0.999.
        availability: Option<f64>,
        /// Required availability in percent, such as 99.9.
        availability_pct: Option<f64>,
        /// Consistency of reads of replicated data.
        consistency: Option<Consistency>,
    }
}

impl Requirements {
    /// The required availability as a fraction.
    pub fn availability(&self) -> Option<f64> {
        self.availability.or_else(|| self.availability_pct.map(|percent| percent / 100.0))
    }
}

models! {
    /// Hard limits. Sent to CRM as `constraints`.
    Constraints {
        /// Hard limit of the response time in milliseconds. Templates whose latency floor exceeds this
        /// are excluded.
        hard_latency | "hardLatencyMs": Option<i32>,
        /// Maximum number of concurrent calls of one instance.
        max_concurrency: Option<i32>,
        /// Whether calls are rejected with 503 for some seconds when most of them exceed
        /// `hardLatency`, which is required with it.
        circuit_breaker: Option<bool>,
    }
}

string_enums! {
    /// Consistency of reads of replicated data.
    Consistency {
        /// Reads may return old data.
        #[default]
        Eventual = "EVENTUAL",
        /// Reads return the last write.
        Strong = "STRONG",
    }
}
