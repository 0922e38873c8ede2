//! Reads answers of the Prometheus API strictly and while they arrive: what isn't understood is an
//! error, not an empty result, and only one series is in memory.

use std::{
    cell::Cell,
    collections::HashSet,
    fmt,
    hash::{BuildHasher as _, Hash, Hasher, RandomState},
    io::{self, BufReader, Read},
    rc::Rc,
};

use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{Labels, Point, QueryError, SeriesSink, known_value};

pub(super) const MAX_SERIES: usize = 200_000;
/// Prometheus itself returns no more points for a series.
pub(super) const MAX_POINTS_PER_SERIES: usize = 11_000;
/// Bound on the text of one series, and on everything outside of the series.
pub(super) const MAX_SERIES_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// Bound on texts of the server in error messages.
const MAX_MESSAGE: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultType {
    Matrix,
    Vector,
}

impl ResultType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Vector => "vector",
        }
    }
}

/// What the answer must be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) result_type: ResultType,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) max_bytes: usize,
}

/// Reads the answer to a query with HTTP status 200, and passes its series to the sink; they count only
/// if the answer is valid to its end. Returns whether it is partial.
pub(super) fn parse(
    body: impl Read,
    expected: Expected,
    sink: &dyn SeriesSink,
) -> Result<bool, QueryError> {
    let unparsed = Rc::new(Cell::new(0));
    let limited = LimitedReader { inner: body, unparsed: Rc::clone(&unparsed) };
    let mut reader = SeriesReader {
        expected,
        sink,
        unparsed,
        labels: Labels::default(),
        points: Vec::new(),
        seen: HashSet::new(),
        hasher: RandomState::new(),
        error: None,
    };
    let mut json =
        serde_json::Deserializer::from_reader(BufReader::with_capacity(READ_BYTES, limited));
    let answer = AnswerSeed(&mut reader).deserialize(&mut json);
    let answer = answer.and_then(|answer| json.end().map(|()| answer));
    if let Some(error) = reader.error {
        return Err(error);
    }
    let answer = answer.map_err(|error| not_json(&error))?;
    if answer.status == Status::Error {
        return Err(rejection(&answer.error).unwrap_or_else(|| not_prometheus("status error")));
    }
    let result_type = answer.result_type.ok_or_else(|| not_prometheus("missing data"))?;
    let wanted = expected.result_type.as_str();
    if result_type != wanted {
        let found = shortened(&result_type);
        return Err(QueryError::Invalid(format!("result type {found:?} instead of {wanted:?}")));
    }
    Ok(answer.has_warnings)
}

/// The error in an answer with another HTTP status.
pub(super) fn parse_error(status: u16, body: &[u8]) -> QueryError {
    let answer = serde_json::from_slice::<ErrorFields>(body).ok();
    answer.as_ref().and_then(rejection).unwrap_or(QueryError::Status(status))
}

fn rejection(answer: &ErrorFields) -> Option<QueryError> {
    let message = || shortened(answer.error.as_deref().unwrap_or("no message"));
    match answer.error_type.as_deref()? {
        "timeout" => Some(QueryError::Timeout),
        "bad_data" | "execution" => Some(QueryError::BadQuery(message())),
        _ => None,
    }
}

/// Fails when more than [`MAX_SERIES_BYTES`] were read since `unparsed` was set to zero.
struct LimitedReader<R> {
    inner: R,
    unparsed: Rc<Cell<usize>>,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.unparsed.set(self.unparsed.get().saturating_add(read));
        if self.unparsed.get() > MAX_SERIES_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(read)
    }
}

/// The current series, and what is known about those before it.
struct SeriesReader<'a> {
    expected: Expected,
    sink: &'a dyn SeriesSink,
    unparsed: Rc<Cell<usize>>,
    labels: Labels,
    points: Vec<Point>,
    /// Hashes of the labels of all series, to find duplicates.
    seen: HashSet<u64>,
    hasher: RandomState,
    /// An error that isn't one of JSON.
    error: Option<QueryError>,
}

impl SeriesReader<'_> {
    fn start_series(&mut self) {
        self.labels.clear();
        self.points.clear();
    }

    fn end_series(&mut self) -> Result<(), QueryError> {
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

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Success,
    Error,
}

#[derive(Default, Deserialize)]
struct ErrorFields {
    #[serde(rename = "errorType")]
    error_type: Option<String>,
    error: Option<String>,
}

/// An answer without its series.
struct Answer {
    status: Status,
    /// None without data.
    result_type: Option<String>,
    error: ErrorFields,
    has_warnings: bool,
}

struct AnswerSeed<'a, 'e>(&'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for AnswerSeed<'_, '_> {
    type Value = Answer;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Answer, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AnswerSeed<'_, '_> {
    type Value = Answer;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an answer of Prometheus")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Answer, A::Error> {
        let (mut status, mut result_type) = (None, None);
        let (mut error, mut has_warnings) = (ErrorFields::default(), false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" if status.is_none() => status = Some(map.next_value()?),
                "data" if result_type.is_none() => {
                    result_type = map.next_value_seed(DataSeed(&mut *self.0))?;
                }
                "errorType" => error.error_type = map.next_value()?,
                "error" => error.error = map.next_value()?,
                // Elements without a size.
                "warnings" => {
                    let warnings: Option<Vec<IgnoredAny>> = map.next_value()?;
                    has_warnings |= warnings.is_some_and(|warnings| !warnings.is_empty());
                }
                "status" | "data" => return Err(de::Error::custom("a field is there twice")),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let status = status.ok_or_else(|| de::Error::missing_field("status"))?;
        Ok(Answer { status, result_type, error, has_warnings })
    }
}

/// Reads the data of an answer, and returns its result type.
struct DataSeed<'a, 'e>(&'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for DataSeed<'_, '_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for DataSeed<'_, '_> {
    type Value = Option<String>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the data of an answer")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut result_type, mut has_result) = (None::<String>, false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "resultType" if result_type.is_none() => result_type = Some(map.next_value()?),
                "result" if !has_result => {
                    has_result = true;
                    let wanted = self.0.expected.result_type.as_str();
                    // Of another type, which is an error once the answer has been read.
                    if result_type.as_ref().is_some_and(|found| found != wanted) {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        map.next_value_seed(ResultSeed(&mut *self.0))?;
                    }
                }
                "resultType" | "result" => return Err(de::Error::custom("a field is there twice")),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !has_result {
            return Err(de::Error::missing_field("result"));
        }
        result_type.map(Some).ok_or_else(|| de::Error::missing_field("resultType"))
    }
}

struct ResultSeed<'a, 'e>(&'a mut SeriesReader<'e>);

impl<'de> DeserializeSeed<'de> for ResultSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ResultSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        loop {
            self.0.start_series();
            if list.next_element_seed(SeriesSeed(&mut *self.0))?.is_none() {
                return Ok(());
            }
            if self.0.error.is_none() {
                self.0.error = self.0.end_series().err();
            }
            if self.0.error.is_some() {
                return Err(de::Error::custom("stopped"));
            }
        }
    }
}

/// Reads a series into the reader.
struct SeriesSeed<'a, 'e>(&'a mut SeriesReader<'e>);

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

/// A value that is unknown is NaN.
struct RawPoint(Point);

impl<'de> Deserialize<'de> for RawPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seconds, ValueText(value)) = <(f64, ValueText)>::deserialize(deserializer)?;
        let at = timestamp(seconds).ok_or_else(|| de::Error::custom("invalid timestamp"))?;
        Ok(Self(Point { at, value: value.unwrap_or(f64::NAN) }))
    }
}

/// Prometheus has a precision of milliseconds.
fn timestamp(seconds: f64) -> Option<Timestamp> {
    let milliseconds = (seconds * 1000.0).round();
    // Larger numbers aren't exact, and years after 10,000.
    if !(0.0..=1e15).contains(&milliseconds) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation)]
    Timestamp::from_millisecond(milliseconds as i64).ok()
}

/// A number as text, such as "0.5" or "NaN".
struct ValueText(Option<f64>);

impl<'de> Deserialize<'de> for ValueText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = ValueText;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number as text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ValueText, E> {
                Ok(ValueText(text.parse().ok().and_then(known_value)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

fn not_json(error: &serde_json::Error) -> QueryError {
    // Only `LimitedReader` fails.
    if error.is_io() { QueryError::TooLarge } else { not_prometheus(&error.to_string()) }
}

fn not_prometheus(reason: &str) -> QueryError {
    QueryError::NotPrometheus(shortened(reason))
}

/// On one line, because it ends up in logs and conditions.
fn shortened(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MAX_MESSAGE).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::{super::SeriesSet, *};

    fn expected(result_type: ResultType) -> Expected {
        let at = |second| Timestamp::from_second(second).unwrap();
        Expected { result_type, start: at(1000), end: at(1060), max_bytes: usize::MAX }
    }

    fn read(body: &[u8], result_type: ResultType) -> Result<SeriesSet, QueryError> {
        let sink = Mutex::new(SeriesSet::default());
        let partial = parse(body, expected(result_type), &sink)?;
        Ok(SeriesSet { partial, ..sink.into_inner() })
    }

    fn matrix(result: &str) -> Result<SeriesSet, QueryError> {
        let body =
            format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":{result}}}}}"#);
        read(body.as_bytes(), ResultType::Matrix)
    }

    fn values(values: &str) -> Result<Vec<(i64, f64)>, QueryError> {
        let set = matrix(&format!(r#"[{{"metric":{{"pod":"a"}},"values":{values}}}]"#))?;
        let points = set.series.iter().flat_map(|series| &series.points);
        Ok(points.map(|point| (point.at.as_millisecond(), point.value)).collect())
    }

    fn invalid(message: &str) -> QueryError {
        QueryError::Invalid(message.to_owned())
    }

    #[test]
    fn reads_a_matrix_and_a_vector() {
        let set = matrix(
            r#"[{"metric":{"pod":"a","namespace":"n"},"values":[[1000,"0.5"],[1030.5,"1e+3"]]},
                {"metric":{"pod":"b"},"values":[]}]"#,
        )
        .unwrap();
        assert!(!set.partial);
        let [a, b] = set.series.as_slice() else { panic!("{set:?}") };
        assert_eq!(a.labels["namespace"], "n");
        let points: Vec<_> = a.points.iter().map(|it| (it.at.as_millisecond(), it.value)).collect();
        assert_eq!(points, [(1_000_000, 0.5), (1_030_500, 1000.0)]);
        assert_eq!(b.points, []);

        let body = r#"{"status":"success","data":{"resultType":"vector","result":
            [{"metric":{},"value":[1060,"7"]}]}}"#;
        let set = read(body.as_bytes(), ResultType::Vector).unwrap();
        let points: Vec<_> = set.series[0].points.iter().map(|point| point.value).collect();
        assert_eq!(points, [7.0]);
    }

    #[test]
    fn unknown_values_are_dropped() {
        let all = r#"[[1000,"NaN"],[1001,"+Inf"],[1002,"-Inf"],[1003,"-1"],[1004,"1e308"],
            [1005,"1000000000000001"],[1006,"abc"],[1007,""],[1008,"-0"],[1009,"1e15"]]"#;
        assert_eq!(values(all).unwrap(), [(1_008_000, 0.0), (1_009_000, 1e15)]);
        assert!(values(all).unwrap()[0].1.is_sign_positive());
    }

    #[test]
    fn points_outside_of_the_range_are_dropped() {
        let all = r#"[[999.999,"1"],[1000,"2"],[1060,"3"],[1060.001,"4"]]"#;
        assert_eq!(values(all).unwrap(), [(1_000_000, 2.0), (1_060_000, 3.0)]);
    }

    #[test]
    fn contradictions_are_invalid() {
        let out_of_order = Err(invalid("points are out of order"));
        assert_eq!(values(r#"[[1001,"1"],[1000,"1"]]"#), out_of_order);
        assert_eq!(values(r#"[[1001,"1"],[1001,"1"]]"#), out_of_order);
        // Even if the point is dropped for another reason.
        assert_eq!(values(r#"[[1001,"1"],[1,"NaN"]]"#), out_of_order);
        assert!(matrix(r#"[{"metric":{"a":"b"}},{"metric":{"b":"a"}}]"#).is_ok());
        let twice = r#"[{"metric":{"a":"1","b":"2"},"values":[]},{"metric":{"b":"2","a":"1"},"values":[]}]"#;
        assert_eq!(matrix(twice), Err(invalid("two series have the same labels")));
        let body = br#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#;
        let error = read(body, ResultType::Vector).unwrap_err();
        assert_eq!(error, invalid(r#"result type "scalar" instead of "vector""#));
    }

    #[test]
    fn other_documents_are_not_prometheus() {
        for body in [
            "",
            "<html>",
            "{}",
            "[]",
            "null",
            r#"{"status":"success"}"#,
            r#"{"status":"ok","data":{"resultType":"matrix","result":[]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":{}}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1000,1]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1000,"1",2]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[-1,"1"]]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":1},"values":[]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"values":[]}]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[]}} trailing"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"val"#,
            r#"{"status":"error"}"#,
            r#"{"status":"success","data":null}"#,
            r#"{"status":"success","data":{"resultType":"matrix"}}"#,
            r#"{"status":"success","data":{"result":[]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":[],"result":[]}}"#,
            r#"{"status":"success","status":"success","data":{"resultType":"matrix","result":[]}}"#,
        ] {
            let error = read(body.as_bytes(), ResultType::Matrix).unwrap_err();
            assert!(matches!(error, QueryError::NotPrometheus(_)), "{body}: {error:?}");
        }
    }

    #[test]
    fn warnings_mark_the_result_as_partial() {
        let body = |warnings: &str| {
            let data = r#""data":{"resultType":"matrix","result":[]}"#;
            format!(r#"{{"status":"success",{data},{warnings}}}"#)
        };
        for (warnings, partial) in [
            (r#""warnings":["one store is down"]"#, true),
            (r#""warnings":[]"#, false),
            (r#""infos":["metric might not be a counter"]"#, false),
        ] {
            let set = read(body(warnings).as_bytes(), ResultType::Matrix).unwrap();
            assert_eq!(set.partial, partial, "{warnings}");
        }
    }

    #[test]
    fn errors_of_the_server_are_classified() {
        let error =
            |kind: &str| format!(r#"{{"status":"error","errorType":"{kind}","error":"x\ny"}}"#);
        let rejected = QueryError::BadQuery("x y".to_owned());
        assert_eq!(parse_error(400, error("bad_data").as_bytes()), rejected);
        assert_eq!(parse_error(422, error("execution").as_bytes()), rejected);
        assert_eq!(parse_error(503, error("timeout").as_bytes()), QueryError::Timeout);
        assert_eq!(parse_error(503, error("canceled").as_bytes()), QueryError::Status(503));
        assert_eq!(parse_error(502, b"<html>"), QueryError::Status(502));
        assert_eq!(parse_error(401, b""), QueryError::Status(401));
        assert_eq!(shortened(&"x".repeat(1000)).len(), MAX_MESSAGE);
    }

    #[test]
    fn fields_may_have_any_order() {
        let body = r#"{"stats":{"x":[1,{}]},"warnings":["x"],"data":{"other":1,"result":
            [{"values":[[1000,"1"]],"metric":{}}],"resultType":"matrix"},"status":"success"}"#;
        let set = read(body.as_bytes(), ResultType::Matrix).unwrap();
        assert!(set.partial);
        assert_eq!(set.series[0].points.len(), 1);
        let vector = body.replace("matrix", "vector");
        let error = read(vector.as_bytes(), ResultType::Matrix).unwrap_err();
        assert_eq!(error, invalid(r#"result type "vector" instead of "matrix""#));
    }

    /// Takes this many series.
    struct Bounded(AtomicUsize);

    impl SeriesSink for Bounded {
        fn reset(&self) {}

        fn accept(&self, _: &Labels, _: &[Point]) -> Result<(), QueryError> {
            let left = self.0.load(Ordering::SeqCst).checked_sub(1).ok_or(QueryError::TooLarge)?;
            self.0.store(left, Ordering::SeqCst);
            Ok(())
        }
    }

    #[test]
    fn series_are_passed_on_while_the_answer_is_read() {
        let series: Vec<_> =
            (0..1000).map(|it| format!(r#"{{"metric":{{"a":"{it}"}}}}"#)).collect();
        let head = r#"{"status":"success","data":{"resultType":"matrix","result":["#;
        let unfinished = format!("{head}{}", series.join(","));
        let sink = Bounded(AtomicUsize::new(1000));
        let result = parse(unfinished.as_bytes(), expected(ResultType::Matrix), &sink);
        assert!(matches!(result, Err(QueryError::NotPrometheus(_))), "{result:?}");
        assert_eq!(sink.0.into_inner(), 0);
        let sink = Bounded(AtomicUsize::new(10));
        let result = parse(unfinished.as_bytes(), expected(ResultType::Matrix), &sink);
        assert_eq!(result, Err(QueryError::TooLarge), "the error of the sink");
    }

    #[test]
    fn oversized_texts_are_too_large() {
        let long = "x".repeat(MAX_SERIES_BYTES + (64 << 10));
        for body in [
            format!(r#"{{"{long}":1}}"#),
            format!(r#"{{"status":"success","error":"{long}"}}"#),
            format!(
                r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{"a":"{long}"}}}}]}}}}"#
            ),
        ] {
            assert_eq!(read(body.as_bytes(), ResultType::Matrix), Err(QueryError::TooLarge));
        }
    }

    #[test]
    fn too_many_series_or_points_are_too_large() {
        let series: Vec<_> =
            (0..=MAX_SERIES).map(|it| format!(r#"{{"metric":{{"a":"{it}"}}}}"#)).collect();
        assert_eq!(matrix(&format!("[{}]", series.join(","))), Err(QueryError::TooLarge));
        let points: Vec<_> =
            (0..=MAX_POINTS_PER_SERIES).map(|it| format!(r#"[{it},"1"]"#)).collect();
        assert_eq!(values(&format!("[{}]", points.join(","))), Err(QueryError::TooLarge));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&body, ResultType::Matrix);
            let _ = parse_error(500, &body);
        }

        #[test]
        fn arbitrary_points_give_known_values(
            points in prop::collection::vec((any::<f64>(), "[-+0-9.eEnaifINF]{0,8}"), 0..20)
        ) {
            let text: Vec<_> = points
                .iter()
                .filter(|(at, _)| at.is_finite())
                .map(|(at, value)| format!(r#"[{at},"{value}"]"#))
                .collect();
            if let Ok(points) = values(&format!("[{}]", text.join(","))) {
                prop_assert!(points.iter().all(|(_, value)| (0.0..=1e15).contains(value)));
            }
        }
    }
}
