pub(crate) mod server;
mod tls;

use std::{
    fs,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use self::server::{LyingServer, Reply};
use super::{breaker::FAILURE_THRESHOLD, *};

const GOOD: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[
    {"metric":{"namespace":"n","pod":"a"},"values":[[1000,"1"],[1030,"2"]]}]}}"#;

fn options(server: &LyingServer) -> PrometheusOptions {
    PrometheusOptions {
        url: format!("http://{}", server.address),
        timeout: Duration::from_secs(5),
        ca_file: None,
        token_file: None,
        client_certificate: None,
    }
}

fn provider(server: &LyingServer) -> PrometheusProvider {
    PrometheusProvider::new(options(server)).unwrap()
}

fn range() -> RangeQuery {
    RangeQuery {
        promql: r#"sum by (pod) (rate(x{a="b"}[1m]))"#.to_owned(),
        start: Timestamp::from_second(1000).unwrap(),
        end: Timestamp::from_second(1060).unwrap(),
        step: Duration::from_secs(30),
    }
}

async fn values(provider: &PrometheusProvider) -> Result<Vec<f64>, QueryError> {
    let sink = Arc::new(Mutex::new(SeriesSet::default()));
    provider.query_range(&range(), sink.clone()).await?;
    let set = sink.lock();
    Ok(set.series.iter().flat_map(|series| &series.points).map(|point| point.value).collect())
}

fn body(text: &str) -> Reply {
    Reply::Body(200, text.to_owned())
}

fn status(code: u16) -> Reply {
    Reply::Body(code, "<html>broken</html>".to_owned())
}

/// The error that a reply gives, after which a good reply must be understood again.
async fn error(reply: Reply) -> QueryError {
    let server = LyingServer::start([reply]).await;
    let provider = provider(&server);
    let error = values(&provider).await.unwrap_err();
    server.reply([body(GOOD)]);
    assert_eq!(values(&provider).await, Ok(vec![1.0, 2.0]), "after {error}");
    error
}

fn with_values(values: &str) -> String {
    format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[
            {{"metric":{{"pod":"a"}},"values":[{values}]}}]}}}}"#
    )
}

#[tokio::test]
async fn sends_the_query_as_a_form_below_the_path_prefix() {
    let server = LyingServer::start([body(GOOD)]).await;
    let url = format!("http://{}/team/prometheus/", server.address);
    let provider = PrometheusProvider::new(PrometheusOptions { url, ..options(&server) }).unwrap();
    assert_eq!(values(&provider).await, Ok(vec![1.0, 2.0]));
    let (head, form) = server.requests().remove(0);
    assert!(head.starts_with("POST /team/prometheus/api/v1/query_range HTTP/1.1"), "{head}");
    assert!(head.contains("application/x-www-form-urlencoded"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
    let query = "query=sum%20by%20%28pod%29%20%28rate%28x%7Ba%3D%22b%22%7D%5B1m%5D%29%29";
    let (before, timeout) = form.split_once("&timeout=").unwrap();
    assert_eq!(before, format!("{query}&start=1000.000&end=1060.000&step=30"));
    let timeout: u64 = timeout.strip_suffix("ms").unwrap().parse().unwrap();
    assert!((1..=5000).contains(&timeout), "{timeout}");
}

#[tokio::test]
async fn instant_queries_and_health_checks_read_vectors() {
    let server = LyingServer::start([]).await;
    let provider = provider(&server);
    let at = Timestamp::from_nanosecond(1_000_123_456_789).unwrap();
    let vector = |seconds: f64| {
        body(&format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[
                {{"metric":{{}},"value":[{seconds},"1"]}}]}}}}"#
        ))
    };
    server.reply([vector(1000.123)]);
    let set = provider.query_instant("up", at).await.unwrap();
    assert_eq!(set.series[0].points[0].at.as_millisecond(), 1_000_123);
    let (head, form) = server.requests().remove(0);
    assert!(head.starts_with("POST /api/v1/query HTTP/1.1"), "{head}");
    assert!(form.starts_with("query=up&time=1000.123&"), "{form}");
    // A fixed answer isn't one to the time that was asked for.
    assert!(matches!(provider.health_check().await, Err(QueryError::Invalid(_))));
    server.reply([Reply::Healthy(String::new())]);
    assert_eq!(provider.health_check().await, Ok(()));
    server.reply([status(401)]);
    assert_eq!(provider.health_check().await, Err(QueryError::Status(401)));
}

#[tokio::test]
async fn token_is_read_for_each_request_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let server = LyingServer::start([body(GOOD)]).await;
    let token_file = Some(path.clone());
    let options = PrometheusOptions { token_file, ..options(&server) };
    let provider = PrometheusProvider::new(options).unwrap();
    let missing = values(&provider).await.unwrap_err();
    assert!(matches!(&missing, QueryError::Credentials(reason) if reason.contains("token")));
    for token in ["first-secret", "second-secret"] {
        fs::write(&path, format!("{token}\n")).unwrap();
        values(&provider).await.unwrap();
        let (head, _) = server.requests().pop().unwrap();
        assert!(head.contains(&format!("authorization: Bearer {token}")), "{head}");
    }
    for content in ["", "two-secrets\non-two-lines", "\u{0}secret"] {
        fs::write(&path, content).unwrap();
        let error = values(&provider).await.unwrap_err();
        assert!(matches!(error, QueryError::Credentials(_)));
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn transient_errors_are_retried_within_the_deadline() {
    let server = LyingServer::start([status(500), Reply::Reset, body(GOOD)]).await;
    assert_eq!(values(&provider(&server)).await, Ok(vec![1.0, 2.0]));
    assert_eq!(server.requests().len(), 3);

    let server = LyingServer::start([status(502)]).await;
    assert_eq!(values(&provider(&server)).await, Err(QueryError::Status(502)));
    assert_eq!(server.requests().len(), 3);

    // There is no time for a retry: the error is that of the server.
    let server = LyingServer::start([status(503)]).await;
    let timeout = Duration::from_millis(90);
    let provider =
        PrometheusProvider::new(PrometheusOptions { timeout, ..options(&server) }).unwrap();
    assert_eq!(values(&provider).await, Err(QueryError::Status(503)));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn retry_forgets_what_the_first_attempt_received() {
    let server = LyingServer::start([Reply::Truncated(GOOD.to_owned()), body(GOOD)]).await;
    assert_eq!(values(&provider(&server)).await, Ok(vec![1.0, 2.0]));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn answers_to_instant_queries_are_small() {
    let server = LyingServer::start([Reply::Stream(usize::MAX)]).await;
    let provider = provider(&server);
    assert_eq!(provider.health_check().await, Err(QueryError::TooLarge));
    assert!(server.sent() < 32 << 20, "{}", server.sent());
}

#[tokio::test]
async fn error_of_the_sink_ends_the_query() {
    struct Full;
    impl SeriesSink for Full {
        fn reset(&self) {}

        fn accept(&self, _: &Labels, _: &[Point]) -> Result<(), QueryError> {
            Err(QueryError::TooLarge)
        }
    }
    let server = LyingServer::start([Reply::Stream(usize::MAX)]).await;
    let error = provider(&server).query_range(&range(), Arc::new(Full)).await.unwrap_err();
    assert_eq!(error, QueryError::TooLarge);
    assert!(server.sent() < 32 << 20, "{}", server.sent());
    assert_eq!(server.requests().len(), 1, "not retried");
}

#[tokio::test]
async fn other_errors_are_not_retried() {
    let rejected = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
    let timed_out = r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#;
    for (reply, expected) in [
        (status(401), QueryError::Status(401)),
        (status(302), QueryError::Status(302)),
        (status(404), QueryError::Status(404)),
        (Reply::Body(400, rejected.to_owned()), QueryError::BadQuery("parse error".to_owned())),
        (Reply::Body(503, timed_out.to_owned()), QueryError::Timeout),
    ] {
        let server = LyingServer::start([reply]).await;
        assert_eq!(values(&provider(&server)).await, Err(expected));
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn slow_server_times_out() {
    let server = LyingServer::start([Reply::Slow(Duration::from_secs(20), GOOD.to_owned())]).await;
    let timeout = Duration::from_millis(200);
    let provider =
        PrometheusProvider::new(PrometheusOptions { timeout, ..options(&server) }).unwrap();
    let begun = Instant::now();
    assert_eq!(values(&provider).await, Err(QueryError::Timeout));
    assert!(begun.elapsed() < Duration::from_secs(10));
    server.reply([body(GOOD)]);
    assert_eq!(values(&provider).await, Ok(vec![1.0, 2.0]));
}

#[tokio::test]
async fn unreachable_server_is_named() {
    let server = LyingServer::start([]).await;
    // A port that other tests don't get.
    let url = "http://127.0.0.1:1".to_owned();
    let provider = PrometheusProvider::new(PrometheusOptions { url, ..options(&server) }).unwrap();
    let error = values(&provider).await.unwrap_err();
    assert!(
        matches!(&error, QueryError::Unreachable(reason) if reason.contains("refused")),
        "{error}"
    );
}

#[tokio::test]
async fn broken_connections_are_unreachable() {
    assert!(matches!(error(Reply::Reset).await, QueryError::Unreachable(_)));
    assert!(matches!(error(Reply::Truncated(GOOD.to_owned())).await, QueryError::Unreachable(_)));
}

#[tokio::test]
async fn other_bodies_are_not_prometheus() {
    let cut = GOOD.get(..GOOD.len() / 2).unwrap();
    for text in ["<html>Sign in</html>", "", "{}", cut] {
        let error = error(body(text)).await;
        assert!(matches!(error, QueryError::NotPrometheus(_)), "{text}: {error:?}");
    }
}

#[tokio::test]
async fn contradictory_answers_are_invalid() {
    let duplicate = r#"{"metric":{"pod":"a"},"values":[]}"#;
    let series = format!("[{duplicate},{duplicate}]");
    let result = |kind: &str, result: &str| {
        let data = format!(r#"{{"resultType":"{kind}","result":{result}}}"#);
        body(&format!(r#"{{"status":"success","data":{data}}}"#))
    };
    for reply in [
        result("vector", "[]"),
        result("scalar", r#"[1,"1"]"#),
        result("matrix", &series),
        body(&with_values(r#"[1030,"1"],[1000,"1"]"#)),
    ] {
        assert!(matches!(error(reply.clone()).await, QueryError::Invalid(_)), "{reply:?}");
    }
}

#[tokio::test]
async fn impossible_values_are_unknown() {
    for value in ["NaN", "+Inf", "-Inf", "-1", "1e308", "many"] {
        let text = with_values(&format!(r#"[1000,"{value}"],[1030,"3"]"#));
        let server = LyingServer::start([body(&text)]).await;
        assert_eq!(values(&provider(&server)).await, Ok(vec![3.0]), "{value}");
    }
    let server = LyingServer::start([body(&with_values(r#"[10,"1"],[99999,"2"]"#))]).await;
    assert_eq!(values(&provider(&server)).await, Ok(vec![]), "outside of the range");
}

#[tokio::test]
async fn oversized_bodies_are_not_read_to_their_end() {
    let server = LyingServer::start([Reply::Stream(usize::MAX)]).await;
    // Without optimisation it takes a while to read as much.
    let timeout = Duration::from_mins(2);
    let provider =
        PrometheusProvider::new(PrometheusOptions { timeout, ..options(&server) }).unwrap();
    assert_eq!(values(&provider).await, Err(QueryError::TooLarge));
    // The rest is in the buffers of the sockets.
    assert!(server.sent() < MAX_BODY_BYTES + (16 << 20), "{}", server.sent());
    assert_eq!(server.requests().len(), 1, "not retried");
    server.reply([body(GOOD)]);
    assert_eq!(values(&provider).await, Ok(vec![1.0, 2.0]));
    assert_eq!(error(Reply::Announced(MAX_BODY_BYTES + 1)).await, QueryError::TooLarge);
}

#[tokio::test]
async fn breaker_opens_after_repeated_outages() {
    let server = LyingServer::start([status(401)]).await;
    let provider = provider(&server);
    for _ in 0..FAILURE_THRESHOLD {
        assert_eq!(values(&provider).await, Err(QueryError::Status(401)));
    }
    assert_eq!(values(&provider).await, Err(QueryError::BreakerOpen));
    assert_eq!(server.requests().len(), FAILURE_THRESHOLD as usize);
}

#[tokio::test]
async fn rejected_queries_do_not_open_the_breaker() {
    let rejected = r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#;
    let server = LyingServer::start([Reply::Body(400, rejected.to_owned())]).await;
    let provider = provider(&server);
    for _ in 0..=FAILURE_THRESHOLD {
        assert!(matches!(values(&provider).await, Err(QueryError::BadQuery(_))));
    }
}

#[test]
fn urls_are_checked() {
    for url in ["http://p:9090", "https://p/prefix/", "http://[::1]:9090", "http://127.0.0.1"] {
        assert_eq!(url_problem(url), None, "{url}");
    }
    for url in [
        "",
        "p:9090",
        "ftp://p",
        "http://",
        "/prefix",
        "http://user:secret@p",
        "http://p?a=b",
        "http://p/#a",
        "http://a b",
    ] {
        let problem = url_problem(url);
        assert!(problem.is_some(), "{url}");
        assert!(!problem.unwrap_or_default().contains("secret"));
    }
}
