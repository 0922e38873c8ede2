//! CPU and memory of the container of a function or of the data grid: what the user, the platform and
//! enforcement say.

use k8s_openapi::{
    api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity,
};
use oprc_models::parse_quantity;
use oprc_nfr::resources::{Allocation, Resource};
use oprc_unit::{
    OdgmPlan, Platform, Profile, Scaling, ValidFunction, function_sizes,
    spec::{Dimension, Resources},
};
use sha2::{Digest as _, Sha256};

use super::manifest::pod;
use crate::crd::{GRID_KEY, Recommendation};

const MADE_FOR_DIGITS: usize = 16;
const MIB: u64 = 1 << 20;

/// A container whose resources enforcement may set.
#[derive(Clone, Copy)]
pub struct SizedContainer<'a> {
    /// The key of a function, or [`GRID_KEY`].
    pub key: &'a str,
    pub image: &'a str,
    pub requests: &'a Resources,
    pub limits: &'a Resources,
}

impl<'a> From<&'a ValidFunction> for SizedContainer<'a> {
    fn from(function: &'a ValidFunction) -> Self {
        let ValidFunction { key, image, requests, limits, .. } = function;
        Self { key, image, requests, limits }
    }
}

impl<'a> SizedContainer<'a> {
    pub fn of_grid(plan: &'a OdgmPlan, image: &'a str) -> Self {
        let OdgmPlan { requests, limits, .. } = plan;
        Self { key: GRID_KEY, image, requests, limits }
    }
}

/// One resource of an instance, in cores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainerResource {
    /// What the user wrote.
    pub written: Allocation,
    /// What an instance gets without enforcement: what the user wrote, or else the platform's default.
    pub specified: Allocation,
    /// What an instance gets now.
    pub current: Allocation,
    /// The highest value that enforcement sets: what the settings allow, or what is specified if that
    /// is more.
    pub max: f64,
}

impl ContainerResource {
    pub(super) fn of(
        resource: Resource,
        container: SizedContainer<'_>,
        specified: &ResourceRequirements,
        current: &ResourceRequirements,
        scaling: &Scaling,
    ) -> Self {
        let specified = allocation(resource, specified);
        let own = specified.limit.or(specified.request).unwrap_or_default();
        Self {
            written: written(resource, container),
            specified,
            current: allocation(resource, current),
            max: max(resource, scaling).max(own),
        }
    }

    /// What an instance gets if a decision is applied: never less than the user wrote, and never more
    /// than the settings allow.
    pub fn applied(&self, request: f64, limit: Option<f64>) -> Allocation {
        let Self { written, specified, max, .. } = self;
        let bounded =
            |value: f64, written: Option<f64>| value.min(*max).max(written.unwrap_or(0.0));
        let request = bounded(request, written.request);
        // None is added, and none is removed.
        let limit = specified
            .limit
            .map(|default| bounded(limit.unwrap_or(default), written.limit).max(request));
        Allocation { request: Some(request), limit }
    }
}

/// Identifies what decisions about the resources of a container are made for: its image, and the
/// resources that the user wrote.
pub fn made_for(container: SizedContainer<'_>) -> String {
    let mut digest = Sha256::new();
    let SizedContainer { image, requests, limits, .. } = container;
    let written = [&requests.cpu, &requests.memory, &limits.cpu, &limits.memory];
    for part in [Some(image)].into_iter().chain(written.map(|it| it.as_deref())) {
        digest.update(part.unwrap_or_default());
        digest.update([0]);
    }
    let mut hash = hex::encode(digest.finalize());
    hash.truncate(MADE_FOR_DIGITS);
    hash
}

pub fn dimension(resource: Resource) -> Dimension {
    match resource {
        Resource::Cpu => Dimension::Cpu,
        Resource::Memory => Dimension::Memory,
    }
}

/// Requests and limits without enforcement.
pub(super) fn specified_resources(
    function: &ValidFunction,
    platform: &Platform,
    profile: Profile,
) -> ResourceRequirements {
    let defaults = function_sizes(function, platform, profile);
    pod::resources(&function.requests, &function.limits, &defaults)
}

/// With what enforcement decided for this image and these resources.
pub(super) fn with_applied(
    specified: &ResourceRequirements,
    container: SizedContainer<'_>,
    scaling: &Scaling,
    applied: &[Recommendation],
) -> ResourceRequirements {
    let mut resources = specified.clone();
    for resource in [Resource::Cpu, Resource::Memory] {
        let name = dimension(resource).as_str();
        let mut own = applied.iter().filter(|it| it.component == container.key);
        let Some(entry) = own.find(|it| it.dimension == name) else { continue };
        let is_current = entry.made_for.as_ref().is_some_and(|it| *it == made_for(container));
        if !is_current || !entry.target.is_finite() || entry.target <= 0.0 {
            continue;
        }
        let of = ContainerResource::of(resource, container, specified, specified, scaling);
        let Allocation { request, limit } = of.applied(entry.target, entry.limit);
        let set = |value: f64| (name.to_owned(), quantity(resource, value));
        resources.requests.get_or_insert_default().extend(request.map(set));
        if let Some(limit) = limit {
            resources.limits.get_or_insert_default().extend([set(limit)]);
        }
    }
    resources
}

fn written(resource: Resource, container: SizedContainer<'_>) -> Allocation {
    let of = |resources: &Resources| {
        let text = match resource {
            Resource::Cpu => &resources.cpu,
            Resource::Memory => &resources.memory,
        };
        text.as_ref().and_then(|text| parse_quantity(text).ok())
    };
    Allocation { request: of(container.requests), limit: of(container.limits) }
}

fn allocation(resource: Resource, resources: &ResourceRequirements) -> Allocation {
    let name = dimension(resource).as_str();
    let of = |all: Option<&std::collections::BTreeMap<String, Quantity>>| {
        all.and_then(|all| parse_quantity(&all.get(name)?.0).ok()).filter(|value| *value > 0.0)
    };
    Allocation { request: of(resources.requests.as_ref()), limit: of(resources.limits.as_ref()) }
}

#[allow(clippy::cast_precision_loss)]
fn max(resource: Resource, scaling: &Scaling) -> f64 {
    match resource {
        Resource::Cpu => scaling.max_cpu_millis as f64 / 1000.0,
        Resource::Memory => scaling.max_memory_bytes as f64,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn quantity(resource: Resource, value: f64) -> Quantity {
    Quantity(match resource {
        Resource::Cpu => format!("{}m", (value * 1000.0).round() as u64),
        Resource::Memory => match value.round() as u64 {
            bytes if bytes.is_multiple_of(MIB) => format!("{}Mi", bytes / MIB),
            bytes => bytes.to_string(),
        },
    })
}
