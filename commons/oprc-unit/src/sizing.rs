//! Resource requests of containers and of a whole unit.

use std::borrow::Cow;

use oprc_models::parse_quantity;
use serde::{Deserialize, Serialize};

use crate::{
    class::{ValidClass, ValidFunction},
    instances::instance_bounds,
    platform::{Platform, Profile, Sizes},
    select::{Selection, Shape, shape_under},
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
    /// Adds `other`, multiplied by `copies`.
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

/// The defaults of a profile: configured for the platform's own, built in for others.
fn sized(platform: &Platform, profile: Profile) -> Cow<'_, Platform> {
    if profile == platform.profile {
        Cow::Borrowed(platform)
    } else {
        Cow::Owned(Platform::of(profile))
    }
}

/// Default requests and limits of a function. A latency requirement raises the requests.
pub fn function_sizes(function: &ValidFunction, platform: &Platform, profile: Profile) -> Sizes {
    let mut sizes = sized(platform, profile).function_sizes.clone();
    if let Some(latency) = function.latency {
        let (cpu, memory) = if latency < 100 { ("500m", "512Mi") } else { ("200m", "256Mi") };
        sizes.requests.cpu = Some(cpu.to_owned());
        sizes.requests.memory = Some(memory.to_owned());
    }
    sizes
}

/// Default requests and limits of a node of the data grid.
pub fn grid_sizes(platform: &Platform, profile: Profile) -> Sizes {
    sized(platform, profile).odgm_sizes.clone()
}

/// Requests and limits of the proxy in front of a function. Its limits are far above its use, because
/// throttling would add to the latency of calls; without them a quota of limits would reject its pods.
pub fn proxy_sizes() -> Sizes {
    Sizes::of(("10m", "16Mi"), ("500m", "256Mi"))
}

/// Requests of all instances and grid nodes of a unit that always run.
pub fn requested(class: &ValidClass, selection: &Selection, platform: &Platform) -> Capacity {
    let profile = selection.profile;
    let mut sum = Capacity::default();
    for function in &class.functions {
        let shape = shape_under(selection.template, function, platform);
        let sizes = function_sizes(function, platform, profile);
        let one = one_container(&function.requests, &function.limits, &sizes.requests);
        let instances = instance_bounds(function, shape, profile).min;
        sum = sum.plus(one, instances);
        if function.proxy && shape == Shape::Deployment {
            let proxy = Resources::default();
            sum = sum.plus(one_container(&proxy, &proxy, &proxy_sizes().requests), instances);
        }
    }
    if let Some(grid) = &class.odgm {
        let sizes = grid_sizes(platform, profile);
        sum = sum.plus(one_container(&grid.requests, &grid.limits, &sizes.requests), grid.replicas);
    }
    sum
}

/// Requests of one container: as set, or the default capped by its limit.
fn one_container(requests: &Resources, limits: &Resources, default: &Resources) -> Capacity {
    type Which = fn(&Resources) -> Option<&String>;
    // Quantities are not negative and less than 2^63.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = |value: f64| value.round() as u64;
    let quantity = |of: &Resources, which: Which, unit: f64| {
        let value = which(of).and_then(|text| parse_quantity(text).ok())?;
        Some(whole(value * unit))
    };
    let one = |which: Which, unit: f64| {
        quantity(requests, which, unit).unwrap_or_else(|| {
            let limit = quantity(limits, which, unit).unwrap_or(u64::MAX);
            quantity(default, which, unit).unwrap_or_default().min(limit)
        })
    };
    Capacity {
        cpu_millis: one(|it| it.cpu.as_ref(), 1000.0),
        memory_bytes: one(|it| it.memory.as_ref(), 1.0),
    }
}
