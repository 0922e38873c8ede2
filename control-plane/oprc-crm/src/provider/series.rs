use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use super::QueryError;

/// No signal has values above this; a larger one is an error of the exporter or an overflow.
pub const MAX_VALUE: f64 = 1e15;

/// The value if it can be a measurement. NaN, infinite, negative and absurdly large ones are unknown.
pub fn known_value(value: f64) -> Option<f64> {
    // Adding zero turns -0.0 into 0.0.
    (0.0..=MAX_VALUE).contains(&value).then_some(value + 0.0)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub at: Timestamp,
    pub value: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    /// In order of time, without those whose value is unknown.
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSet {
    /// Their labels differ.
    pub series: Vec<Series>,
    /// The store warned that it couldn't evaluate everything, so a missing series or a lower value says
    /// nothing.
    pub partial: bool,
}

/// The labels of a series, in the order of their names. Reading an answer reuses their memory.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// Those after `len` are unused.
    all: Vec<(String, String)>,
    len: usize,
}

impl Labels {
    /// Empty if there is no such label.
    pub fn get(&self, name: &str) -> &str {
        let found = self.iter().find(|(label, _)| *label == name);
        found.map_or("", |(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all.iter().take(self.len).map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The next label, to be overwritten.
    pub(super) fn push(&mut self) -> &mut (String, String) {
        let index = self.len;
        self.len += 1;
        if self.all.len() <= index {
            self.all.push(Default::default());
        }
        #[allow(clippy::indexing_slicing)]
        &mut self.all[index]
    }

    pub(super) fn sort(&mut self) {
        if let Some(used) = self.all.get_mut(..self.len) {
            used.sort_unstable();
        }
    }
}

impl From<&Series> for Labels {
    fn from(series: &Series) -> Self {
        let all: Vec<_> = series.labels.clone().into_iter().collect();
        Self { len: all.len(), all }
    }
}

/// Takes the series of an answer one by one, on the thread that parses it.
pub trait SeriesSink: Send + Sync {
    /// Forgets all series: the query is sent, possibly again.
    fn reset(&self);

    /// `points` are as in [`Series::points`]. An error ends the query.
    fn accept(&self, labels: &Labels, points: &[Point]) -> Result<(), QueryError>;
}

impl SeriesSink for Mutex<SeriesSet> {
    fn reset(&self) {
        self.lock().series.clear();
    }

    fn accept(&self, labels: &Labels, points: &[Point]) -> Result<(), QueryError> {
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let series = Series { labels: labels.collect(), points: points.to_vec() };
        self.lock().series.push(series);
        Ok(())
    }
}

/// What a query returned besides its series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// As [`SeriesSet::partial`].
    pub partial: bool,
    /// The size of the answer.
    pub bytes: usize,
}
