//! The series of an answer, one at a time.

use std::{
    cell::Cell,
    collections::HashSet,
    fmt,
    hash::{BuildHasher as _, Hash, Hasher, RandomState},
    rc::Rc,
};

use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::point::RawPoint;
use crate::provider::{Labels, Point, QueryError, SeriesSink};

pub(super) const MAX_SERIES: usize = 200_000;
/// Prometheus itself returns no more points for a series.
pub(super) const MAX_POINTS_PER_SERIES: usize = 11_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum ResultType {
    Matrix,
    Vector,
}

impl ResultType {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Vector => "vector",
        }
    }
}

/// What the answer must be about.
#[derive(Clone, Copy, Debug)]
pub(in crate::provider) struct Expected {
    pub(in crate::provider) result_type: ResultType,
    pub(in crate::provider) start: Timestamp,
    pub(in crate::provider) end: Timestamp,
    pub(in crate::provider) max_bytes: usize,
}

/// The current series, and what is known about those before it.
pub(super) struct SeriesReader<'a> {
    pub(super) expected: Expected,
    sink: &'a dyn SeriesSink,
    unparsed: Rc<Cell<usize>>,
    labels: Labels,
    points: Vec<Point>,
    /// Hashes of the labels of all series, to find duplicates.
    seen: HashSet<u64>,
    hasher: RandomState,
    /// An error that isn't one of JSON.
    pub(super) error: Option<QueryError>,
}

impl<'a> SeriesReader<'a> {
    /// `unparsed` is set to zero after each series.
    pub(super) fn new(
        expected: Expected,
        sink: &'a dyn SeriesSink,
        unparsed: Rc<Cell<usize>>,
    ) -> Self {
        Self {
            expected,
            sink,
            unparsed,
            labels: Labels::default(),
            points: Vec::new(),
            seen: HashSet::new(),
            hasher: RandomState::new(),
            error: None,
        }
    }

    pub(super) fn start_series(&mut self) {
        self.labels.clear();
        self.points.clear();
    }

    pub(super) fn end_series(&mut self) -> Result<(), QueryError> {
        self.unparsed.set(0);
        if self.points.windows(2).any(|pair| matches!(pair, [a, b] if a.at >= b.at)) {
            return Err(QueryError::Invalid("points are out of order".to_owned()));
        }
        let Expected { start, end, .. } = self.expected;
        // Only now are unknown values dropped: their times must be in order as well.
        self.points.retain(|point| (start..=end).contains(&point.at) && !point.value.is_nan());
        if self.seen.len() >= MAX_SERIES {
            return Err(QueryError::TooLarge);
        }
        self.labels.sort();
        let mut hash = self.hasher.build_hasher();
        self.labels.iter().for_each(|label| label.hash(&mut hash));
        if !self.seen.insert(hash.finish()) {
            return Err(QueryError::Invalid("two series have the same labels".to_owned()));
        }
        self.sink.accept(&self.labels, &self.points)
    }
}

/// Reads a series into the reader.
pub(super) struct SeriesSeed<'a, 'e>(pub(super) &'a mut SeriesReader<'e>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum SeriesField {
    Metric,
    Value,
    Values,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for SeriesSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for SeriesSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a series")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut has_metric, mut has_values) = (false, false);
        let is_matrix = self.0.expected.result_type == ResultType::Matrix;
        while let Some(field) = map.next_key()? {
            match field {
                SeriesField::Metric if !has_metric => {
                    has_metric = true;
                    map.next_value_seed(LabelsSeed(&mut self.0.labels))?;
                }
                SeriesField::Values if is_matrix && !has_values => {
                    has_values = true;
                    map.next_value_seed(PointsSeed(&mut *self.0))?;
                }
                SeriesField::Value if !is_matrix && !has_values => {
                    has_values = true;
                    let RawPoint(point) = map.next_value()?;
                    self.0.points.push(point);
                }
                SeriesField::Metric => return Err(de::Error::custom("a field is there twice")),
                SeriesField::Value | SeriesField::Values if has_values => {
                    return Err(de::Error::custom("a field is there twice"));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if has_metric { Ok(()) } else { Err(de::Error::missing_field("metric")) }
    }
}

struct LabelsSeed<'a>(&'a mut Labels);

impl<'de> DeserializeSeed<'de> for LabelsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LabelsSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut name = String::new();
        while map.next_key_seed(TextSeed(&mut name))?.is_some() {
            let label = self.0.push();
            std::mem::swap(&mut label.0, &mut name);
            map.next_value_seed(TextSeed(&mut label.1))?;
        }
        Ok(())
    }
}

/// Overwrites a text.
struct TextSeed<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for TextSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for TextSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.0.clear();
        self.0.push_str(text);
        Ok(())
    }
}

struct PointsSeed<'a, 'e>(&'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for PointsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PointsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(RawPoint(point)) = list.next_element()? {
            if self.0.points.len() >= MAX_POINTS_PER_SERIES {
                self.0.error = Some(QueryError::TooLarge);
                return Err(de::Error::custom("stopped"));
            }
            self.0.points.push(point);
        }
        Ok(())
    }
}
