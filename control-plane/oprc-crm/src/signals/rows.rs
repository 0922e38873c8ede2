//! The answers as tables: the values of each query, pod and dimension at the times of a window.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    budget::{AnswerBudget, PassBudget},
    pods::PodIndex,
    query::{Query, Source},
    window::Window,
};
use crate::provider::{Labels, Point, QueryError, Received, SeriesSink, known_value};

/// A value for each time of the window; None is unknown.
pub(super) type Row = Vec<Option<f64>>;

/// What distinguishes series of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dimension {
    /// Empty if the series lacks the label.
    Label(Box<str>),
    /// The upper bound of a bucket, as bits: those of numbers that aren't negative have their order.
    UpperBound(u64),
}

/// The rows of a pod, in one block: an allocation for each row would take more memory than its values.
#[derive(Clone, Debug)]
pub(super) struct PodRows {
    /// The number of each row.
    dimensions: BTreeMap<Dimension, usize>,
    /// The rows one after another; NaN is unknown. Single precision is far more precise than measurements.
    values: Vec<f32>,
    /// The number of times.
    width: usize,
}

/// The values of a pod in one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRef<'a>(&'a [f32]);

impl RowRef<'_> {
    pub(super) fn get(self, at: usize) -> Option<f64> {
        self.0.get(at).copied().map(f64::from).filter(|value| !value.is_nan())
    }
}

impl PodRows {
    fn new(width: usize) -> Self {
        Self { dimensions: BTreeMap::new(), values: Vec::new(), width }
    }

    pub(super) fn get(&self, dimension: &Dimension) -> Option<RowRef<'_>> {
        self.dimensions.get(dimension).map(|number| self.row(*number))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Dimension, RowRef<'_>)> {
        self.dimensions.iter().map(|(dimension, number)| (dimension, self.row(*number)))
    }

    fn row(&self, number: usize) -> RowRef<'_> {
        let start = number * self.width;
        RowRef(self.values.get(start..start + self.width).unwrap_or_default())
    }

    /// Adds a row of unknown values.
    fn insert(&mut self, dimension: Dimension) -> &mut [f32] {
        let start = self.values.len();
        self.dimensions.insert(dimension, start / self.width.max(1));
        if self.values.capacity() < start + self.width {
            self.values.reserve_exact(self.width.max(start / 4));
        }
        self.values.resize(start + self.width, f32::NAN);
        self.values.get_mut(start..).unwrap_or_default()
    }

    /// Bound on the memory of a row.
    fn row_bytes(dimension: &Dimension, width: usize) -> usize {
        let label = match dimension {
            Dimension::Label(label) => label.len(),
            Dimension::UpperBound(_) => 0,
        };
        // Half of a node of the map, and a fifth of the values, may be unused.
        let entry = 2 * size_of::<(Dimension, usize)>() + 2 * size_of::<usize>();
        entry + label + width * size_of::<f32>() * 5 / 4
    }
}

/// The answer to a query, reduced to pods of classes.
#[derive(Clone, Debug, Default)]
pub struct QueryRows {
    /// As [`crate::provider::SeriesSet::partial`].
    pub partial: bool,
    /// The size of the answer, and of the values that are kept.
    pub(super) bytes: usize,
    pub(super) kept_bytes: usize,
    /// Series without a pod of a class.
    pub(super) ignored: usize,
    /// By the number of the pod.
    by_pod: BTreeMap<usize, PodRows>,
}

impl QueryRows {
    pub(super) fn get(&self, pod: usize) -> Option<&PodRows> {
        self.by_pod.get(&pod).filter(|_| !self.partial)
    }
}

/// Keeps the values of the pods of classes, and nothing else of an answer.
pub(super) struct RowSink {
    query: Query,
    window: Window,
    index: Arc<PodIndex>,
    pass: Arc<PassBudget>,
    kept: Mutex<Kept>,
}

struct Kept {
    budget: AnswerBudget,
    rows: QueryRows,
    /// A query that was replaced may leave labels that CRM doesn't know; which of the series of these
    /// pods is meant can't be told.
    ambiguous: BTreeSet<usize>,
}

impl Kept {
    fn new(pass: &Arc<PassBudget>) -> Self {
        Self { budget: pass.start_answer(), rows: QueryRows::default(), ambiguous: BTreeSet::new() }
    }
}

impl RowSink {
    pub(super) fn new(
        query: Query,
        window: Window,
        index: &Arc<PodIndex>,
        pass: &Arc<PassBudget>,
    ) -> Self {
        let (index, pass) = (Arc::clone(index), Arc::clone(pass));
        Self { query, window, index, kept: Mutex::new(Kept::new(&pass)), pass }
    }

    /// What was kept of an answer that is valid.
    pub(super) fn take(&self, received: Received) -> QueryRows {
        let mut kept = self.kept.lock();
        let mut rows = mem::take(&mut kept.rows);
        rows.by_pod.retain(|pod, _| !kept.ambiguous.contains(pod));
        (rows.partial, rows.bytes) = (received.partial, received.bytes);
        rows.kept_bytes = kept.budget.keep();
        rows
    }
}

impl SeriesSink for RowSink {
    fn reset(&self) {
        *self.kept.lock() = Kept::new(&self.pass);
    }

    fn accept(&self, labels: &Labels, points: &[Point]) -> Result<(), QueryError> {
        let mut kept = self.kept.lock();
        let Kept { budget, rows, ambiguous } = &mut *kept;
        let pods = || self.index.named(labels.get("namespace"), labels.get("pod"));
        if pods().next().is_none() {
            rows.ignored += 1;
            return Ok(());
        }
        let name = self.query.dimension().unwrap_or_default();
        let Some(dimension) = dimension(self.query, labels.get(name)) else { return Ok(()) };
        let width = self.window.len();
        for (number, pod) in pods() {
            if self.query.source() == Source::CAdvisor && labels.get("container") != pod.container {
                continue;
            }
            if rows.by_pod.get(&number).is_some_and(|rows| rows.get(&dimension).is_some()) {
                ambiguous.insert(number);
                continue;
            }
            budget.take(PodRows::row_bytes(&dimension, width))?;
            let of_pod = rows.by_pod.entry(number).or_insert_with(|| PodRows::new(width));
            let row = of_pod.insert(dimension.clone());
            // A point belongs to the last pod with the name that existed at the time.
            let next = pods().find(|(other, _)| *other > number).map(|(_, next)| next.created);
            for point in points {
                let own = point.at >= pod.created && next.is_none_or(|next| point.at < next);
                let cell = self.window.index(point.at).filter(|_| own);
                if let Some(cell) = cell.and_then(|index| row.get_mut(index)) {
                    *cell = stored(point.value);
                }
            }
        }
        Ok(())
    }
}

/// Known values are far below the largest of single precision.
#[allow(clippy::cast_possible_truncation)]
fn stored(value: f64) -> f32 {
    known_value(value).map_or(f32::NAN, |value| value as f32)
}

/// None for a bucket without a valid bound.
fn dimension(query: Query, label: &str) -> Option<Dimension> {
    if !query.is_histogram() {
        return Some(Dimension::Label(label.into()));
    }
    let bound: f64 = label.parse().ok().filter(|bound| *bound >= 0.0)?;
    Some(Dimension::UpperBound((bound + 0.0).to_bits()))
}
