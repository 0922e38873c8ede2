//! What is required of classes and functions.

use crate::macros::{model, words};

model! {
    /// What is required. Goes into `nfr_requirements` of a class's unit, or `requirements` of a
    /// function in it; replicas and partitions are planned by it.
    Requirements {
        /// Requests for each second that must be served.
        throughput | "minThroughputRps": Option<i32>,
        /// How many milliseconds an answer may take.
        latency | "maxLatencyMs": Option<i32>,
        /// The part of the time that it must be available, such as 0.999.
        availability: Option<f64>,
        /// The same in percent, such as 99.9.
        availability_pct: Option<f64>,
        /// What readers of replicated data may see.
        consistency: Option<Consistency>,
    }
}

impl Requirements {
    /// The part of the time that it must be available, however it was said.
    pub fn availability(&self) -> Option<f64> {
        self.availability.or_else(|| self.availability_pct.map(|percent| percent / 100.0))
    }
}

model! {
    /// What must never be exceeded. Goes into `constraints`.
    Constraints {
        /// Milliseconds that no answer may exceed: what can't keep to it isn't deployed.
        hard_latency | "hardLatencyMs": Option<i32>,
        /// How many calls one instance may work on at once.
        max_concurrency: Option<i32>,
    }
}

words! {
    /// What readers of replicated data may see.
    Consistency {
        /// The last write, some time.
        #[default]
        Eventual = "EVENTUAL",
        /// The last write, always.
        Strong = "STRONG",
    }
}
