//! The metrics of a mix of calls.

use std::time::Duration;

use hyper::{Response, StatusCode};

use crate::support::{Function, TestProxy, get};

#[tokio::test]
async fn outcomes_add_up_to_the_number_of_calls() {
    let function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.latency = Some(Duration::from_millis(123));
        config.hard_latency = Some(Duration::from_millis(4567));
    })
    .await;
    function.answer(|request| {
        let status = request.uri().path().trim_start_matches('/').parse::<u16>().unwrap();
        let mut response = Response::new("".into());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    });
    for path in ["/200", "/204", "/302", "/404", "/429", "/500", "/503"] {
        let status = proxy.get(path).await.status;
        assert_eq!(status.as_str(), path.trim_start_matches('/'));
    }
    assert_eq!(proxy.outcome("ok").await, 3);
    assert_eq!(proxy.outcome("client_error").await, 2);
    assert_eq!(proxy.outcome("server_error").await, 2);
    assert_eq!(proxy.metric("oprc_proxy_request_duration_seconds_count").await, 7);
    assert_eq!(proxy.metric("oprc_proxy_hard_latency_breaches_total").await, 0);

    let text = proxy.metrics().await;
    let samples = parse(&text);
    let sum: usize = samples
        .iter()
        .filter(|(series, _)| series.starts_with("oprc_proxy_requests_total{"))
        .map(|(_, value)| value.parse::<usize>().unwrap())
        .sum();
    assert_eq!(sum, 7);
    for bound in ["0.123", "4.567", "0.001", "+Inf"] {
        let series = format!("oprc_proxy_request_duration_seconds_bucket{{le=\"{bound}\"}}");
        assert!(samples.iter().any(|(found, _)| *found == series), "no {series} in {text}");
    }
}

/// Samples of the OpenMetrics text format; fails for any other line.
fn parse(text: &str) -> Vec<(&str, &str)> {
    let text = text.strip_suffix("# EOF\n").unwrap();
    let (comments, samples): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with('#'));
    for comment in comments {
        assert!(comment.starts_with("# HELP ") || comment.starts_with("# TYPE "), "{comment}");
    }
    samples
        .into_iter()
        .map(|sample| {
            let (series, value) = sample.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{sample}");
            (series, value)
        })
        .collect()
}

#[tokio::test]
async fn admin_port_knows_only_its_paths() {
    let function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let metrics = get(proxy.admin, "/metrics").await;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(metrics.headers["content-type"], content_type);
    assert_eq!(get(proxy.admin, "/other").await.status, StatusCode::NOT_FOUND);
}
