//! Requirements and constraints of classes and functions.

use super::{DAY_MS, check_range};
use crate::{
    diagnostics::{Diagnostics, Path},
    model::{Constraints, Requirements},
};

/// `path` is that of the class or function.
pub(super) fn check(
    diagnostics: &mut Diagnostics,
    path: &Path,
    requirements: Option<&Requirements>,
    constraints: Option<&Constraints>,
) {
    if let Some(requirements) = requirements {
        check_requirements(diagnostics, &path.field("requirements"), requirements);
    }
    if let Some(constraints) = constraints {
        let path = path.field("constraints");
        check_range(diagnostics, &path.field("hardLatency"), constraints.hard_latency, 1, DAY_MS);
        let concurrency = constraints.max_concurrency;
        check_range(diagnostics, &path.field("maxConcurrency"), concurrency, 1, 1000);
    }
}

fn check_requirements(diagnostics: &mut Diagnostics, path: &Path, requirements: &Requirements) {
    let throughput = requirements.throughput;
    check_range(diagnostics, &path.field("throughput"), throughput, 0, 1_000_000_000);
    check_range(diagnostics, &path.field("latency"), requirements.latency, 1, DAY_MS);
    if let Some(availability) = requirements.availability
        && !(0.0..=1.0).contains(&availability)
    {
        diagnostics.add_with_hint(
            &path.field("availability"),
            format!("{availability} must be a fraction between 0 and 1"),
            format!("for a percentage, use availabilityPct: {availability}"),
        );
    }
    if let Some(percent) = requirements.availability_pct
        && !(0.0..=100.0).contains(&percent)
    {
        let message = format!("{percent} must be between 0 and 100");
        diagnostics.add(&path.field("availabilityPct"), message);
    }
    if requirements.availability.is_some() && requirements.availability_pct.is_some() {
        let message = "set either availability or availabilityPct, not both";
        diagnostics.add(&path.field("availabilityPct"), message);
    }
}
