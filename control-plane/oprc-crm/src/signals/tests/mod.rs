mod collecting;
mod end_to_end;
mod folding;
mod histograms;
mod properties;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use super::{rows::RowSink, *};
use crate::provider::{Point, QueryError, Received, Series, SeriesSet, SeriesSink as _};

const STEP: i64 = 30;
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
/// The last time of the window.
const NOW: i64 = 100_200;
/// A window has this many times.
const TIMES: usize = 5;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn window() -> Window {
    let steps = u64::try_from(TIMES - 1).unwrap();
    let step = Duration::from_secs(30);
    Window::ending_at(at(NOW), step * u32::try_from(steps).unwrap(), step)
}

/// The time of an index of the window.
fn time(index: usize) -> i64 {
    NOW - STEP * i64::try_from(TIMES - 1 - index).unwrap()
}

/// A pod of function `f` of a class that has been ready for long.
fn pod(class: &str, name: &str) -> PodRef {
    PodRef {
        namespace: "n".to_owned(),
        name: name.to_owned(),
        created: at(1000),
        uid: format!("uid-of-{name}"),
        class: ("n".to_owned(), class.to_owned()),
        component: Component::Function("f".to_owned()),
        container: "function".to_owned(),
        image: "i".to_owned(),
        ready: true,
        ready_at: Some(at(1020)),
        unschedulable: false,
        deleted_at: None,
    }
}

fn component(class: &str) -> ComponentId {
    pod(class, "").component_id()
}

/// A series of a pod with a value at each time; None is a gap.
fn series(pod: &str, labels: &[(&str, &str)], values: &[Option<f64>]) -> Series {
    let own = [("namespace", "n"), ("pod", pod)];
    let labels =
        own.iter().chain(labels).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let points = values.iter().enumerate();
    let points =
        points.filter_map(|(index, value)| Some(Point { at: at(time(index)), value: (*value)? }));
    Series { labels: labels.collect(), points: points.collect() }
}

fn constant(pod: &str, labels: &[(&str, &str)], value: f64) -> Series {
    series(pod, labels, &[Some(value); TIMES])
}

type Answers = BTreeMap<Query, Result<SeriesSet, QueryError>>;

// The signature is that of an answer.
#[allow(clippy::unnecessary_wraps)]
fn answer(series: Vec<Series>) -> Result<SeriesSet, QueryError> {
    Ok(SeriesSet { series, partial: false })
}

/// What a pass keeps of these answers.
fn query_results(answers: Answers, index: &Arc<PodIndex>) -> QueryResults {
    let keep = |query: Query, set: SeriesSet| {
        let sink = RowSink::new(query, window(), index, &Arc::default());
        set.series.iter().try_for_each(|series| sink.accept(&series.into(), &series.points))?;
        Ok(sink.take(Received { partial: set.partial, bytes: 0 }))
    };
    let answers = answers.into_iter();
    let answers = answers.map(|(query, set)| (query, set.and_then(|set| keep(query, set))));
    QueryResults { window: window(), histogram_window: window(), answers: answers.collect() }
}

fn folded(answers: Answers, pods: impl IntoIterator<Item = PodRef>) -> Folded {
    let index = Arc::new(PodIndex::new(pods));
    fold(&query_results(answers, &index), &index, SCRAPE_INTERVAL, at(NOW))
}

/// The signals of class `a` from one answer.
fn signals(
    query: Query,
    series: Vec<Series>,
    pods: impl IntoIterator<Item = PodRef>,
) -> ComponentSignals {
    folded(Answers::from([(query, answer(series))]), pods).components[&component("a")].clone()
}

/// Indexes of the window and values.
fn points(signals: &ComponentSignals, signal: Signal) -> Vec<(usize, f64)> {
    let points = signals.get(signal).map(|observed| observed.points.as_slice()).unwrap_or_default();
    points.iter().map(|point| (window().index(point.at).unwrap(), point.value)).collect()
}
