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
            let excess = |what: &str, unit: &str, shift: u32, of: fn(Capacity) -> u64| {
                let [planned, free, others, all] = [*planned, free, others, all].map(of);
                let [requested, others, all] = [planned, others, all].map(|it| it >> shift);
                (planned > free).then(|| {
                    format!(
                        "{cluster}: the plan requests {requested}{unit} {what} and other \
                         deployments {others}{unit}, but the ready nodes have {all}{unit}"
                    )
                })
            };
            warnings.extend(excess("CPU", "m", 0, |it| it.cpu_millis));
            warnings.extend(excess("memory", "Mi", 20, |it| it.memory_bytes));
        }
        warnings
    }
}
