//! What containers request, and what a unit requests in all.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    class::{ValidClass, ValidFunction},
    instances::instance_bounds,
    platform::{Platform, Profile, Sizes},
    quantity,
    select::{Selection, shape_under},
    spec::Resources,
};

/// CPU and memory, of nodes or of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

impl Capacity {
    /// The sum with a number of copies of another.
    #[must_use]
    pub fn plus(self, other: Self, copies: i32) -> Self {
        let copies = u64::try_from(copies).unwrap_or_default();
        let sum = |one: u64, other: u64| one.saturating_add(other.saturating_mul(copies));
        Self {
            cpu_millis: sum(self.cpu_millis, other.cpu_millis),
            memory_bytes: sum(self.memory_bytes, other.memory_bytes),
        }
    }
}

/// The defaults of a profile: the platform's own as they are configured, another profile's as they
/// are built in.
fn sized(platform: &Platform, profile: Profile) -> Cow<'_, Platform> {
    if profile == platform.profile {
        Cow::Borrowed(platform)
    } else {
        Cow::Owned(Platform::of(profile))
    }
}

/// Requests and limits of a function that doesn't set them. A latency requirement asks for more CPU.
pub fn function_sizes(function: &ValidFunction, platform: &Platform, profile: Profile) -> Sizes {
    let mut sizes = sized(platform, profile).function_sizes.clone();
    if let Some(latency) = function.latency {
        let (cpu, memory) = if latency < 100 { ("500m", "512Mi") } else { ("200m", "256Mi") };
        sizes.requests.cpu = Some(cpu.to_owned());
        sizes.requests.memory = Some(memory.to_owned());
    }
    sizes
}

/// Requests and limits of a node of the data grid that doesn't set them.
pub fn grid_sizes(platform: &Platform, profile: Profile) -> Sizes {
    sized(platform, profile).odgm_sizes.clone()
}

/// What an admitted unit requests at the least: all instances and grid nodes that always run.
pub fn requested(class: &ValidClass, selection: &Selection, platform: &Platform) -> Capacity {
    let profile = selection.profile;
    let mut sum = Capacity::default();
    for function in &class.functions {
        let shape = shape_under(selection.template, function, platform);
        let sizes = function_sizes(function, platform, profile);
        let one = one_container(&function.requests, &function.limits, &sizes.requests);
        sum = sum.plus(one, instance_bounds(function, shape, profile).min);
    }
    if let Some(grid) = &class.odgm {
        let sizes = grid_sizes(platform, profile);
        sum = sum.plus(one_container(&grid.requests, &grid.limits, &sizes.requests), grid.replicas);
    }
    sum
}

/// What one container requests: what is set, else the default, but never more than its limit.
fn one_container(requests: &Resources, limits: &Resources, default: &Resources) -> Capacity {
    type Which = fn(&Resources) -> Option<&String>;
    // Quantities end at 2^63, and none is negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = |value: f64| value.round() as u64;
    let amount = |of: &Resources, which: Which, unit: f64| {
        let value = which(of).and_then(|text| quantity::parse(text).ok())?;
        Some(whole(value * unit))
    };
    let one = |which: Which, unit: f64| {
        amount(requests, which, unit).unwrap_or_else(|| {
            let limit = amount(limits, which, unit).unwrap_or(u64::MAX);
            amount(default, which, unit).unwrap_or_default().min(limit)
        })
    };
    Capacity {
        cpu_millis: one(|it| it.cpu.as_ref(), 1000.0),
        memory_bytes: one(|it| it.memory.as_ref(), 1.0),
    }
}
