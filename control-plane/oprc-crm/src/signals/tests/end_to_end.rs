//! A pass against a server that lies.

use super::*;
use crate::provider::{
    PrometheusOptions, PrometheusProvider,
    tests::server::{LyingServer, Reply},
};

fn provider(server: &LyingServer) -> PrometheusProvider {
    let options = PrometheusOptions {
        url: format!("http://{}", server.address),
        timeout: Duration::from_secs(20),
        ca_file: None,
        token_file: None,
        client_certificate: None,
    };
    PrometheusProvider::new(options).unwrap()
}

/// An answer with a value of each pod at the last two times.
fn body(pods: &[(&str, &str)]) -> String {
    let series: Vec<_> = pods
        .iter()
        .map(|(pod, value)| {
            let (before, now) = (NOW - STEP, NOW);
            format!(
                r#"{{"metric":{{"namespace":"n","pod":"{pod}","container":"function"}},
                "values":[[{before},"{value}"],[{now},"{value}"]]}}"#
            )
        })
        .collect();
    let result = series.join(",");
    format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#)
}

async fn cpu(provider: &PrometheusProvider, pods: &[PodRef]) -> Option<f64> {
    let table = QueryTable::new(&BTreeMap::new(), Duration::from_mins(1), None);
    let index = Arc::new(PodIndex::new(pods.to_vec()));
    let results = collect(provider, &table, window(), &index, Duration::from_mins(1)).await;
    let folded = fold(&results, &index, SCRAPE_INTERVAL, at(NOW));
    folded.components[&component("a")].get(Signal::Cpu).map(|observed| observed.latest)
}

#[tokio::test]
async fn lies_make_signals_unknown_until_the_next_good_answer() {
    let pods = [pod("a", "a-1"), pod("a-b", "a-b-1")];
    let good = || Reply::Healthy(body(&[("a-1", "0.5"), ("a-b-1", "4")]));
    let server = LyingServer::start([good()]).await;
    let provider = provider(&server);
    assert_eq!(cpu(&provider, &pods).await, Some(0.5));
    for lie in [
        Reply::Healthy(body(&[])),
        Reply::Healthy(body(&[("a-1", "NaN")])),
        Reply::Healthy(body(&[("a-1", "+Inf")])),
        Reply::Healthy(body(&[("a-1", "-1")])),
        Reply::Healthy(body(&[("a-1", "1e308")])),
        Reply::Healthy(body(&[("a-1", "1"), ("a-1", "1")])),
        // Of another class, and of a pod that doesn't exist.
        Reply::Healthy(body(&[("a-b-1", "4"), ("a-11", "4"), ("a", "4")])),
        Reply::Healthy(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.into()),
        Reply::Healthy(body(&[("a-1", "1")]).replace(&NOW.to_string(), "5")),
        Reply::Body(401, String::new()),
    ] {
        server.reply([lie.clone()]);
        assert_eq!(cpu(&provider, &pods).await, None, "{lie:?}");
        server.reply([good()]);
        assert_eq!(cpu(&provider, &pods).await, Some(0.5), "after {lie:?}");
    }
}

#[tokio::test]
async fn pass_of_broken_answers_pauses_queries() {
    let pods = [pod("a", "a-1")];
    for lie in ["<html>".to_owned(), String::new(), good_half()] {
        let server = LyingServer::start([Reply::Healthy(lie)]).await;
        let provider = provider(&server);
        assert_eq!(cpu(&provider, &pods).await, None);
        server.reply([Reply::Healthy(body(&[("a-1", "0.5")]))]);
        let sent = server.requests().len();
        assert_eq!(cpu(&provider, &pods).await, None, "the breaker is open");
        assert_eq!(server.requests().len(), sent);
    }
}

fn good_half() -> String {
    let all = body(&[("a-1", "0.5")]);
    all.chars().take(all.len() / 2).collect()
}

/// An answer with many buckets of a pod.
fn buckets(count: usize) -> String {
    let series: Vec<_> = (0..count)
        .map(|number| {
            let bound =
                format!(r#""namespace":"n","pod":"a-1","container":"function","le":"{number}""#);
            format!(r#"{{"metric":{{{bound}}},"values":[[{NOW},"1.5"]]}}"#)
        })
        .collect();
    let result = series.join(",");
    format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#)
}

#[tokio::test]
async fn memory_of_a_pass_is_bounded() {
    let table = QueryTable::new(&BTreeMap::new(), Duration::from_mins(1), None);
    let pods = Arc::new(PodIndex::new([pod("a", "a-1")]));
    // The most times that a range can have, of which a small answer has one.
    let step = Duration::from_secs(30);
    let long = Window::ending_at(at(NOW), step * 1000, step);
    let server = LyingServer::start([Reply::Healthy(buckets(5_000))]).await;
    let provider = provider(&server);
    let results = collect(&provider, &table, long, &pods, Duration::from_mins(5)).await;
    // Only histograms keep all of the series.
    let histograms = Query::ALL.into_iter().filter(|query| query.is_histogram());
    let answer = |query: Query| &results.answers[&query];
    let (kept, failed): (Vec<_>, Vec<_>) = histograms.partition(|query| answer(*query).is_ok());
    assert!(!kept.is_empty() && !failed.is_empty(), "{kept:?} {failed:?}");
    for query in failed {
        assert!(matches!(answer(query), Err(QueryError::TooLarge)), "{query:?}");
    }
    let bytes: usize = results.answers.values().flatten().map(|rows| rows.kept_bytes).sum();
    assert!((MAX_PASS_BYTES / 3..=MAX_PASS_BYTES).contains(&bytes), "{bytes}");
    // The bound is one of a pass, not of the process, and one answer can't use all of it.
    server.reply([Reply::Healthy(buckets(10_000))]);
    let results = collect(&provider, &table, long, &pods, Duration::from_mins(5)).await;
    let failed: Vec<_> = results.answers.iter().filter(|(_, answer)| answer.is_err()).collect();
    assert!(
        failed.len() == 3 && failed.iter().all(|(query, _)| query.is_histogram()),
        "{failed:?}"
    );
    server.reply([Reply::Healthy(body(&[("a-1", "0.5")]))]);
    assert_eq!(cpu(&provider, &[pod("a", "a-1")]).await, Some(0.5));
}

#[tokio::test]
async fn series_of_other_pods_take_no_memory() {
    let server = LyingServer::start([Reply::Healthy(buckets(1000))]).await;
    let table = QueryTable::new(&BTreeMap::new(), Duration::from_mins(1), None);
    let pods = Arc::new(PodIndex::new([pod("a", "a-2")]));
    let results =
        collect(&provider(&server), &table, window(), &pods, Duration::from_mins(1)).await;
    assert_eq!(results.answers.values().flatten().count(), Query::ALL.len());
    assert!(results.answers.values().flatten().all(|rows| rows.kept_bytes == 0));
    assert!(results.bytes() > Query::ALL.len() * 50_000, "{}", results.bytes());
}
