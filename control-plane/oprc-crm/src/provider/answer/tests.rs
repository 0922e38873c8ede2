use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{
    error::MAX_MESSAGE,
    limited::MAX_SERIES_BYTES,
    series::{MAX_POINTS_PER_SERIES, MAX_SERIES},
    *,
};
use crate::provider::{Labels, Point, SeriesSet};

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
    let twice =
        r#"[{"metric":{"a":"1","b":"2"},"values":[]},{"metric":{"b":"2","a":"1"},"values":[]}]"#;
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
    let error = |kind: &str| format!(r#"{{"status":"error","errorType":"{kind}","error":"x\ny"}}"#);
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
    let series: Vec<_> = (0..1000).map(|it| format!(r#"{{"metric":{{"a":"{it}"}}}}"#)).collect();
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
    let points: Vec<_> = (0..=MAX_POINTS_PER_SERIES).map(|it| format!(r#"[{it},"1"]"#)).collect();
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
