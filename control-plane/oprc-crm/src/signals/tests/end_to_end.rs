//! A pass against a server that lies.

use super::*;
use crate::provider::{
    PrometheusOptions, PrometheusProvider,
    tests::server::{LyingServer, Reply},
};

fn provider(server: &LyingServer) -> PrometheusProvider {
    let options = PrometheusOptions {
        url: format!("http://{}", server.address),
        timeout: Duration::from_secs(5),
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
    let results = collect(provider, &table, window(), Duration::from_mins(1)).await;
    let folded = fold(&results, &PodIndex::new(pods.to_vec()), SCRAPE_INTERVAL, at(NOW));
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
