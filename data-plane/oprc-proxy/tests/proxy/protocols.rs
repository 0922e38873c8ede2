//! Calls reach the function, and responses the client, as without the proxy.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version, body::Frame};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::support::{
    Function, TestBody, TestProxy, channel, collect, grpc_request, http1_client, http2_client,
    request, within,
};

#[tokio::test]
async fn forwards_calls_without_changes() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let mut client = http1_client(proxy.address).await;
    let call = Request::builder()
        .method(Method::POST)
        .uri("/a//b?c=d%20e")
        .header("host", "hello.example:99")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("x-kept", "2")
        .header("content-length", "5")
        .body(TestBody::from("hello"))
        .unwrap();
    let calling = tokio::spawn(async move { client.send_request(call).await.unwrap() });
    let mut arrived = function.next().await;
    assert_eq!(arrived.request.version(), Version::HTTP_11);
    assert_eq!(arrived.request.method(), Method::POST);
    assert_eq!(arrived.request.uri(), "/a//b?c=d%20e");
    let expected = HeaderMap::from_iter(
        [("host", "hello.example:99"), ("x-kept", "2"), ("content-length", "5")]
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())),
    );
    assert_eq!(*arrived.request.headers(), expected);
    let body = arrived.request.body_mut().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
    let response = Response::builder().status(418).header("x-teapot", "3").header("date", "today");
    arrived.respond(response.body("short and stout".into()).unwrap()).unwrap();
    let response = collect(within(calling).await.unwrap()).await;
    assert_eq!(response.status, StatusCode::IM_A_TEAPOT);
    assert_eq!(response.headers["x-teapot"], "3");
    assert_eq!(response.headers["date"], "today");
    assert_eq!(response.text(), "short and stout");
}

#[tokio::test]
async fn reuses_connections_to_the_function() {
    let function = Function::start().await;
    let connections = function.connections.clone();
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    function.answer(|_| Response::new("ok".into()));
    for _ in 0..20 {
        assert_eq!(proxy.get("/").await.status, StatusCode::OK);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn survives_a_restart_of_the_function() {
    let mut function = Function::start().await;
    let port = function.address.port();
    let proxy = TestProxy::start(port, |_| {}).await;
    for _ in 0..3 {
        let calling = proxy.spawn_get("/");
        function.next().await.ok();
        assert_eq!(within(calling).await.unwrap().status, StatusCode::OK);
        function.stop().await;
        function = Function::start_on(port).await;
    }
}

#[tokio::test]
async fn forwards_heads_without_bodies() {
    let function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    function
        .answer(|_| Response::builder().header("content-length", "99").body("".into()).unwrap());
    let mut client = http1_client(proxy.address).await;
    let mut head = request("/");
    *head.method_mut() = Method::HEAD;
    let response = collect(within(client.send_request(head)).await.unwrap()).await;
    assert_eq!(response.headers["content-length"], "99");
    assert_eq!(proxy.outcome("ok").await, 1);
}

#[tokio::test]
async fn serves_http_1_0() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    client.write_all(b"GET /old HTTP/1.0\r\n\r\n").await.unwrap();
    let arrived = function.next().await;
    assert_eq!(arrived.request.version(), Version::HTTP_10);
    assert!(!arrived.request.headers().contains_key("host"));
    arrived.ok();
    let mut text = String::new();
    within(client.read_to_string(&mut text)).await.unwrap();
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n") && text.ends_with("\r\n\r\nok"), "{text}");
}

#[tokio::test]
async fn streams_responses() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let mut client = http1_client(proxy.address).await;
    let calling = tokio::spawn(async move { client.send_request(request("/")).await.unwrap() });
    let (events, body) = channel();
    function.next().await.respond(Response::new(body)).unwrap();
    let mut body = within(calling).await.unwrap().into_body();
    // Each event arrives before the next one is sent.
    for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
        events.send(Frame::data(Bytes::from_static(event.as_bytes()))).await.unwrap();
        let frame = within(body.frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    drop(events);
    assert!(within(body.frame()).await.is_none());
    proxy.until_metric("oprc_proxy_requests_in_flight", 0).await;
    assert_eq!(proxy.outcome("ok").await, 1);
}

async fn assert_backpressure(body: super::support::BodySender, mut function: Function) {
    const CHUNK: usize = 64 << 10;
    const CHUNKS: usize = 1024;
    let mut arrived = function.next().await;
    let mut sent = 0;
    // The function doesn't read, so that the client can't send after all buffers are full.
    while sent < CHUNKS
        && timeout(Duration::from_millis(500), body.send(Frame::data(vec![7; CHUNK].into())))
            .await
            .is_ok_and(|sent| sent.is_ok())
    {
        sent += 1;
    }
    assert!(sent < CHUNKS / 2, "{sent} chunks were buffered");
    let sending = tokio::spawn(async move {
        for _ in sent..CHUNKS {
            body.send(Frame::data(vec![7; CHUNK].into())).await.unwrap();
        }
    });
    let mut received = 0;
    while let Some(frame) = within(arrived.request.body_mut().frame()).await {
        received += frame.unwrap().into_data().unwrap().len();
    }
    within(sending).await.unwrap();
    assert_eq!(received, CHUNK * CHUNKS);
    arrived.ok();
}

#[tokio::test]
async fn streams_http1_requests_with_backpressure() {
    let function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let mut client = http1_client(proxy.address).await;
    let (sender, body) = channel();
    let request = Request::post("/").header("host", "hello.example").body(body).unwrap();
    let calling = tokio::spawn(async move { client.send_request(request).await.unwrap() });
    assert_backpressure(sender, function).await;
    assert_eq!(within(calling).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn streams_http2_requests_with_backpressure() {
    let function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let (mut client, _) = http2_client(proxy.address).await;
    let (sender, body) = channel();
    let calling =
        tokio::spawn(async move { client.send_request(grpc_request(body)).await.unwrap() });
    assert_backpressure(sender, function).await;
    assert_eq!(within(calling).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn forwards_grpc_streams_with_trailers() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let (mut client, _) = http2_client(proxy.address).await;
    let (questions, body) = channel();
    let calling =
        tokio::spawn(async move { client.send_request(grpc_request(body)).await.unwrap() });
    let (answers, body) = channel();
    let mut request = function.next().await.respond_early(Response::new(body));
    assert_eq!(request.version(), Version::HTTP_2);
    assert_eq!(request.uri(), "http://hello.example/greeter/Hello");
    assert_eq!(request.headers()["te"], "trailers");
    // Both directions are open at the same time.
    let mut response = within(calling).await.unwrap();
    for _ in 0..3 {
        questions.send(Frame::data(Bytes::from_static(b"ping"))).await.unwrap();
        let question = within(request.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(question.into_data().unwrap(), "ping");
        answers.send(Frame::data(Bytes::from_static(b"pong"))).await.unwrap();
        let answer = within(response.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(answer.into_data().unwrap(), "pong");
    }
    drop(questions);
    let trailers = HeaderMap::from_iter([(
        "grpc-status".parse::<hyper::header::HeaderName>().unwrap(),
        hyper::header::HeaderValue::from_static("13"),
    )]);
    answers.send(Frame::trailers(trailers)).await.unwrap();
    drop(answers);
    let response = collect(response).await;
    assert_eq!(response.grpc_status(), "13");
    assert_eq!(proxy.outcome("server_error").await, 1);
}

#[tokio::test]
async fn forwards_trailers_of_http1() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let mut client = http1_client(proxy.address).await;
    let mut request = request("/");
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    request.headers_mut().insert("connection", "te".parse().unwrap());
    let calling = tokio::spawn(async move { client.send_request(request).await.unwrap() });
    let (sender, body) = channel();
    let response = Response::builder().header("trailer", "x-checksum").body(body).unwrap();
    function.next().await.respond(response).unwrap();
    let response = within(calling).await.unwrap();
    sender.send(Frame::data(Bytes::from_static(b"text"))).await.unwrap();
    let trailers = HeaderMap::from_iter([(
        "x-checksum".parse::<hyper::header::HeaderName>().unwrap(),
        hyper::header::HeaderValue::from_static("42"),
    )]);
    sender.send(Frame::trailers(trailers)).await.unwrap();
    drop(sender);
    let response = collect(response).await;
    assert_eq!(response.trailers.unwrap()["x-checksum"], "42");
}

#[tokio::test]
async fn forwards_http2_calls_without_authority() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let (mut client, _) = http2_client(proxy.address).await;
    let mut call = request("/path");
    *call.version_mut() = Version::HTTP_11;
    let calling = tokio::spawn(async move { client.send_request(call).await.unwrap() });
    let arrived = function.next().await;
    assert_eq!(arrived.request.version(), Version::HTTP_2);
    assert_eq!(arrived.request.uri(), "/path");
    assert_eq!(arrived.request.headers()["host"], "hello.example");
    arrived.ok();
    assert_eq!(within(calling).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn forwards_upgraded_connections() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.max_concurrency = Some(1);
    })
    .await;
    let mut client = http1_client(proxy.address).await;
    let call = Request::builder()
        .header("host", "hello.example")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(TestBody::from(""))
        .unwrap();
    let calling = tokio::spawn(async move { client.send_request(call).await.unwrap() });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    let arrived = function.next().await;
    assert_eq!(arrived.request.headers()["upgrade"], "websocket");
    let request = arrived.respond_early(response.body("".into()).unwrap());
    let echoing = tokio::spawn(async move {
        let (mut reader, mut writer) =
            tokio::io::split(TokioIo::new(hyper::upgrade::on(request).await.unwrap()));
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let response = within(calling).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "websocket");
    let mut socket = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    for message in ["hello", "again"] {
        socket.write_all(message.as_bytes()).await.unwrap();
        let mut echo = [0; 5];
        within(socket.read_exact(&mut echo)).await.unwrap();
        assert_eq!(echo, message.as_bytes());
    }
    // It is counted, and holds its slot until it is closed.
    assert_eq!(proxy.outcome("ok").await, 1);
    assert_eq!(proxy.metric("oprc_proxy_requests_in_flight").await, 1);
    socket.shutdown().await.unwrap();
    within(echoing).await.unwrap();
    proxy.until_metric("oprc_proxy_requests_in_flight", 0).await;
}
