//! Reads answers of the Prometheus API strictly: what isn't understood is an error, not an empty
//! result.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    marker::PhantomData,
};

use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Point, QueryError, Series, SeriesSet, known_value};

pub(super) const MAX_SERIES: usize = 200_000;
/// Prometheus itself returns no more points for a series.
pub(super) const MAX_POINTS_PER_SERIES: usize = 11_000;
pub(super) const MAX_POINTS: usize = 2_000_000;
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
}

#[derive(Deserialize)]
struct Answer<'a> {
    status: Status,
    #[serde(borrow)]
    data: Option<Data<'a>>,
    #[serde(rename = "errorType")]
    error_type: Option<String>,
    error: Option<String>,
    /// Elements without a size.
    warnings: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Success,
    Error,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(rename = "resultType")]
    result_type: String,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// The result of a query with HTTP status 200.
pub(super) fn parse(body: &[u8], expected: Expected) -> Result<SeriesSet, QueryError> {
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    if answer.status == Status::Error {
        return Err(rejection(&answer).unwrap_or_else(|| not_prometheus("status error")));
    }
    let data = answer.data.ok_or_else(|| not_prometheus("missing data"))?;
    let wanted = expected.result_type.as_str();
    if data.result_type != wanted {
        let found = shortened(&data.result_type);
        return Err(QueryError::Invalid(format!("result type {found:?} instead of {wanted:?}")));
    }
    let series: Bounded<RawSeries, MAX_SERIES> =
        serde_json::from_str(data.result.get()).map_err(|error| not_json(&error))?;
    if series.overflow {
        return Err(QueryError::TooLarge);
    }
    let partial = answer.warnings.is_some_and(|warnings| !warnings.is_empty());
    Ok(SeriesSet { series: checked(series.items, expected)?, partial })
}

/// The error in an answer with another HTTP status.
pub(super) fn parse_error(status: u16, body: &[u8]) -> QueryError {
    let answer = serde_json::from_slice::<Answer<'_>>(body).ok();
    answer.as_ref().and_then(rejection).unwrap_or(QueryError::Status(status))
}

fn rejection(answer: &Answer<'_>) -> Option<QueryError> {
    let message = || shortened(answer.error.as_deref().unwrap_or("no message"));
    match answer.error_type.as_deref()? {
        "timeout" => Some(QueryError::Timeout),
        "bad_data" | "execution" => Some(QueryError::BadQuery(message())),
        _ => None,
    }
}

fn checked(found: Vec<RawSeries>, expected: Expected) -> Result<Vec<Series>, QueryError> {
    let mut points = 0;
    let mut all = Vec::with_capacity(found.len());
    for RawSeries { metric, value, values } in found {
        let values = match expected.result_type {
            ResultType::Matrix => values.unwrap_or_default(),
            ResultType::Vector => Bounded { items: value.into_iter().collect(), overflow: false },
        };
        points += values.items.len();
        if values.overflow || points > MAX_POINTS {
            return Err(QueryError::TooLarge);
        }
        if values.items.windows(2).any(|pair| matches!(pair, [a, b] if a.at >= b.at)) {
            return Err(QueryError::Invalid("points are out of order".to_owned()));
        }
        let in_range = |at: &Timestamp| (expected.start..=expected.end).contains(at);
        let points = values.items.into_iter().filter(|point| in_range(&point.at));
        let points = points.filter_map(|it| Some(Point { at: it.at, value: it.value? })).collect();
        all.push(Series { labels: metric, points });
    }
    let labels: BTreeSet<_> = all.iter().map(|series| &series.labels).collect();
    if labels.len() < all.len() {
        return Err(QueryError::Invalid("two series have the same labels".to_owned()));
    }
    Ok(all)
}

#[derive(Deserialize)]
struct RawSeries {
    metric: BTreeMap<String, String>,
    value: Option<RawPoint>,
    values: Option<Bounded<RawPoint, MAX_POINTS_PER_SERIES>>,
}

struct RawPoint {
    at: Timestamp,
    /// None if it is unknown.
    value: Option<f64>,
}

impl<'de> Deserialize<'de> for RawPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seconds, ValueText(value)) = <(f64, ValueText)>::deserialize(deserializer)?;
        let at = timestamp(seconds).ok_or_else(|| de::Error::custom("invalid timestamp"))?;
        Ok(Self { at, value })
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

/// At most `MAX` elements; further ones are counted as overflow and not stored.
struct Bounded<T, const MAX: usize> {
    items: Vec<T>,
    overflow: bool,
}

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Self {
        Self { items: Vec::new(), overflow: false }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
            type Value = Bounded<T, MAX>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut found = Bounded::default();
                while found.items.len() < MAX {
                    let Some(item) = list.next_element()? else { return Ok(found) };
                    found.items.push(item);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    found.overflow = true;
                }
                Ok(found)
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

fn not_json(error: &serde_json::Error) -> QueryError {
    not_prometheus(&error.to_string())
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
    use proptest::prelude::*;

    use super::*;

    fn expected(result_type: ResultType) -> Expected {
        let at = |second| Timestamp::from_second(second).unwrap();
        Expected { result_type, start: at(1000), end: at(1060) }
    }

    fn matrix(result: &str) -> Result<SeriesSet, QueryError> {
        let body =
            format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":{result}}}}}"#);
        parse(body.as_bytes(), expected(ResultType::Matrix))
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
        let set = parse(body.as_bytes(), expected(ResultType::Vector)).unwrap();
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
        let twice = r#"[{"metric":{"a":"1","b":"2"},"values":[]},{"metric":{"b":"2","a":"1"},"values":[]}]"#;
        assert_eq!(matrix(twice), Err(invalid("two series have the same labels")));
        let body = br#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#;
        let error = parse(body, expected(ResultType::Vector)).unwrap_err();
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
        ] {
            let error = parse(body.as_bytes(), expected(ResultType::Matrix)).unwrap_err();
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
            let set = parse(body(warnings).as_bytes(), expected(ResultType::Matrix)).unwrap();
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
            let _ = parse(&body, expected(ResultType::Matrix));
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
