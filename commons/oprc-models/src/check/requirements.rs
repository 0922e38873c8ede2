//! What may be required.

use super::{DAY_MS, range};
use crate::{
    fault::{Faults, Path},
    model::{Constraints, Requirements},
};

pub(super) fn requirements(faults: &mut Faults, path: &Path, required: Option<&Requirements>) {
    let Some(required) = required else { return };
    range(faults, &path.field("throughput"), required.throughput, 0, 1_000_000_000);
    range(faults, &path.field("latency"), required.latency, 1, DAY_MS);
    if let Some(availability) = required.availability
        && !(0.0..=1.0).contains(&availability)
    {
        faults.hint(
            &path.field("availability"),
            format!("{availability} isn't a fraction from 0 to 1"),
            format!("for percent there is availabilityPct: {availability}"),
        );
    }
    if let Some(percent) = required.availability_pct
        && !(0.0..=100.0).contains(&percent)
    {
        faults.add(&path.field("availabilityPct"), format!("{percent} isn't from 0 to 100"));
    }
    if required.availability.is_some() && required.availability_pct.is_some() {
        faults.add(&path.field("availabilityPct"), "says the same as availability: give one");
    }
}

pub(super) fn constraints(faults: &mut Faults, path: &Path, constraints: Option<&Constraints>) {
    let Some(constraints) = constraints else { return };
    range(faults, &path.field("hardLatency"), constraints.hard_latency, 1, DAY_MS);
    range(faults, &path.field("maxConcurrency"), constraints.max_concurrency, 1, 1000);
}
