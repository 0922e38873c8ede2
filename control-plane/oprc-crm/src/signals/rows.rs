//! The answers as a table: the values of each query, pod and dimension at the times of the window.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    collect::QueryResults,
    pods::PodIndex,
    query::{Query, Source},
    window::Window,
};
use crate::provider::{Series, known_value};

/// A value for each time of the window; None is unknown.
pub(super) type Row = Vec<Option<f64>>;

/// What distinguishes series of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dimension<'a> {
    /// Empty if the series lacks the label.
    Label(&'a str),
    /// The upper bound of a bucket, as bits: those of numbers that aren't negative have their order.
    UpperBound(u64),
}

pub(super) type PodRows<'a> = BTreeMap<Dimension<'a>, Row>;

#[derive(Default)]
pub(super) struct Rows<'a> {
    /// By query and the number of the pod.
    by_pod: BTreeMap<(Query, usize), PodRows<'a>>,
    /// Series without a pod of a class.
    pub(super) ignored: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn read(results: &'a QueryResults, index: &PodIndex) -> Self {
        let mut rows = Self::default();
        // A query that was replaced may leave labels that CRM doesn't know; which of the series is
        // meant can't be told.
        let mut ambiguous = BTreeSet::new();
        for (query, answer) in &results.answers {
            let Some(set) = answer.as_ref().ok().filter(|set| !set.partial) else { continue };
            for series in &set.series {
                rows.add(*query, series, results.window, index, &mut ambiguous);
            }
        }
        rows.by_pod.retain(|key, _| !ambiguous.contains(key));
        rows
    }

    pub(super) fn get(&self, query: Query, pod: usize) -> Option<&PodRows<'a>> {
        self.by_pod.get(&(query, pod))
    }

    fn add(
        &mut self,
        query: Query,
        series: &'a Series,
        window: Window,
        index: &PodIndex,
        ambiguous: &mut BTreeSet<(Query, usize)>,
    ) {
        let label = |name: &str| series.labels.get(name).map_or("", String::as_str);
        let pods: Vec<_> = index.named(label("namespace"), label("pod")).collect();
        if pods.is_empty() {
            self.ignored += 1;
            return;
        }
        let Some(dimension) = dimension(query, label(query.dimension().unwrap_or_default())) else {
            return;
        };
        for (number, pod) in &pods {
            if query.source() == Source::CAdvisor && label("container") != pod.container {
                continue;
            }
            // A point belongs to the last pod with the name that existed at the time.
            let next = pods.iter().find(|(other, _)| other > number).map(|(_, next)| next.created);
            let mut row = vec![None; window.len()];
            for point in &series.points {
                let own = point.at >= pod.created && next.is_none_or(|next| point.at < next);
                let cell = window.index(point.at).filter(|_| own);
                if let Some(cell) = cell.and_then(|index| row.get_mut(index)) {
                    *cell = known_value(point.value);
                }
            }
            let rows = self.by_pod.entry((query, *number)).or_default();
            if rows.insert(dimension, row).is_some() {
                ambiguous.insert((query, *number));
            }
        }
    }
}

/// None for a bucket without a valid bound.
fn dimension(query: Query, label: &str) -> Option<Dimension<'_>> {
    if query.dimension() != Some("le") {
        return Some(Dimension::Label(label));
    }
    let bound: f64 = label.parse().ok().filter(|bound| *bound >= 0.0)?;
    Some(Dimension::UpperBound((bound + 0.0).to_bits()))
}
