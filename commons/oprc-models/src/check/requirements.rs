//! Requirements and constraints of classes and functions.

use crate::{
    diagnostics::FieldCursor,
    limits,
    model::{Constraints, Requirements},
    rules::is_availability,
};

/// `at` is the class or function.
pub(super) fn check(
    at: &FieldCursor<'_>,
    requirements: Option<&Requirements>,
    constraints: Option<&Constraints>,
) {
    if let Some(requirements) = requirements {
        check_requirements(&at.field("requirements"), requirements);
    }
    if let Some(constraints) = constraints {
        let at = at.field("constraints");
        at.field("hardLatency").range(constraints.hard_latency, limits::CALL_MS);
        at.field("maxConcurrency").range(constraints.max_concurrency, limits::CONCURRENCY);
    }
}

fn check_requirements(at: &FieldCursor<'_>, requirements: &Requirements) {
    at.field("throughput").range(requirements.throughput, limits::THROUGHPUT);
    at.field("latency").range(requirements.latency, limits::CALL_MS);
    if let Some(availability) = requirements.availability.filter(|it| !is_availability(*it)) {
        at.field("availability").add_with_hint(
            format!("{availability} must be a fraction between 0 and 1"),
            format!("for a percentage, use availabilityPct: {availability}"),
        );
    }
    if let Some(percent) = requirements.availability_pct {
        let at = at.field("availabilityPct");
        if !is_availability(percent / 100.0) {
            at.add(format!("{percent} must be between 0 and 100"));
        }
        if requirements.availability.is_some() {
            at.add("set either availability or availabilityPct, not both");
        }
    }
}
