//! Concurrency, queue, timeout, breaker, and functions that can't be reached.

use std::{net::Ipv4Addr, time::Duration};

use hyper::{Request, Response, StatusCode};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use crate::support::{
    Arrived, Function, TestBody, TestProxy, grpc_call, grpc_request, http1_client, http2_client,
    request, within,
};

const IN_FLIGHT: &str = "oprc_proxy_requests_in_flight";
const QUEUE_LENGTH: &str = "oprc_proxy_queue_length";

#[tokio::test]
async fn never_exceeds_the_maximum_concurrency() {
    const CALLS: usize = 50;
    const MAX: usize = 5;
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.max_concurrency = Some(MAX);
    })
    .await;
    let calls: Vec<_> = (0..CALLS).map(|_| proxy.spawn_get("/")).collect();
    proxy.until_metric(QUEUE_LENGTH, 45).await;
    assert_eq!(proxy.metric("oprc_proxy_max_concurrency").await, 5);
    let mut running: Vec<Arrived> = Vec::new();
    for answered in 0..CALLS {
        while running.len() < MAX.min(CALLS - answered) {
            running.push(function.next().await);
        }
        // No further call gets to the function, although others are waiting.
        assert!(proxy.metric(IN_FLIGHT).await <= MAX);
        assert!(!function.has_arrivals());
        running.swap_remove(0).ok();
    }
    for call in calls {
        assert_eq!(within(call).await.unwrap().status, StatusCode::OK);
    }
    assert_eq!(proxy.outcome("ok").await, 50);
    assert_eq!(proxy.metric("oprc_proxy_queue_wait_seconds_count").await, 45);
    assert_eq!(proxy.metric(IN_FLIGHT).await, 0);
}

#[tokio::test]
async fn limits_calls_on_one_http2_connection() {
    let mut function = Function::start().await;
    let proxy =
        TestProxy::start(function.address.port(), |config| config.max_concurrency = Some(2)).await;
    let (mut client, _) = http2_client(proxy.address).await;
    let calls: Vec<_> =
        (0..10).map(|_| tokio::spawn(client.send_request(grpc_request("".into())))).collect();
    proxy.until_metric(QUEUE_LENGTH, 8).await;
    for _ in 0..5 {
        let both = [function.next().await, function.next().await];
        assert!(!function.has_arrivals());
        both.into_iter().for_each(Arrived::ok);
    }
    for call in calls {
        let response = within(call).await.unwrap().unwrap();
        assert_eq!(crate::support::collect(response).await.text(), "ok");
    }
}

#[tokio::test]
async fn rejects_calls_when_the_queue_is_full() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.max_concurrency = Some(1);
        config.queue_length = 1;
    })
    .await;
    let first = proxy.spawn_get("/first");
    let running = function.next().await;
    let second = proxy.spawn_get("/second");
    proxy.until_metric(QUEUE_LENGTH, 1).await;

    let rejected = proxy.get("/third").await;
    assert_eq!(rejected.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(rejected.headers["retry-after"], "1");
    assert_eq!(rejected.headers["content-type"], "application/problem+json");
    assert!(rejected.text().contains("\"status\":503"), "{}", rejected.text());
    let rejected = grpc_call(proxy.address).await;
    assert_eq!(rejected.status, StatusCode::OK);
    assert_eq!(rejected.grpc_status(), "8");
    assert_eq!(proxy.metric(r#"oprc_proxy_rejected_total{reason="queue_full"}"#).await, 2);
    assert_eq!(proxy.outcome("rejected").await, 2);

    running.ok();
    let queued = function.next().await;
    assert_eq!(queued.request.uri(), "/second");
    queued.ok();
    assert_eq!(within(first).await.unwrap().status, StatusCode::OK);
    assert_eq!(within(second).await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn calls_time_out_in_the_function() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.timeout = Some(Duration::from_millis(50));
    })
    .await;
    let calling = proxy.spawn_get("/");
    let arrived = function.next().await;
    let response = within(calling).await.unwrap();
    assert_eq!(response.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(response.text().contains("\"title\":\"Gateway Timeout\""), "{}", response.text());
    within(arrived.canceled()).await;

    let address = proxy.address;
    let calling = tokio::spawn(async move { grpc_call(address).await });
    let arrived = function.next().await;
    assert_eq!(within(calling).await.unwrap().grpc_status(), "4");
    within(arrived.canceled()).await;
    assert_eq!(proxy.outcome("timeout").await, 2);
    assert_eq!(proxy.metric("oprc_proxy_request_duration_seconds_count").await, 2);
    assert_eq!(proxy.metric(IN_FLIGHT).await, 0);
}

#[tokio::test]
async fn calls_time_out_in_the_queue() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.max_concurrency = Some(1);
        config.timeout = Some(Duration::from_millis(500));
    })
    .await;
    let mut client = http1_client(proxy.address).await;
    let calling = tokio::spawn(async move { client.send_request(request("/")).await.unwrap() });
    // The head arrives in time, and the body holds the slot.
    let (body, response) = crate::support::channel();
    function.next().await.respond(Response::new(response)).unwrap();
    let response = within(calling).await.unwrap();
    assert_eq!(proxy.get("/queued").await.status, StatusCode::GATEWAY_TIMEOUT);
    drop(body);
    assert_eq!(crate::support::collect(response).await.status, StatusCode::OK);
    assert_eq!(proxy.metric(QUEUE_LENGTH).await, 0);
    // The call did not reach the function.
    assert_eq!(proxy.metric("oprc_proxy_request_duration_seconds_count").await, 1);
}

#[tokio::test]
async fn canceled_calls_release_their_slots() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.max_concurrency = Some(1);
    })
    .await;
    let first = proxy.spawn_get("/first");
    let running = function.next().await;
    // With a body that the proxy has not forwarded yet.
    let mut client = http1_client(proxy.address).await;
    let post = Request::post("/second")
        .header("host", "hello.example")
        .header("content-length", "5")
        .body(TestBody::from("hello"))
        .unwrap();
    let second = tokio::spawn(async move { client.send_request(post).await.unwrap() });
    proxy.until_metric(QUEUE_LENGTH, 1).await;
    let (mut client, _) = http2_client(proxy.address).await;
    let third =
        tokio::spawn(async move { client.send_request(grpc_request("".into())).await.unwrap() });
    proxy.until_metric(QUEUE_LENGTH, 2).await;
    let fourth = proxy.spawn_get("/fourth");
    proxy.until_metric(QUEUE_LENGTH, 3).await;

    second.abort();
    proxy.until_metric(QUEUE_LENGTH, 2).await;
    third.abort();
    proxy.until_metric(QUEUE_LENGTH, 1).await;
    first.abort();
    within(running.canceled()).await;
    let arrived = function.next().await;
    assert_eq!(arrived.request.uri(), "/fourth");
    arrived.ok();
    assert_eq!(within(fourth).await.unwrap().status, StatusCode::OK);
    assert_eq!(proxy.outcome("canceled").await, 3);
    assert_eq!(proxy.metric(IN_FLIGHT).await, 0);
}

#[tokio::test]
async fn client_that_leaves_during_the_response_releases_its_slot() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.max_concurrency = Some(1);
    })
    .await;
    let mut client = http1_client(proxy.address).await;
    let calling = tokio::spawn(async move { client.send_request(request("/")).await.unwrap() });
    let (body, response) = crate::support::channel();
    function.next().await.respond(Response::new(response)).unwrap();
    drop(within(calling).await.unwrap());
    within(body.closed()).await;
    proxy.until_metric(IN_FLIGHT, 0).await;
    assert_eq!(proxy.outcome("canceled").await, 1);
}

#[tokio::test]
async fn unreachable_functions_are_bad_gateways() {
    // Its port is free again after it has stopped.
    let function = Function::start().await;
    let port = function.address.port();
    function.stop().await;
    let proxy = TestProxy::start(port, |_| {}).await;
    let response = proxy.get("/").await;
    assert_eq!(response.status, StatusCode::BAD_GATEWAY);
    assert!(response.text().contains("not reachable"), "{}", response.text());
    assert_eq!(grpc_call(proxy.address).await.grpc_status(), "14");
    assert_eq!(proxy.outcome("unreachable").await, 2);
    assert_eq!(proxy.metric("oprc_proxy_request_duration_seconds_count").await, 0);
}

#[tokio::test]
async fn lost_connections_are_bad_gateways() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = TestProxy::start(listener.local_addr().unwrap().port(), |_| {}).await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Closes the connection after the first bytes of a request.
            _ = stream.read(&mut [0; 16]).await;
        }
    });
    let response = proxy.get("/").await;
    assert_eq!(response.status, StatusCode::BAD_GATEWAY);
    assert!(response.text().contains("closed the connection"), "{}", response.text());
    assert_eq!(grpc_call(proxy.address).await.grpc_status(), "14");
    assert_eq!(proxy.outcome("unreachable").await, 2);
}

#[tokio::test]
async fn breaker_opens_and_recovers() {
    let hard_latency = Duration::from_millis(100);
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.hard_latency = Some(hard_latency);
        config.breaker = true;
    })
    .await;
    let calls: Vec<_> = (0..20).map(|_| proxy.spawn_get("/slow")).collect();
    let mut running = Vec::new();
    while running.len() < calls.len() {
        running.push(function.next().await);
    }
    // Simulates a function that takes longer than the hard latency.
    tokio::time::sleep(hard_latency * 2).await;
    for arrived in running {
        arrived.ok();
    }
    for call in calls {
        assert_eq!(within(call).await.unwrap().status, StatusCode::OK);
    }
    assert_eq!(proxy.metric("oprc_proxy_hard_latency_breaches_total").await, 20);

    let shed = proxy.get("/").await;
    assert_eq!(shed.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(grpc_call(proxy.address).await.grpc_status(), "8");
    assert_eq!(proxy.metric(r#"oprc_proxy_rejected_total{reason="breaker"}"#).await, 2);

    // Clients retry after the time that the response tells.
    let retry_after: u64 = shed.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=5).contains(&retry_after), "{retry_after}");
    tokio::time::sleep(Duration::from_secs(retry_after)).await;
    function.answer(|_| Response::new("ok".into()));
    for _ in 0..30 {
        assert_eq!(proxy.get("/").await.status, StatusCode::OK);
    }
}
