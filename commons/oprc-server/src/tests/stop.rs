//! Graceful shutdown.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::get};
use tokio::{net::TcpStream, sync::Notify};

use super::{client::Client, options, start, within_timeout};
use crate::Options;

/// A route that signals when it is called, and responds when signalled.
fn slow() -> (Router, Arc<Notify>, Arc<Notify>) {
    let (received, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (notify, wait) = (received.clone(), finish.clone());
    let handler = async move || {
        notify.notify_one();
        wait.notified().await;
    };
    (Router::new().route("/", get(handler)), received, finish)
}

#[tokio::test]
async fn drains_open_requests_and_refuses_connections() {
    for h2 in [false, true] {
        let (router, received, finish) = slow();
        let server = start(options(), router).await;
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut client, connection) = Client::speak(stream, h2).await.unwrap();
        let idle = TcpStream::connect(server.address).await.unwrap();
        let (_idle, idle_connection) = Client::speak(idle, h2).await.unwrap();
        let request = tokio::spawn(async move { client.get("/").await });
        within_timeout(received.notified()).await;
        server.stop.send(()).unwrap();
        // Connections in the backlog are reset.
        let is_refused = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
        within_timeout(async {
            while !TcpStream::connect(server.address).await.is_err_and(|error| is_refused(&error)) {
            }
        })
        .await;
        // A connection without open requests closes at once.
        let _ = within_timeout(idle_connection).await;
        assert!(!server.served.is_finished());
        finish.notify_one();
        assert_eq!(within_timeout(request).await.unwrap().unwrap().status(), StatusCode::OK);
        within_timeout(connection).await.unwrap().unwrap();
        within_timeout(server.served).await.unwrap();
    }
}

#[tokio::test]
async fn closes_connections_after_the_drain_timeout() {
    for h2 in [false, true] {
        let (router, received, _finish) = slow();
        let drain_timeout = Duration::from_millis(50);
        let server = start(Options { drain_timeout, ..options() }, router).await;
        let mut client = Client::plain(server.address, h2).await;
        let request = tokio::spawn(async move { client.get("/").await });
        within_timeout(received.notified()).await;
        server.stop.send(()).unwrap();
        within_timeout(server.served).await.unwrap();
        assert!(within_timeout(request).await.unwrap().is_err());
    }
}
