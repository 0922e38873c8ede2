//! Whether a cluster has room for what is planned.

use std::collections::BTreeMap;

use oprc_grpc::deployment::unit::{ClassSpec, Resources};
use oprc_models::Amount;
use serde::Deserialize as _;

use super::{Capacity, ClusterFacts, targets::Place};

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

/// What a unit asks for at the least: as many instances as there always are, with what each of
/// them says that it needs. What says nothing counts nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// By those whose number is said.
    said: Capacity,
    /// By one each of those whose number the cluster decides on.
    usual: Capacity,
}

impl Asks {
    /// What a unit asks for.
    pub(super) fn of(spec: &ClassSpec) -> Self {
        let mut asks = Self::default();
        for function in &spec.functions {
            if function.image.is_none() || spec.disabled_functions.contains(&function.key) {
                continue;
            }
            let provision = function.provision.clone().unwrap_or_default();
            let one = each(provision.requests.as_ref(), provision.limits.as_ref());
            match provision.min_scale {
                Some(instances) => asks.said = asks.said.plus(one, instances),
                None => asks.usual = asks.usual.plus(one, 1),
            }
        }
        if let Some(grid) = &spec.odgm_config {
            let factor = spec.resource_allocation.as_ref().and_then(|it| it.replication_factor);
            let nodes = grid.replicas.unwrap_or(1).max(factor.unwrap_or(1));
            asks.said = asks.said.plus(each(grid.requests.as_ref(), grid.limits.as_ref()), nodes);
        }
        asks
    }

    /// What a unit asks for that a cluster has been sent; nothing where that can't be read.
    pub fn read(spec: &serde_json::Value) -> Self {
        ClassSpec::deserialize(spec).map(|spec| Self::of(&spec)).unwrap_or_default()
    }

    /// What two ask for together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { said: self.said.plus(other.said, 1), usual: self.usual.plus(other.usual, 1) }
    }

    /// What that is on a cluster.
    pub fn on(self, facts: &ClusterFacts) -> Capacity {
        self.said.plus(self.usual, facts.usual_instances())
    }
}

/// What one instance asks for; Kubernetes takes the limit where no request is said.
fn each(requests: Option<&Resources>, limits: Option<&Resources>) -> Capacity {
    let amount = |of: fn(&Resources) -> Option<&String>| {
        let text = requests.and_then(of).or_else(|| limits.and_then(of))?;
        Amount(text.clone()).worth()
    };
    // Amounts end at 2^63.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = |worth: f64| worth.round() as u64;
    Capacity {
        cpu_millis: whole(amount(|it| it.cpu.as_ref()).unwrap_or_default() * 1000.0),
        memory_bytes: whole(amount(|it| it.memory.as_ref()).unwrap_or_default()),
    }
}
