//! Compares the requests of a plan with the capacity of its clusters.

use std::collections::BTreeMap;

use oprc_unit::Capacity;

use super::{ClusterFacts, targets::Place};

/// Requests of a plan by cluster.
#[derive(Debug, Default)]
pub(super) struct Load<'a> {
    clusters: BTreeMap<&'a str, (&'a ClusterFacts, Capacity)>,
}

impl<'a> Load<'a> {
    pub(super) fn add(&mut self, place: &Place<'a>, requested: Capacity) {
        let (_, sum) =
            self.clusters.entry(place.cluster).or_insert((place.facts, Capacity::default()));
        *sum = sum.plus(requested, 1);
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (cluster, (facts, planned)) in &self.clusters {
            let (Some(all), free, others) = (facts.capacity, facts.free(), facts.requested) else {
                continue;
            };
            if planned.cpu_millis > free.cpu_millis {
                warnings.push(format!(
                    "{cluster}: the plan requests {}m CPU and other deployments {}m, but the ready \
                     nodes have {}m",
                    planned.cpu_millis, others.cpu_millis, all.cpu_millis
                ));
            }
            if planned.memory_bytes > free.memory_bytes {
                let mebi = |bytes: u64| bytes >> 20;
                warnings.push(format!(
                    "{cluster}: the plan requests {}Mi memory and other deployments {}Mi, but the \
                     ready nodes have {}Mi",
                    mebi(planned.memory_bytes),
                    mebi(others.memory_bytes),
                    mebi(all.memory_bytes)
                ));
            }
        }
        warnings
    }
}
