//! Whether a cluster has room for what is planned.

use std::collections::BTreeMap;

use oprc_grpc::deployment::unit::{ClassSpec, Resources};
use oprc_models::Quantity;
use serde::Deserialize as _;

use super::{Capacity, ClusterFacts, profile::Profile, targets::Place};

/// What is asked of each cluster.
#[derive(Debug, Default)]
pub(super) struct Load<'a> {
    clusters: BTreeMap<&'a str, (&'a ClusterFacts, Capacity)>,
}

impl<'a> Load<'a> {
    /// Adds a unit; tells what it asks for.
    pub(super) fn add(&mut self, place: &Place<'a>, spec: &ClassSpec) -> Capacity {
        let asked = Asks::of(spec).on(place.facts);
        let (_, sum) =
            self.clusters.entry(place.cluster).or_insert((place.facts, Capacity::default()));
        *sum = sum.plus(asked, 1);
        asked
    }

    /// What may not fit.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (cluster, (facts, asked)) in &self.clusters {
            let (Some(all), room, taken) = (facts.capacity, facts.room(), facts.taken) else {
                continue;
            };
            if asked.cpu_millis > room.cpu_millis {
                let (asked, taken, all) = (asked.cpu_millis, taken.cpu_millis, all.cpu_millis);
                warnings.push(format!(
                    "{cluster}: what is planned asks for {asked}m of processor time and other \
                     deployments for {taken}m, and its ready nodes have {all}m"
                ));
            }
            if asked.memory_bytes > room.memory_bytes {
                let mebi = |bytes: u64| bytes >> 20;
                let (asked, taken) = (mebi(asked.memory_bytes), mebi(taken.memory_bytes));
                let all = mebi(all.memory_bytes);
                warnings.push(format!(
                    "{cluster}: what is planned asks for {asked}Mi of memory and other deployments \
                     for {taken}Mi, and its ready nodes have {all}Mi"
                ));
            }
        }
        warnings
    }
}

impl Capacity {
    fn plus(self, other: Self, times: i32) -> Self {
        let times = u64::try_from(times).unwrap_or_default();
        let sum = |one: u64, other: u64| one.saturating_add(other.saturating_mul(times));
        Self {
            cpu_millis: sum(self.cpu_millis, other.cpu_millis),
            memory_bytes: sum(self.memory_bytes, other.memory_bytes),
        }
    }
}

/// What a unit asks for at the least: as many instances as there always are, with what CRM has each
/// of them request. That differs by the profile of the cluster that it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    dev: Capacity,
    edge: Capacity,
    full: Capacity,
}

impl Asks {
    /// What a unit asks for.
    pub(super) fn of(spec: &ClassSpec) -> Self {
        let [dev, edge, full] =
            [Profile::Dev, Profile::Edge, Profile::Full].map(|profile| asked(spec, profile));
        Self { dev, edge, full }
    }

    /// What a unit asks for that a cluster has been sent; nothing where that can't be read.
    pub fn read(spec: &serde_json::Value) -> Self {
        ClassSpec::deserialize(spec).map(|spec| Self::of(&spec)).unwrap_or_default()
    }

    /// What two ask for together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            dev: self.dev.plus(other.dev, 1),
            edge: self.edge.plus(other.edge, 1),
            full: self.full.plus(other.full, 1),
        }
    }

    /// What that is on a cluster.
    pub fn on(self, facts: &ClusterFacts) -> Capacity {
        match facts.profile() {
            Profile::Dev => self.dev,
            Profile::Edge => self.edge,
            Profile::Full => self.full,
        }
    }
}

/// What a unit asks for where the cluster has that profile.
fn asked(spec: &ClassSpec, profile: Profile) -> Capacity {
    let template = spec.selected_template.as_deref().or(spec.template_hint.as_deref());
    let profile = profile.under(template);
    let of_class = spec.nfr_requirements.as_ref().and_then(|it| it.max_latency_ms);
    let mut sum = Capacity::default();
    for function in &spec.functions {
        if function.image.is_none() || spec.disabled_functions.contains(&function.key) {
            continue;
        }
        let own = function.requirements.as_ref().and_then(|it| it.max_latency_ms);
        let standby = spec.standby_functions.contains(&function.key);
        let provision = function.provision.clone().unwrap_or_default();
        let usual = profile.function(own.or(of_class));
        let one = each(provision.requests.as_ref(), provision.limits.as_ref(), usual);
        sum = sum.plus(one, profile.instances(template, standby, &provision));
    }
    if let Some(grid) = &spec.odgm_config {
        let factor = spec.resource_allocation.as_ref().and_then(|it| it.replication_factor);
        let nodes = grid.replicas.unwrap_or(1).max(factor.unwrap_or(1));
        let one = each(grid.requests.as_ref(), grid.limits.as_ref(), profile.grid());
        sum = sum.plus(one, nodes);
    }
    sum
}

/// What one instance asks for. Where that isn't said CRM requests what is usual, up to the limit.
pub(super) fn each(
    requests: Option<&Resources>,
    limits: Option<&Resources>,
    usual: Capacity,
) -> Capacity {
    type Which = fn(&Resources) -> Option<&String>;
    // Amounts end at 2^63.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = |worth: f64| worth.round() as u64;
    let amount = |of: Option<&Resources>, which: Which, unit: f64| {
        let text = of.and_then(which)?;
        Some(whole(Quantity(text.clone()).value()? * unit))
    };
    let one = |which: Which, unit: f64, usual: u64| {
        let limit = || amount(limits, which, unit).unwrap_or(u64::MAX);
        amount(requests, which, unit).unwrap_or_else(|| usual.min(limit()))
    };
    Capacity {
        cpu_millis: one(|it| it.cpu.as_ref(), 1000.0, usual.cpu_millis),
        memory_bytes: one(|it| it.memory.as_ref(), 1.0, usual.memory_bytes),
    }
}
