//! Drain and termination.

use std::time::Duration;

use hyper::StatusCode;

use crate::support::{
    Function, TestProxy, collect, get, grpc_request, http1_client, http2_client, request, within,
};

#[tokio::test]
async fn drain_waits_for_calls_in_flight() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    assert_eq!(get(proxy.admin, "/healthz").await.status, StatusCode::OK);
    let calling = proxy.spawn_get("/");
    let arrived = function.next().await;
    let admin = proxy.admin;
    let drains = [(), ()].map(|()| tokio::spawn(get(admin, "/drain")));
    within(async { while get(admin, "/healthz").await.status == StatusCode::OK {} }).await;

    // New calls are served, and tell clients not to reuse the connection.
    let new = proxy.spawn_get("/new");
    function.next().await.ok();
    let new = within(new).await.unwrap();
    assert_eq!(new.status, StatusCode::OK);
    assert_eq!(new.headers["connection"], "close");
    assert!(drains.iter().all(|drain| !drain.is_finished()));

    arrived.ok();
    assert_eq!(within(calling).await.unwrap().status, StatusCode::OK);
    for drain in drains {
        assert_eq!(within(drain).await.unwrap().status, StatusCode::OK);
    }
    // A later drain is complete, too: the pod may have survived the first one.
    assert_eq!(get(admin, "/drain").await.status, StatusCode::OK);
}

#[tokio::test]
async fn drain_takes_at_least_the_lame_duck_time() {
    let lame_duck = Duration::from_millis(300);
    let function = Function::start().await;
    let proxy =
        TestProxy::start(function.address.port(), |config| config.lame_duck = lame_duck).await;
    let started = std::time::Instant::now();
    assert_eq!(get(proxy.admin, "/drain").await.status, StatusCode::OK);
    assert!(started.elapsed() >= lame_duck);
}

#[tokio::test]
async fn drain_closes_http2_connections_gracefully() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |config| {
        config.lame_duck = Duration::from_mins(10);
    })
    .await;
    let (mut client, connection) = http2_client(proxy.address).await;
    let calling = {
        let sending = client.send_request(grpc_request("".into()));
        tokio::spawn(async move { collect(sending.await.unwrap()).await })
    };
    let arrived = function.next().await;
    tokio::spawn(get(proxy.admin, "/drain"));
    within(async { while get(proxy.admin, "/healthz").await.status == StatusCode::OK {} }).await;
    // The call in flight ends well, and then the connection is closed although the client keeps it.
    arrived.ok();
    assert_eq!(within(calling).await.unwrap().status, StatusCode::OK);
    within(connection).await.unwrap().unwrap();
    drop(client);
}

#[tokio::test]
async fn drain_closes_idle_connections_after_the_lame_duck_time() {
    let mut function = Function::start().await;
    let proxy = TestProxy::start(function.address.port(), |_| {}).await;
    let mut client = http1_client(proxy.address).await;
    let calling = client.send_request(request("/"));
    let (response, ()) = tokio::join!(calling, async { function.next().await.ok() });
    assert_eq!(collect(response.unwrap()).await.status, StatusCode::OK);
    within(client.ready()).await.unwrap();
    get(proxy.admin, "/drain").await;
    within(async {
        while !client.is_closed() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn termination_finishes_calls_in_flight_and_closes_idle_connections() {
    let mut function = Function::start().await;
    let mut proxy =
        TestProxy::start(function.address.port(), |config| config.max_concurrency = Some(1)).await;
    let idle = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
    let first = proxy.spawn_get("/first");
    let arrived = function.next().await;
    let second = proxy.spawn_get("/second");
    proxy.until_metric("oprc_proxy_queue_length", 1).await;
    proxy.shut_down();
    within(async { while get(proxy.admin, "/healthz").await.status == StatusCode::OK {} }).await;
    assert!(tokio::net::TcpStream::connect(proxy.address).await.is_err());
    arrived.ok();
    function.next().await.ok();
    for calling in [first, second] {
        assert_eq!(within(calling).await.unwrap().status, StatusCode::OK);
    }
    within(proxy.running).await.unwrap();
    drop(idle);
}
